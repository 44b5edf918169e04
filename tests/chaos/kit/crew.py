"""Processes that fire the specs of one queue, and what is done to the one that leads.

Who leads is what the lock says. A pause lasts until another leads and has fired for a while; a
kill is followed by a newcomer. In both cases the one that leads is in the middle of firing, unless
it is caught `anywhere`. Twins go by one name, so that no lock tells them apart and both lead.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.chaos.kit.fleet import Fleet, Orders, Process
from tests.chaos.kit.gate import open_gate
from tests.chaos.kit.ledger import Ledger, read, tally
from tests.chaos.kit.ticker import order_file
from tests.chaos.kit.wait import eventually
from tests.chaos.kit.windows import EVERY_WINDOW, Kind, Line, Windows, id_of, kinds

TICKER = "tests.chaos.kit.ticker"
BEFORE, SENT, ANYWHERE = "before", "sent", "anywhere"
PLACES = (BEFORE, SENT, BEFORE, ANYWHERE)
SOME = 8  # fires that another has made when one that was stopped wakes up
EVERY_S = 0.01


class Crew:
    def __init__(self, url: str, dialect: str | None, queue: str, fleet: Fleet) -> None:
        self.pauses = self.kills = 0
        self.client: Any = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0))
        self.windows = Windows(url, queue, dialect, self.client)
        self.keys = self.windows.keys
        self._fleet = fleet
        self._told: dict[str, Any] = {"url": url, "queue": queue, "dialect": dialect}
        self._members: dict[Process, tuple[str, bool]] = {}  # its name, whether it works
        self._lasting: list[Kind] = []
        self._passing: Kind | None = None
        self._passed = 0

    @property
    def ledger(self) -> Ledger:
        return self._fleet.ledger

    def begin(
        self, seconds: int, schedulers: int = 2, workers: int = 1, *, twins: bool = False
    ) -> None:
        """Write the specs and start the processes; those specs that end do so after so long."""
        some = kinds(seconds)
        self._lasting = [kind for kind in some if kind.lasting]
        asyncio.run(self.windows.write(*some))
        works = [False] * schedulers + [True] * workers
        self._start([("twin" if twins else f"m-{n}", one) for n, one in enumerate(works)])

    def _start(self, members: list[tuple[str, bool]]) -> None:
        orders = [
            Orders(
                ledger=str(self.ledger.path),
                consumer_id=name,
                max_attempts=1_000_000,  # jobs change hands as often as their workers stop
                options={"works": works},
                **self._told,
            )
            for name, works in members
        ]
        started = self._fleet.start_many(orders, module=TICKER)
        self._members.update(zip(started, members, strict=True))

    # -- faults ----------------------------------------------------------------------------------

    def pause(self, where: str, meanwhile: Callable[[], None] | None = None) -> None:
        """Stop the one that leads, there, until its lock has expired and another has fired."""
        one = self._stopped(where)
        if meanwhile is not None:
            meanwhile()
        self._another_fires(one)
        one.resume()
        self.pauses += 1

    def kill(self, where: str) -> None:
        """kill -9 of the one that leads, there; another takes its place, and writes specs anew."""
        one = self._stopped(where)
        self._fleet.kill(one)
        self.kills += 1
        name, works = self._members.pop(one)
        self._start([(name if name == "twin" else f"n-{self.kills}", works)])
        asyncio.run(self.windows.write(*self._lasting))
        self.fires_on()

    def pass_by(self) -> Callable[[], None] | None:
        """In turns: write a spec; answer what removes it."""
        if self._passing is None:
            self._passed += 1
            self._passing = Kind("passing", self._passed, 50, EVERY_WINDOW)
            asyncio.run(self.windows.write(self._passing))
            return None
        kind, self._passing = self._passing, None
        return lambda: asyncio.run(self.windows.remove(kind))

    def leader(self) -> str | None:
        try:
            held = self.client.get(self.keys.scheduler_lock)
        except redis.ConnectionError:
            return None
        return None if held is None else str(held.decode())

    def fires_on(self, count: int = SOME) -> None:
        """Wait until some more have been fired."""
        before = eventually(self._length, every=EVERY_S)
        eventually(lambda: self._length() >= before + count, every=EVERY_S, or_say=self.state)

    def state(self) -> str:
        who = f"lock: {self.leader()}, members: {list(self._members.values())}"
        return f"{who}\n{self._fleet.errors[-2000:]}"

    def _length(self) -> int:
        try:
            return int(self.client.xlen(self.keys.stream))
        except redis.ConnectionError:
            return 0

    def _stopped(self, where: str) -> Process:
        """Stop the one that leads, or one of them."""
        stops = self._stops_anywhere if where == ANYWHERE else lambda: self._stops(where)
        one = eventually(stops, or_say=self.state)
        assert one is not None
        return one

    def _stops_anywhere(self) -> Process | None:
        time.sleep(random.random() / 10)
        name = self.leader()
        for one in self._named(name)[:1]:
            one.pause()
            if self.leader() == name:
                return one
            one.resume()
        return None

    def _stops(self, where: str) -> Process | None:
        name = eventually(self.leader, every=EVERY_S) or ""
        order = order_file(self.ledger.path, name, where)
        order.touch()
        try:
            return eventually(lambda: self._stopped_one(name), 3.0, every=EVERY_S)
        except AssertionError:  # another has come to lead in this moment
            order.unlink(missing_ok=True)
            return self._stopped_one(name)

    def _stopped_one(self, name: str) -> Process | None:
        return next((one for one in self._named(name) if is_stopped(one)), None)

    def _named(self, name: str | None) -> list[Process]:
        return [one for one, (its, _) in self._members.items() if its == name]

    def _another_fires(self, one: Process) -> None:
        def another() -> bool:
            return any(it is not one for it in self._named(self.leader()))

        eventually(another, every=EVERY_S, or_say=self.state)
        self.fires_on()

    # -- the end ---------------------------------------------------------------------------------

    def account(self) -> dict[str, Line]:
        """What became of all windows, once those specs that end have ended."""
        if self._passing is not None and (remove := self.pass_by()):
            remove()
        eventually(self.windows.are_over, 300.0, every=0.1, or_say=self.state)
        self.fires_on()
        return self.windows.account()

    def close(self) -> None:
        self.client.close()

    def refused(self) -> int:
        """How many fires came too late and did nothing."""
        return tally(self.ledger.path)["refused"]

    def run_all(self) -> tuple[set[str], set[str]]:
        """Let the handlers run what was fired; answers the jobs, and those that were done."""
        for kind in self._lasting:
            asyncio.run(self.windows.remove(kind))
        bodies = [fields[b"d"] for _, fields in self.client.xrange(self.keys.stream)]
        jobs = {id_of(body) for body in bodies}
        open_gate(self.ledger.path, "over")
        eventually(lambda: not self._length(), 30.0, or_say=self.state)
        return jobs, {fact.job for fact in read(self.ledger.path) if fact.event == "end"}


def is_stopped(process: Process) -> bool:
    """Whether it has come to a stop since last asked."""
    return os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG) is not None
