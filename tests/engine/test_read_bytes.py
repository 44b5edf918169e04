"""Reads are bounded by bytes: large jobs come in smaller reads, small ones as ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from chasquimq import Job, QueueEvents
from chasquimq.store import walk
from tests.engine.desk import Desk, eventually
from tests.servers import DialectServer

LARGE = 500_000


@pytest.fixture
def desk(dialect_server: DialectServer, queue_name: str) -> Desk:
    return Desk(dialect_server, queue_name)


@contextmanager
def counts(desk: Desk, command: str) -> Iterator[list[int]]:
    """How many entries each such command on this queue was allowed to bring, once it is left."""
    found: list[int] = []
    with desk.server.client(decode_responses=True).monitor() as monitor:
        yield found
        desk.redis.echo("that is all")
        while "that is all" not in (told := str(monitor.next_command()["command"])):
            words = told.split()
            if words[0].upper() == command and desk.name in told:
                found.append(int(words[words.index("COUNT") + 1]))


async def test_a_worker_that_saw_large_jobs_reads_fewer_at_once(desk: Desk) -> None:
    ran: list[int] = []

    async def handler(job: Job) -> None:
        ran.append(len(job.data))
        await asyncio.sleep(0)

    with counts(desk, "XREADGROUP") as asked:
        async with desk.working(handler, read_count=200, concurrency=500):
            for at in range(40):
                desk.put(str(at), "x" * LARGE)
            await eventually(lambda: len(ran) == 40)
            for at in range(40, 80):
                desk.put(str(at), "x" * LARGE)
            await eventually(lambda: len(ran) == 80 and not desk.left())
    assert asked[0] == 200
    assert min(asked) >= 1 and asked[-1] <= 8_000_000 // LARGE


async def test_small_jobs_are_read_as_many_at_once_as_ever(desk: Desk) -> None:
    ran: list[str] = []

    async def handler(job: Job) -> None:
        ran.append(job.id)

    with counts(desk, "XREADGROUP") as asked:
        async with desk.working(handler, read_count=200, concurrency=500):
            for at in range(300):
                desk.put(str(at), "x")
            await eventually(lambda: len(ran) == 300)
    assert set(asked) == {200}


async def test_pages_of_the_dlq_are_bounded_by_bytes(desk: Desk) -> None:
    rows = 30
    for at in range(rows):
        desk.redis.xadd(desk.keys.dlq, {"d": b"x" * LARGE, "reason": "r", "source_id": f"{at}-0"})
    with counts(desk, "XRANGE") as pages:
        async with desk.queue() as queue:
            assert await queue.purge_dlq(everything=True) == rows
    assert len(pages) > 3 and max(pages) <= walk.PAGE_BYTES // LARGE


async def test_large_rows_of_the_dlq_among_small_ones_are_read_a_few_at_a_time(desk: Desk) -> None:
    """Pages of small ones in between do not make us forget how large others are."""
    for size in (*[1] * 300, *[LARGE] * 80):
        row = {"d": b"x" * 4 * size, "reason": "r", "source_id": "1-0"}
        desk.redis.xadd(desk.keys.dlq, row)  # type: ignore[arg-type]
    with counts(desk, "XRANGE") as pages:
        async with desk.queue() as queue:
            assert await queue.purge_dlq(everything=True) == 380
    assert max(pages) <= 32_000_000 // (4 * LARGE)


async def test_a_follower_of_large_events_reads_fewer_at_once(desk: Desk) -> None:
    """Our programs write short ones; others may write what they like."""
    for at in range(40):
        row = {"e": "failed", "id": str(at), "ts": "1", "reason": "x" * LARGE}
        desk.redis.xadd(desk.keys.events, row)  # type: ignore[arg-type]
    with counts(desk, "XREAD") as asked:
        async with QueueEvents(
            desk.name, redis_url=desk.server.url, last_event_id="0", count=100
        ) as events:
            assert [(await anext(events)).job_id for _ in range(40)] == [*map(str, range(40))]
    assert asked[0] == 10 and max(asked[1:]) <= walk.PAGE_BYTES // LARGE


async def test_a_follower_of_short_events_reads_as_many_as_it_was_told(desk: Desk) -> None:
    for at in range(250):
        desk.redis.xadd(desk.keys.events, {"e": "waiting", "id": str(at), "ts": "1"})
    with counts(desk, "XREAD") as asked:
        async with QueueEvents(desk.name, redis_url=desk.server.url, last_event_id="0") as events:
            for _ in range(250):
                await anext(events)
    assert asked[:3] == [10, 100, 100]
