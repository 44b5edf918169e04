"""What every measured process shares: its orders, its clock, and how it answers.

    python bench/peers/<peer>.py '<orders as JSON>'
    python bench/peers/<peer>.py @<file with orders as JSON>      if a large payload is among them

A child imports, connects, fills its queue and warms up, says `ready`, waits for a line, measures,
and answers with one line of JSON. What it cannot do it says: `{"cannot": "<why>"}`. This file
imports nothing but the standard library: it runs in the environment of every peer.

what        what is timed
worker      the queue is full already; from the start of the handler on the job at 10 %, past the
            last one, until the peer's keys in Redis hold no job any more, so acks count
add         `jobs` calls, one awaited after the other
concurrent  `size` calls at a time, again and again, until `jobs` are in; a task for each call
callers     `size` tasks, each of which awaits one call after the other
bulk        calls of `size` jobs each, one awaited after the other
latency     an idle worker and a producer: one job each 10 ms, from the call of add to the start of
            the handler; answers `ms`, one figure a job
retry       as worker; each job fails at its first run and succeeds at its second, which follows as
            soon as the peer knows how to. The clock starts at 10 % of all runs; a job counts once
delayed     all jobs were added for one moment, which is to come; from that moment, for all jobs,
            until nothing is left, so what the peer starts late counts
punctual    jobs for moments spread over some seconds; answers `ms`, how late each started
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

GIVE_UP_S = 120.0
GAP_S = 0.010  # between two jobs of `latency`
RESULT = {"sent": True, "to": "some@example.com"}  # of a handler that returns one


@dataclass
class Orders:
    what: str
    url: str  # with the number of a database that is this run's alone
    queue: str = "bench"
    jobs: int = 1000
    size: int = 1  # jobs of one call, or calls at a time
    payload: Any = None
    concurrency: int = 100
    handler: str = "noop"  # "sleep": suspends for 1 ms; "def": a plain function; "result": returns
    spread_ms: int = 3000  # of `punctual`
    uvloop: bool = False
    options: dict[str, Any] = field(default_factory=dict)


class CannotError(Exception):
    """The peer has no such thing."""


class Clock:
    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()  # of all threads, and of nothing but this process

    def result(self, jobs: float) -> dict[str, float]:
        seconds, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {"rate": jobs / seconds, "seconds": seconds, "cpu_per_100k": cpu / jobs * 1e5}


class Tally:
    """Counts starts of handlers; its clock runs from the one at 10 %. Threads may share it."""

    def __init__(self, jobs: int, runs: int = 1) -> None:
        self.jobs = jobs
        self.runs = runs  # of each job: 2 where the first one fails
        self.starts = jobs * runs
        self.first = max(self.starts // 10, 1)
        self.clock: Clock | None = None
        self._numbers = itertools.count(1)
        self._all = threading.Event()
        self.handled = 0

    def begin(self) -> None:
        """Start the clock now, and let every job count."""
        self.first = 0
        self.clock = Clock()

    def hit(self) -> None:
        self.handled = number = next(self._numbers)
        if number == self.first:
            self.clock = Clock()
        if number == self.starts:
            self._all.set()

    def wait(self) -> None:
        if not self._all.wait(GIVE_UP_S):
            raise RuntimeError(f"{self.handled} of {self.starts} runs began in {GIVE_UP_S} s")

    async def wait_soon(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.wait)

    def result(self, left: Callable[[], int]) -> dict[str, Any]:
        """Waits until nothing is left in Redis, then stops the clock."""
        give_up = time.monotonic() + GIVE_UP_S
        while count := left():
            _still(count, give_up)
            time.sleep(0.001)
        return self._answer()

    async def result_soon(self, left: Callable[[], Awaitable[int]]) -> dict[str, Any]:
        """`result` for those whose worker needs the event loop meanwhile."""
        give_up = time.monotonic() + GIVE_UP_S
        while count := await left():
            _still(count, give_up)
            await asyncio.sleep(0.001)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.clock is not None
        result = self.clock.result((self.starts - self.first) / self.runs)
        # Two threads may have written `handled` in the wrong order; the count itself is right.
        return {**result, "handled": (next(self._numbers) - 1) / self.runs}


def _still(count: int, give_up: float) -> None:
    if time.monotonic() > give_up:
        raise RuntimeError(f"{count} jobs are left in Redis")


def ready() -> None:
    """Say that everything is ready, and wait for the starting signal."""
    print("ready", flush=True)
    sys.stdin.readline()


async def ready_soon() -> None:
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def calls_of(orders: Orders) -> tuple[int, int]:
    """How many calls make up the jobs of a producer, and how many warm it up before."""
    return max(orders.jobs // orders.size, 1), max(200 // orders.size, 2)


def added(clock: Clock, orders: Orders) -> dict[str, Any]:
    """The answer of a producer."""
    calls, warm_up = calls_of(orders)
    return {**clock.result(calls * orders.size), "added": (calls + warm_up) * orders.size}


def lead_s(orders: Orders) -> float:
    """How long before the first of its moments a child begins to add its delayed jobs."""
    return 2.0 + orders.jobs / 2000


def pause_s(moment: float) -> float:
    """How long it is until then, in time since 1970. Past is too late: jobs were due before."""
    pause = moment - time.time()
    if pause < 0:
        raise RuntimeError(f"adding took {-pause:.1f} s longer than the jobs were to wait")
    return pause


def now_ms() -> float:
    """The same clock in all processes of a machine."""
    return time.monotonic_ns() / 1e6


def serve(run: Callable[[Orders], dict[str, Any]], packages: tuple[str, ...]) -> None:
    """The main programme of a child."""
    told = sys.argv[1]
    given = json.loads(Path(told[1:]).read_text() if told.startswith("@") else told)
    known = {one.name for one in fields(Orders)}
    orders = Orders(**{name: value for name, value in given.items() if name in known})
    try:
        answer(run(orders), packages)
    except CannotError as error:
        answer({"cannot": str(error)}, packages)


def answer(result: dict[str, Any], packages: tuple[str, ...]) -> None:
    """Print it and be gone: a worker's goodbye is not what is measured here."""
    result["rss_mb"] = _peak_mb()
    result["packages"] = dict(_installed(packages))
    print(json.dumps(result), flush=True)
    os._exit(0)


def _peak_mb() -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(peak) / 1024


def _installed(packages: tuple[str, ...]) -> list[tuple[str, str]]:
    found = []
    for package in packages:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            pass
    return found
