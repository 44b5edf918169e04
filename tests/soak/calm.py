"""A soak without faults: a worker under as much load as it bears, and whether anything grows."""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import redis

from chasquimq import Queue, wire
from tests.chaos.kit.fleet import Process, environment
from tests.soak.load import CONCURRENCY
from tests.soak.quiet import body

QUEUE = "soak"
KINDS = ["quick"] * 80 + ["plain"] * 8 + ["suspends"] * 8 + ["fails-first"] * 3 + ["too-long"]
BURST = 200
FEW_KEYS = 5
WARM_UP = 0.25  # of the whole: caches fill, arenas settle


class Sample(NamedTuple):
    """What may not grow. Redis's memory is without what it keeps of clients and commands."""

    rss_kb: int
    handles: int
    threads: int
    clients: int
    keys: int
    consumers: int
    events: int
    dataset_kb: int


class Outcome(NamedTuple):
    jobs: int
    seconds: float
    samples: list[Sample]
    left: dict[str, int]

    def growth(self) -> dict[str, float]:
        """From the first to the last third of what came after the warm-up, by medians."""
        steady = self.samples[int(len(self.samples) * WARM_UP) :]
        third = max(len(steady) // 3, 1)
        first, last = steady[:third], steady[-third:]
        return {
            name: statistics.median(row[place] for row in last)
            - statistics.median(row[place] for row in first)
            for place, name in enumerate(Sample._fields)
        }


def look(pid: int, client: redis.Redis, keys: wire.Keys) -> Sample:
    memory = client.info("memory")
    dataset = int(memory["used_memory"]) - int(memory["mem_clients_normal"])
    return Sample(
        *body(pid),
        clients=len(client.client_list()),
        keys=int(client.dbsize()),
        consumers=len(client.xinfo_consumers(keys.stream, "default")),
        events=int(client.xlen(keys.events)),
        dataset_kb=dataset // 1024,
    )


async def soak(
    url: str,
    dialect: str | None,
    seconds: float,
    progress: Callable[[str], None],
    *,
    rate: float = 0.0,
    memory: Sequence[str] = (),
) -> Outcome:
    """Load a worker of its own process for so long; then wait until it has done everything.
    `rate`: jobs per second, 0 for as many as it can do. `memory`: a file in which it notes where
    its memory goes, and perhaps "trace"."""
    keys, client = wire.Keys(QUEUE), redis.Redis.from_url(url)
    added, samples = 0, []
    with ExitStack() as stack:
        stack.callback(client.close)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        command = [sys.executable, "-m", "tests.soak.load", url, QUEUE, dialect or "", *memory]
        worker = Process(command, Path(folder) / "stderr", environment(ours=True))
        stack.callback(worker.kill)
        worker.wait_ready()
        async with Queue(QUEUE, redis_url=url, dialect=dialect) as queue:  # type: ignore[arg-type]
            await queue.add_bulk([{"name": "fills-a-thread", "data": None}] * 3 * CONCURRENCY)
            while client.xlen(keys.stream):
                assert worker.is_alive, worker.errors
                await asyncio.sleep(0.05)
            began = time.monotonic()
            next_look = began + 1
            while (elapsed := time.monotonic() - began) < seconds:
                due = rate == 0 or added < elapsed * rate
                if due and int(client.xlen(keys.stream)) < 5 * BURST:
                    await queue.add_bulk(_burst(added))
                    added += BURST
                else:
                    await asyncio.sleep(0.005)
                if time.monotonic() >= next_look:
                    next_look += max(seconds / 200, 0.1)
                    samples.append(look(worker.pid, client, keys))
                    progress(f"{elapsed:5.0f} s  {added:9,} jobs  {samples[-1]}")
                assert worker.is_alive, worker.errors
            deadline = time.monotonic() + 30
            while any(_left(client, keys).values()) and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
        left = _left(client, keys)
    return Outcome(added, time.monotonic() - began, samples, left)


def _burst(first: int) -> list[dict[str, object]]:
    """Some of everything; one in fifty is delayed a little."""
    jobs: list[dict[str, object]] = []
    for number in range(first, first + BURST):
        job: dict[str, object] = {"name": KINDS[number * 7 % len(KINDS)], "data": {"n": number}}
        if number % 50 == 0:
            job["delay_ms"] = 20
        jobs.append(job)
    return jobs


def _left(client: redis.Redis, keys: wire.Keys) -> dict[str, int]:
    return {
        "waiting or delayed": int(client.xlen(keys.stream)) + int(client.zcard(keys.delayed)),
        "pending": int(client.xpending(keys.stream, "default")["pending"]),
        "dead": int(client.xlen(keys.dlq)),
        # Results are gone after two seconds. What stays: stream, events, a lock or two.
        "keys": max(int(client.dbsize()) - FEW_KEYS, 0),
    }


def judge(outcome: Outcome) -> list[str]:
    """What grew that may not, and what was left undone."""
    limits = {
        "rss_kb": 2_048.0,
        "handles": 2.0,
        "threads": 4.0,
        "clients": 1.0,
        "consumers": 0.0,
        "events": 1_000.0,
        "dataset_kb": 4_096.0,
    }
    grown = outcome.growth()
    problems = [
        f"{name} grew by {grown[name]:.1f}, more than {limit:.1f}"
        for name, limit in limits.items()
        if grown[name] > limit
    ]
    return problems + [f"{what}: {count} left" for what, count in outcome.left.items() if count]
