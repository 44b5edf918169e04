"""What it costs to fire specs, beside plain XADDs; and how late a short interval fires.

    .venv/bin/python bench/schedules.py           # under a minute; prints a page for bench/reports/

1. in each round specs of each kind are all due at once: a scheduler fires them. The same jobs are
   also just added, by as many XADDs in writes of the same size, which is the least it could cost;
2. one worker has ten specs of `every(100)`: first with nothing else to do, then with a full queue.
   Lateness is from the window to the server's time of the fire, and to the handler's start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from typing import NamedTuple

import redis

from chasquimq import Job, Queue, RepeatPattern, Worker, wire
from chasquimq.address import read_url
from chasquimq.config import ScheduleOptions
from chasquimq.engine.scheduler import Scheduler
from chasquimq.happening import Happening
from chasquimq.job import Envelope
from chasquimq.observe.memory import InMemorySink
from chasquimq.repeat import StoredSpec
from chasquimq.server import Server, find_server
from chasquimq.store import Dialer, Store
from chasquimq.store.resp import pack

KEYS = wire.Keys("bench")
NAME = "report"
DATA = wire.encode({"user": 42, "kind": "daily"})
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney")
PHASES = 10
TICKS_S = 8.0

KINDS: dict[str, Callable[[int], RepeatPattern]] = {
    "every hour": lambda n: RepeatPattern.every(3_600_000),
    "cron, UTC": lambda n: RepeatPattern.cron(f"{n % 60} {n % 24} * * *"),
    "cron, four zones": lambda n: RepeatPattern.cron(
        f"{n % 60} {n % 24} * * MON-FRI", tz=ZONES[n % 4]
    ),
}
PLAIN = "plain XADDs"


class Cost(NamedTuple):
    """Seconds for all of them."""

    took: float
    client: float
    server: float


async def opened(url: str) -> Store:
    store = Store(KEYS, Dialer(read_url(url)))
    await store.open()
    return store


async def fire(client: redis.Redis, url: str, count: int, kind: str) -> Cost:
    client.flushall()
    now_ms = int(time.time() * 1000)
    pipe = client.pipeline(transaction=False)
    for number in range(count):
        key = f"{NAME}-{number}"
        spec = StoredSpec(key=key, job_name=NAME, pattern=KINDS[kind](number), payload=DATA)
        pipe.hset(KEYS.spec(key), "spec", wire.pack_spec(spec))  # type: ignore[arg-type]
        pipe.zadd(KEYS.repeat, {key: now_ms - count + number})
    pipe.execute()
    store = await opened(url)
    scheduler = Scheduler(store, "bench", _unheard, ScheduleOptions(lock_ttl_s=60))
    meter = Meter(client)
    while await scheduler.tick() == 0.0:
        pass
    cost = meter.read()
    await store.close()
    added = client.xlen(KEYS.stream)
    # Of 10,000 patterns of the calendar some may come round just now.
    assert added == scheduler.fired >= count, (added, scheduler.fired)
    return cost


async def add(client: redis.Redis, url: str, count: int) -> Cost:
    client.flushall()
    store, batch = await opened(url), ScheduleOptions().batch
    pipe = await store.link.up()
    now_ms = int(time.time() * 1000)
    meter = Meter(client)
    for first in range(0, count, batch):
        rows = []
        for number in range(first, min(first + batch, count)):
            body = wire.pack_envelope(Envelope(f"{NAME}-{number}@{now_ms}", DATA, now_ms))
            rows.append(pack("XADD", KEYS.stream, "*", "d", body, "n", NAME))
        await pipe.ask(b"".join(rows), len(rows))
    cost = meter.read()
    await store.close()
    assert client.xlen(KEYS.stream) == count
    return cost


class Meter:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._before = self._now()

    def read(self) -> Cost:
        return Cost(*(now - then for now, then in zip(self._now(), self._before, strict=True)))

    def _now(self) -> Cost:
        cpu = self._client.info("cpu")
        server = float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
        return Cost(time.perf_counter(), time.process_time(), server)


async def lateness(url: str, jobs: int) -> tuple[list[float], list[float]]:
    """Of each fire, and of each handler's start, in ms; until the jobs are done, if there are."""
    started: list[float] = []
    sink = InMemorySink(limit=1_000_000)

    async def handler(job: Job) -> None:
        if job.name == NAME:
            started.append(time.time() * 1000 - int(job.id.rpartition("@")[2]))

    async with Queue("bench", redis_url=url) as queue:
        for first in range(0, jobs, 1_000):
            rows = [{"name": "job", "data": n} for n in range(first, first + 1_000)]
            await queue.add_bulk(rows)
        for phase in range(PHASES):
            every = RepeatPattern.every(100)
            await queue.upsert_repeatable_job(NAME, None, repeat=every, key=f"phase-{phase}")
            await asyncio.sleep(0.1 / PHASES)
        worker = Worker("bench", handler, redis_url=url, metrics=sink)
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            deadline = time.monotonic() + TICKS_S
            while sink.rollup().totals.completed < jobs or not jobs:
                await asyncio.sleep(0.1)
                if not jobs and time.monotonic() > deadline:
                    break
            await worker.close()
    return [float(fired.late_ms) for fired in sink.heard("spec_fired")], started


