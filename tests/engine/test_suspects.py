"""Suspects, and workers that have no place for them."""

from __future__ import annotations

import asyncio

from chasquimq import Job, Worker
from chasquimq.engine.consumer import Consumer
from tests.engine.desk import Desk, eventually

LEASE = 300


def owners(desk: Desk) -> list[bytes]:
    return [row["consumer"] for row in desk.pending()]


async def has_looked(worker: Worker) -> Consumer:
    """Wait until it has looked for a free place since it took its first job. Until then its place
    seems to turn over."""
    await eventually(lambda: worker._consumer and worker._consumer.holdings._turned_at == 1)
    assert worker._consumer is not None
    return worker._consumer


async def test_a_worker_without_a_free_place_leaves_suspects_to_others(desk: Desk) -> None:
    over, seen = asyncio.Event(), []

    async def long(job: Job) -> None:
        await over.wait()

    async def handler(job: Job) -> None:
        seen.append(f"{job.id} {job.attempt}")

    options = {"claim_min_idle_ms": LEASE, "concurrency": 1}
    desk.put("long")
    async with desk.working(long, consumer_id="busy", **options) as busy:
        await has_looked(busy)
        desk.put("left")
        desk.abandon(1, "dead")
        await asyncio.sleep(LEASE * 4 / 1000)  # time enough to claim it
        assert owners(desk) == [b"busy", b"dead"]
        async with desk.working(handler, **options):
            await eventually(lambda: seen)
            over.set()
            await desk.settled()
    assert seen == ["left 1"]


async def test_a_suspect_that_cannot_start_goes_back_with_its_count(desk: Desk) -> None:
    """Its places were turning over when it was claimed, and then all were taken for long."""
    over, seen = asyncio.Event(), []

    async def handler(job: Job) -> None:
        seen.append(f"{job.id} {job.attempt}")
        if job.id == "long":
            await over.wait()

    async def other(job: Job) -> None:
        seen.append(f"{job.id} {job.attempt}")

    options = {"claim_min_idle_ms": LEASE, "concurrency": 1}
    desk.put("long")
    async with desk.working(handler, consumer_id="busy", **options) as busy:
        consumer = await has_looked(busy)
        desk.put("left")
        desk.abandon(1, "dead", deliveries=2)
        await eventually(lambda: busy.health().suspects == 1)
        # As if one of its places had become free a moment before.
        consumer.holdings._turned_at -= 1
        await eventually(lambda: busy.health().counters.given_back == 1)
        assert busy.health().held == 1
        async with desk.working(other, **options):
            await eventually(lambda: len(seen) == 2)
            over.set()
            await desk.settled()
    assert seen == ["long 0", "left 2"]


async def test_new_jobs_are_shared_while_a_suspect_takes_long(desk: Desk) -> None:
    over, seen = asyncio.Event(), []

    async def handler(job: Job) -> None:
        seen.append(job.id)
        if job.id in ("left", "long"):
            await over.wait()

    desk.put("left")
    desk.abandon(1, "dead")
    async with desk.working(handler, claim_min_idle_ms=LEASE, concurrency=2) as worker:
        await eventually(lambda: seen == ["left"])
        desk.put("long")
        await eventually(lambda: seen == ["left", "long"])
        consumer = worker._consumer
        assert consumer is not None
        entry_id = desk.put("ahead")  # read ahead, as if its handlers had been fast before
        desk.redis.xreadgroup("default", consumer.reader._jobs.consumer, {desk.keys.stream: ">"})
        [fields] = [row[1] for row in desk.redis.xrange(desk.keys.stream, entry_id, entry_id)]
        flat = [part for pair in fields.items() for part in pair]
        consumer.holdings.take([[entry_id, flat]])
        await eventually(lambda: worker.health().counters.given_back == 1)
        over.set()
        await desk.settled()
    assert seen == ["left", "long", "ahead"]
