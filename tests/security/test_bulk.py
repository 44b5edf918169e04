"""What a bulk takes in memory: so much for each job, however many there are."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from tests.engine.desk import Desk
from tests.servers import DialectServer

FEW, MANY = 2_000, 20_000
MOST_BYTES = 1_280  # for each job; what the caller gives and is given takes half of it
OPTIONS = {"plain": {}, "optioned": {"attempts": 3}}


@pytest.fixture
def desk(dialect_server: DialectServer, queue_name: str) -> Desk:
    return Desk(dialect_server, queue_name)


async def taken(desk: Desk, count: int, options: dict[str, Any]) -> float:
    """Bytes at the peak, for each job."""
    async with desk.queue() as queue:
        await queue.add("first", None)
        tracemalloc.start()
        try:
            jobs = [{"name": "n", "data": {"user": user}, **options} for user in range(count)]
            await queue.add_bulk(jobs)
            return tracemalloc.get_traced_memory()[1] / count
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("kind", OPTIONS)
async def test_a_large_bulk_takes_no_more_for_a_job_than_a_small_one(desk: Desk, kind: str) -> None:
    few = await taken(desk, FEW, OPTIONS[kind])
    many = await taken(desk, MANY, OPTIONS[kind])
    assert many < few * 1.1 and many < MOST_BYTES, (few, many)
