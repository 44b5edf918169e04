"""Looking at dead jobs, and bringing them back."""

from __future__ import annotations

import asyncio

import pytest

from chasquimq import BackoffSpec, Job, UnrecoverableError, wire
from chasquimq.job import Envelope, RetryOverride
from tests.engine.desk import Desk


async def bury(desk: Desk, count: int) -> list[str]:
    async def handler(job: Job) -> None:
        raise UnrecoverableError(f"no {job.data}")

    async with desk.queue() as queue, desk.working(handler, concurrency=1):
        backoff = BackoffSpec("fixed", 9)
        jobs = [{"name": "bad", "data": n, "attempts": 5, "backoff": backoff} for n in range(count)]
        added = await queue.add_bulk(jobs)
        await desk.settled()
    return [job.id for job in added]


async def test_peek_shows_the_oldest_and_why_they_died(desk: Desk) -> None:
    ids = await bury(desk, 5)
    async with desk.queue() as queue:
        assert await queue.peek_dlq(0) == []
        rows = await queue.peek_dlq(3)
    assert [row["job_id"] for row in rows] == ids[:3]
    first = rows[0]
    assert first["dlq_id"] == desk.redis.xrange(desk.keys.dlq)[0][0].decode()
    assert (first["name"], first["reason"], first["detail"]) == ("bad", "unrecoverable", None)
    assert (first["error_type"], first["error"]) == ("UnrecoverableError", "no 0")
    assert first["attempt"] == 1
    assert wire.unpack_envelope(first["payload"]).id == ids[0]
    assert first["source_id"].count("-") == 1


async def test_replay_gives_fresh_attempts_and_keeps_everything_else(desk: Desk) -> None:
    ids = await bury(desk, 3)
    async with desk.queue() as queue:
        assert await queue.replay_dlq(2) == 2
        assert await queue.replay_dlq() == 1
        assert await queue.replay_dlq() == 0
    envelopes = desk.envelopes()
    assert [envelope.id for envelope in envelopes] == ids
    assert {envelope.attempt for envelope in envelopes} == {0}
    assert envelopes[0].retry == RetryOverride(5, BackoffSpec("fixed", 9))
    assert [fields[b"n"] for _, fields in desk.redis.xrange(desk.keys.stream)] == [b"bad"] * 3
    assert desk.dead() == []


async def test_replay_passes_what_cannot_be_read(desk: Desk) -> None:
    for number in range(250):
        desk.redis.xadd(desk.keys.dlq, {"d": b"\xc1", "source_id": f"{number}-0", "reason": "x"})
    body = wire.pack_envelope(Envelope("good", b"\xc0", 1, attempt=3))
    desk.redis.xadd(desk.keys.dlq, {"d": body, "source_id": "1-1", "reason": "x"})
    async with desk.queue() as queue:
        assert await queue.replay_dlq(1) == 1
        assert await queue.replay_dlq(1) == 0
    assert [envelope.id for envelope in desk.envelopes()] == ["good"]
    assert len(desk.dead()) == 250


async def test_two_operators_replay_each_job_once(desk: Desk) -> None:
    ids = await bury(desk, 300)
    async with desk.queue() as one, desk.queue() as other:
        moved = await asyncio.gather(one.replay_dlq(300), other.replay_dlq(300))
    assert sum(moved) == 300
    assert sorted(envelope.id for envelope in desk.envelopes()) == sorted(ids)


async def test_the_dlq_is_trimmed_only_when_asked_for(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(job: Job) -> None:
        raise UnrecoverableError("no")

    async with desk.queue() as queue:
        jobs = [{"name": "n", "data": n} for n in range(400)]
        async with desk.working(handler, dlq_max_stream_len=50):
            await queue.add_bulk(jobs)
            await desk.settled()
        assert len(desk.dead()) == 400
        assert "more than dlq_max_stream_len=50" in caplog.text
        async with desk.working(handler, dlq_max_stream_len=50, dlq_on_full="trim"):
            await queue.add_bulk(jobs)
            await desk.settled()
        assert 50 <= len(desk.dead()) < 400
