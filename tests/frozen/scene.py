"""A queue that has been used in every way: jobs in every state, every event, every dead letter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chasquimq import BackoffSpec, Job, Queue, RepeatPattern, UnrecoverableError, Worker
from tests.engine.desk import Desk, eventually

HOUR_MS = 3_600_000
FAR_MS = 4_000_000_000_000
CARRIER = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Tracer:
    """Sends a carrier along with each job."""

    carrier = CARRIER

    def sending(self, batch: Any) -> Tracer:
        return self

    def sent(self, ids: Sequence[str], duplicates: int, errors: Sequence[BaseException]) -> None:
        pass

    def failed(self, error: BaseException) -> None:
        pass

    def running(self, run: Any) -> Any:
        raise NotImplementedError("only producers are given this tracer")


async def add_jobs(desk: Desk) -> None:
    """Add jobs in every way. Their ids begin with `id-`, the keys of specs with `key-`."""
    async with desk.queue(waiting_events=True) as queue:
        await queue.add("takes-long", {"n": 1})
        await queue.add("", {"n": 2}, job_id="id-unnamed")
        await queue.add("dies", {"n": 3}, attempts=1, backoff=1000, job_id="id-died")
        await queue.add("gives-up", {"n": 4}, backoff=BackoffSpec.exponential(1000))
        await queue.add("retries", {"n": 5}, attempts=2, backoff=HOUR_MS, job_id="id-retries")
        await queue.add("works", {"n": 6}, job_id="id-done", unique="until_done")
        await queue.add("works", {"n": 7}, job_id="id-once", unique_for=60)
        await queue.add("large", "x" * 2000)
        await queue.add("later", {"n": 8}, delay_ms=HOUR_MS)
        await queue.add("later", {"n": 9}, delay_ms=HOUR_MS, job_id="id-later")
        await queue.add("later", {"n": 10}, delay_ms=1, job_id="id-soon")
        await add_specs(queue)
    async with desk.queue(tracing=Tracer()) as queue:
        await queue.add("works", {"n": 11})
        await queue.add("works", {"n": 12}, job_id="id-traced", unique="until_done")
    async with desk.queue(durability="local") as queue:
        await queue.add("works", {"n": 13})


async def add_specs(queue: Queue) -> None:
    every = RepeatPattern.every(HOUR_MS)
    cron = RepeatPattern.cron("0 4 * * *", tz="Europe/Berlin")
    fire_all = {"kind": "fire-all", "max_catchup": 2}
    await queue.upsert_repeatable_job(
        "tick", {"n": 1}, repeat=every, key="key-tick", attempts=3, backoff=1000
    )
    await queue.upsert_repeatable_job(
        "tock", {}, repeat=cron, key="key-paused", limit=5, start_after_ms=1, end_before_ms=FAR_MS
    )
    await queue.upsert_repeatable_job(
        "tack", None, repeat=every, key="key-late", missed_fires=fire_all
    )
    await queue.pause_repeatable("key-paused")


def leave_strange_entries(desk: Desk) -> None:
    """Entries of other programs that cannot be run."""
    desk.redis.xadd(desk.keys.stream, {"field": "value"})
    desk.put_raw(b"\xc1", b"unreadable")


def make_late(desk: Desk) -> None:
    """Have two specs be due, one of them for so long that it has to catch up."""
    now_ms = desk.redis.time()[0] * 1000
    desk.redis.zadd(desk.keys.repeat, {"key-tick": now_ms, "key-late": now_ms - 9 * HOUR_MS})


@asynccontextmanager
async def working(desk: Desk) -> AsyncIterator[Worker]:
    """Have a worker run everything that can be run. The block begins when only one job still runs,
    and the worker has written down for how long; that job ends with the block."""
    go_on = asyncio.Event()

    async def handle(job: Job) -> Any:
        if job.name == "dies":
            raise ValueError("dies")
        if job.name == "gives-up":
            raise UnrecoverableError("gives up")
        if job.name == "retries":
            raise OSError("retries")
        if job.name == "takes-long":
            await go_on.wait()
        return job.data

    worker = desk.worker(
        handle,
        store_results=True,
        claim_min_idle_ms=600,
        max_payload_bytes=1000,
        scheduler_tick_ms=10,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        try:
            await eventually(lambda: len(desk.dead()) == 5 and desk.delayed() == 3)
            await eventually(lambda: desk.waiting() == 1)
            await eventually(lambda: b"=" in b"".join(desk.redis.hvals(desk.keys.started)))
            yield worker
            go_on.set()
            await eventually(lambda: desk.waiting() == 0)
        finally:
            await worker.close()


async def leave_jobs(desk: Desk) -> None:
    """Have one job run on a worker that is silent, and another wait."""
    async with desk.queue() as queue:
        await queue.add("works", {"n": 14}, job_id="id-runs")
        desk.abandon(1, "c-silent")
        await queue.add("works", {"n": 15}, job_id="id-waits")


async def care_for(desk: Desk, folder: Path) -> None:
    """What operators do: pause, change delayed jobs, carry dead ones elsewhere and back."""
    async with desk.queue() as queue:
        await queue.reschedule("id-later", delay_ms=2 * HOUR_MS)
        await queue.pause("deploy")
        await queue.export_dlq(folder / "dead.jsonl")
        await queue.purge_dlq(everything=True)
        await queue.import_dlq(folder / "dead.jsonl")
