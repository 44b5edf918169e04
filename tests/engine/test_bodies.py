"""A job whose entry was trimmed or deleted by somebody else, while it runs here."""

from __future__ import annotations

import asyncio

from chasquimq import BackoffSpec, Job, UnrecoverableError
from tests.engine.desk import Desk, eventually

LEASE = 300
FAST = BackoffSpec.fixed(1, jitter_ms=0)


async def test_it_is_neither_cancelled_nor_run_twice_and_is_retried_out_of_memory(
    desk: Desk,
) -> None:
    ran: list[tuple[str, int]] = []

    async def handler(job: Job) -> None:
        ran.append((job.id, job.attempt))
        if job.attempt == 0:
            desk.redis.xtrim(desk.keys.stream, maxlen=0, approximate=False)
            await asyncio.sleep(LEASE * 4 / 1000)  # renewed, and looked at by who would claim it
            raise ValueError("once")

    one = desk.working(handler, claim_min_idle_ms=LEASE, backoff=FAST)
    other = desk.working(handler, claim_min_idle_ms=LEASE, backoff=FAST)
    async with one, other:
        desk.put("trimmed")
        await eventually(lambda: len(ran) >= 2)
        await desk.settled()
    assert ran == [("trimmed", 0), ("trimmed", 1)]
    assert desk.dead() == [] and desk.pending() == []


async def test_it_is_buried_out_of_memory(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        desk.redis.xtrim(desk.keys.stream, maxlen=0, approximate=False)
        await asyncio.sleep(LEASE * 2 / 1000)
        raise UnrecoverableError("never")

    async with desk.working(handler, claim_min_idle_ms=LEASE):
        desk.put("trimmed")
        await eventually(desk.dead)
    assert [dead[b"job_id"] for dead in desk.dead()] == [b"trimmed"]
    assert desk.pending() == []


async def test_what_a_deadline_cuts_off_is_given_back_out_of_memory(desk: Desk) -> None:
    started = asyncio.Event()

    async def handler(job: Job) -> None:
        desk.redis.xtrim(desk.keys.stream, maxlen=0, approximate=False)
        started.set()
        await asyncio.sleep(60)

    async with desk.working(handler, drain_ms=50):
        desk.put("trimmed", {"a": 1}, "name")
        await started.wait()
    assert [(one.id, one.attempt) for one in desk.envelopes()] == [("trimmed", 1)]
    assert desk.pending() == []
