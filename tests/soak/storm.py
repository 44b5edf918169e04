"""A soak with faults: several workers under a constant load, and one thing after another breaks.

Time is cut into chapters. At the end of each the faults pause and the load stops until all is done;
then the ledger and what the server holds are judged, the processes and the server are compared with
what they were before the first fault, and the ledger begins anew. So a soak may last for hours.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from chasquimq import Queue, wire
from chasquimq.errors import StoreUnavailableError, UnconfirmedError
from tests.chaos.kit.fleet import Fleet, Orders
from tests.chaos.kit.history import Verdict, check
from tests.chaos.kit.ledger import Ledger, read
from tests.chaos.kit.proxy import Proxy
from tests.chaos.kit.scan import scan
from tests.chaos.kit.wait import eventually
from tests.servers import DialectServer
from tests.soak.account import DELAYED, Recovery, Times, Window, calm_waits, recoveries
from tests.soak.fault import FAULTS, Scene, draw
from tests.soak.quiet import Quiet, look, worse

T = TypeVar("T")

QUEUE = "soak"
TICK_S = 0.02
TRIAL_S = 4.0  # in which the machine shows what it can do, after as long to warm up
BURST = 200
SHARE = 0.7  # of that is the load
HELD = 256  # what a worker reads ahead at most, beside what it runs
CHAPTER = 250_000  # jobs of which a verdict takes some seconds and some hundred megabytes
SAMPLE = 10_000  # waits of a chapter that are kept
SILENCE_S = 60.0  # without anything done for so long, what is left is stuck


@dataclass(frozen=True)
class Plan:
    seconds: float
    every_s: float = 20.0
    rate: float = 0.0
    """Jobs per second; 0: a share of what the machine can do."""
    seed: int = 1
    lease_ms: int = 5_000
    workers: int = 3
    concurrency: int = 8
    chapter_s: float = 180.0
    faults: tuple[str, ...] = ()
    """These, in this order; else all, again and again, in random order."""

    @property
    def long_s(self) -> float:
        """Some jobs last longer than a lease: only they can overlap."""
        return 1.5 * self.lease_ms / 1000

    @property
    def long_every_s(self) -> float:
        """One at a time, so often that they take a quarter of all places."""
        return 4 * self.long_s / (self.workers * self.concurrency)


@dataclass
class Outcome:
    plan: Plan
    rate: float = 0.0
    jobs: int = 0
    chapters: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    windows: list[Window] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    calm: int = 0
    """Jobs that no fault touched."""
    waits_ms: list[float] = field(default_factory=list)
    """How long some of them waited, evenly chosen: an hour has too many."""
    quiet: list[Quiet] = field(default_factory=list)
    """Before the first fault, and at the end of each chapter."""
    problems: list[str] = field(default_factory=list)


async def storm(
    server: DialectServer, folder: Path, plan: Plan, tell: Callable[[str], None]
) -> Outcome:
    ledger = Ledger(folder / "ledger")
    port = server.server.port
    assert port is not None
    with ExitStack() as stack:
        stack.callback(ledger.close)
        proxy = stack.enter_context(Proxy(port))
        fleet = stack.enter_context(Fleet(ledger))
        orders = Orders(
            proxy.url,
            QUEUE,
            str(ledger.path),
            concurrency=plan.concurrency,
            claim_min_idle_ms=plan.lease_ms,
            dialect=server.forced_dialect,
            options={"every_ms": 500, "consumer_idle_ms": 3 * plan.lease_ms},
        )
        scene = Scene(server.server, server.client(), proxy, fleet, orders, plan.seed)
        # One thread for all that blocks: a Server belongs to one.
        hands = stack.enter_context(ThreadPoolExecutor(1))
        async with Queue(QUEUE, redis_url=proxy.url, dialect=server.forced_dialect) as queue:
            return await _Storm(server, scene, queue, hands, plan, tell).run()


class _Storm:
    def __init__(
        self,
        server: DialectServer,
        scene: Scene,
        queue: Queue,
        hands: ThreadPoolExecutor,
        plan: Plan,
        tell: Callable[[str], None],
    ) -> None:
        self._server = server
        self._scene = scene
        self._queue = queue
        self._hands = hands
        self._plan = plan
        self._tell = tell
        self._bag = list(plan.faults)
        self._began = time.monotonic()
        self._number = 0
        self._long_at = 0.0
        self._outcome = Outcome(plan)

    async def run(self) -> Outcome:
        outcome, plan = self._outcome, self._plan
        await self._by_hand(lambda: self._scene.hire(plan.workers))
        outcome.rate = plan.rate or await self._measured()
        await self._add([_row(number) for number in self._some(plan.workers * plan.concurrency)])
        await self._by_hand(self._rests)
        outcome.quiet.append(await self._by_hand(self._settled))
        self._forget()
        warm, self._began = self._number, time.monotonic()
        self._tell(f"seed {plan.seed}, {outcome.rate:,.0f} jobs/s; quiet: {outcome.quiet[0]}")
        chapter_s = max(min(plan.chapter_s, CHAPTER / outcome.rate), 2 * plan.every_s)
        while (left := self._began + plan.seconds - time.monotonic()) > 0:
            # A rest in which nothing would break belongs to the chapter before it.
            await self._chapter(left if left < chapter_s + plan.every_s else chapter_s)
        outcome.jobs = self._number - warm
        outcome.problems += self._scene.problems
        return outcome

    async def _measured(self) -> float:
        """A share of what the machine can do, in jobs per second, added and run meanwhile."""
        rate = 0.0
        for _ in range(2):
            began, first = time.monotonic(), self._number - await self._waiting()
            while time.monotonic() < began + TRIAL_S:
                if await self._waiting() < 5 * BURST:
                    await self._add([_plain(number) for number in self._some(BURST)])
                else:
                    await asyncio.sleep(TICK_S / 4)
            done = self._number - await self._waiting() - first
            rate = done / (time.monotonic() - began)
        return SHARE * rate

    async def _waiting(self) -> int:
        return await self._by_hand(self._left)

    # -- a chapter -----------------------------------------------------------------------------

    async def _chapter(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        before = len(self._outcome.windows)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._load(until, tasks))
            tasks.create_task(self._break(until))
        self._outcome.chapters += 1
        await self._by_hand(lambda: self._judge(self._outcome.windows[before:]))
        self._forget()

    async def _load(self, until: float, tasks: asyncio.TaskGroup) -> None:
        """As many as are due, whatever became of those before."""
        began, sent = time.monotonic(), 0
        while (now := time.monotonic()) < until:
            due = int((now - began) * self._outcome.rate) - sent
            if due:
                tasks.create_task(self._add(self._burst(due)))
                sent += due
            await asyncio.sleep(TICK_S)

    async def _break(self, until: float) -> None:
        """The first half an interval after the beginning, the last half of one before the end."""
        every, next_at = self._plan.every_s, time.monotonic() + self._plan.every_s / 2
        while next_at <= until - every / 2:
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))
            fault = self._next()
            window = await self._by_hand(lambda fault=fault: self._fault(fault))  # type: ignore[misc]
            self._outcome.windows.append(window)
            self._progress(window)
            next_at = max(next_at + every, time.monotonic() + every / 4)

    def _next(self) -> str:
        if not self._bag:
            self._bag = list(self._plan.faults) or draw(self._scene.chance)
        return self._bag.pop(0)

    def _fault(self, name: str) -> Window:
        self._scene.ledger.fault(name)
        begin_ns = time.monotonic_ns()
        FAULTS[name](self._scene)
        for one in self._scene.workers:
            if not one.is_alive:
                raise AssertionError(f"a worker ended by itself, after {name}:\n{one.errors}")
        return Window(name, begin_ns, self._scene.over_ns)

    def _progress(self, window: Window) -> None:
        lasted = (window.end_ns - window.begin_ns) / 1e9
        passed = time.monotonic() - self._began
        self._tell(f"{passed:6.0f} s  {self._number:9,} jobs  {window.fault} ({lasted:.1f} s)")

    # -- jobs ------------------------------------------------------------------------------------

    def _some(self, count: int) -> range:
        self._number += count
        return range(self._number - count, self._number)

    def _burst(self, count: int) -> list[dict[str, Any]]:
        rows = [_row(number) for number in self._some(count)]
        if self._long_at < time.monotonic():
            self._long_at = time.monotonic() + self._plan.long_every_s
            rows[-1]["data"] = {"sleep": self._plan.long_s}
        return rows

    async def _add(self, rows: list[dict[str, Any]]) -> None:
        """Add until all are in. An answer that did not come is asked for again: ids are our own."""
        for row in rows:
            self._scene.ledger.attempted(str(row["job_id"]))
        while True:
            try:
                added = await self._queue.add_bulk(rows)
            except (UnconfirmedError, StoreUnavailableError):
                self._outcome.counts["unconfirmed"] += 1
                await asyncio.sleep(TICK_S)
                continue
            for job in added:
                self._scene.ledger.accepted(job.id)
            return

    # -- the end of a chapter --------------------------------------------------------------------

    def _rests(self) -> None:
        """Until all is done. A backlog may take its time, as long as it becomes less."""
        left, before = self._left(), -1
        while left and left != before:
            before = left
            with suppress(AssertionError):
                eventually(lambda: not self._left(), SILENCE_S, every=0.2)
            left = self._left()
        if left:
            raise AssertionError(f"nothing was done for {SILENCE_S:.0f} s: {self._state()}")

    def _left(self) -> int:
        """Counted, not listed: the server has better things to do."""
        keys, client = wire.Keys(QUEUE), self._scene.client
        return int(client.xlen(keys.stream)) + int(client.zcard(keys.delayed))

    def _state(self) -> str:
        return f"{self._left()} left\n{self._scene.fleet.errors[-1000:]}"

    def _settled(self) -> Quiet:
        """How everything is when nothing happens; what was kept for a moment is gone by then."""
        client, keys = self._scene.client, wire.Keys(QUEUE)
        crew = [one.pid for one in self._scene.workers]
        asked = self._outcome.quiet

        def calm() -> Quiet | None:
            now = look(client, keys, crew)
            is_calm = now.consumers == len(crew) and not now.results
            return now if is_calm and not (asked and worse(asked[0], now)) else None

        try:
            return eventually(calm, 30.0, every=0.25) or look(client, keys, crew)
        except AssertionError:
            return look(client, keys, crew)  # which is then judged as it is

    def _judge(self, windows: list[Window]) -> None:
        outcome, plan = self._outcome, self._plan
        try:
            self._rests()
        except AssertionError as error:
            outcome.problems.append(f"chapter {outcome.chapters}: I6 {error}")
        outcome.quiet.append(self._settled())
        outcome.problems += worse(outcome.quiet[0], outcome.quiet[-1])
        verdict = check(self._scene.ledger.path, scan(self._server.url, QUEUE))
        cut = sum(one.fault.startswith("worker") for one in windows)
        allowed = cut * (plan.concurrency + HELD)
        found = verdict.problems(duplicates_allowed=allowed, charged_only=True, max_attempts=25)
        outcome.problems += [f"chapter {outcome.chapters}: {one}" for one in found]
        outcome.counts.update(_figures(verdict))
        times = Times().tell(read(self._scene.ledger.path))
        outcome.recoveries += recoveries(times, windows)
        waits = calm_waits(times, windows, plan.lease_ms / 1000)
        outcome.calm += len(waits)
        outcome.waits_ms += waits[:: max(len(waits) // SAMPLE, 1)]
        self._tell(f"chapter {outcome.chapters}: {verdict}; quiet: {outcome.quiet[-1]}")

    def _forget(self) -> None:
        """Begin the ledger anew. All write at its end, wherever that is."""
        os.truncate(self._scene.ledger.path, 0)

    async def _by_hand(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._hands, act)


def _plain(number: int) -> dict[str, Any]:
    return {"name": "soak", "data": {"sleep": 0.002}, "job_id": f"job-{number}"}


def _row(number: int) -> dict[str, Any]:
    """One in ten is delayed, for up to two seconds: whenever the server dies it holds some. One in
    forty fails at first."""
    row = _plain(number)
    if number % 41 == 0:
        row["data"]["then"] = "fail"
    if number % 10 == 0:
        row |= {"job_id": f"{DELAYED}{number}", "delay_ms": 20 + number * 37 % 2_000}
    return row


def _figures(verdict: Verdict) -> dict[str, int]:
    return {
        "accepted": len(verdict.accepted),
        "completed": len(verdict.completed),
        "lost": len(verdict.lost),
        "duplicates": len(verdict.duplicated),
        "uncharged": len(verdict.uncharged),
        "overlaps": len(verdict.overlaps),
        "excused overlaps": len(verdict.excused),
        "dead": len(verdict.scan.dead),
    }