def percentiles(values: list[float]) -> list[str]:
    ranked = sorted(values)
    return [f"{ranked[min(len(ranked) - 1, int(len(ranked) * p))]:.1f}" for p in (0.5, 0.95, 0.99)]


def page(rounds: list[dict[str, Cost]], count: int, late: list[list[str]]) -> list[str]:
    lines = [
        f"# {datetime.now(UTC):%Y-%m-%d}-schedules",
        "",
        f"{count:,} specs that are due at once, fired by one scheduler; median of {len(rounds)}",
        "rounds. A ratio is to the plain XADDs of the same round: the same jobs in writes of the",
        "same size, without a spec that is read, checked and moved. Ratios are what counts.",
        "",
        "| what | time | client CPU | server CPU | us per fire: time | client | server |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for kind in (PLAIN, *KINDS):
        ratios = [
            f"{median(one[kind][at] / one[PLAIN][at] for one in rounds):.1f}x" for at in range(3)
        ]
        each = [f"{median(one[kind][at] for one in rounds) / count * 1e6:.0f}" for at in range(3)]
        lines.append(f"| {' | '.join([kind, *ratios, *each])} |")
    lines += [
        "",
        f"How late `every(100)` is, in ms: {PHASES} specs, one worker, events on. In a full queue",
        "a job starts when those before it are done, however soon it was fired.",
        "",
        "| the worker | until | windows | p50 | p95 | p99 |",
        "|---|---|---:|---:|---:|---:|",
        *(f"| {' | '.join(row)} |" for row in late),
    ]
    busy = f"load average while it ran: {os.getloadavg()[0]:.1f}, of which 1 to 2 are its own"
    return [*lines, "", f"- machine: {os.cpu_count()} cores; {busy}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--specs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=100_000)
    told = parser.parse_args()
    binary = find_server(kind="redis", at_least=(8, 6, 2))
    rounds, late = [], []
    with Server(binary) as server, redis.Redis.from_url(server.url) as client:
        for _ in range(told.rounds):
            one = {PLAIN: asyncio.run(add(client, server.url, told.specs))}
            for kind in KINDS:
                one[kind] = asyncio.run(fire(client, server.url, told.specs, kind))
            rounds.append(one)
        for state, jobs in (("idle", 0), (f"drains {told.jobs:,} jobs", told.jobs)):
            client.flushall()
            fired, started = asyncio.run(lateness(server.url, jobs))
            for until, values in (("the fire", fired), ("the handler starts", started)):
                late.append([state, until, str(len(values)), *percentiles(values)])
    print("\n".join(page(rounds, told.specs, late)))
    print(f"- server: redis {'.'.join(map(str, binary.version))}")
    print("- command: python bench/schedules.py")


def _unheard(happening: Happening) -> None:
    pass


if __name__ == "__main__":
    main()
