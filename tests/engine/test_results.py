"""Results as a Queue reads them: what is there, what is not, and what nobody can read."""

from __future__ import annotations

from typing import Any

import pytest

from chasquimq import ArgumentError, ConfigError, Job, Queue, WireError, wire
from tests.engine.desk import Desk

VALUES: list[Any] = [None, 0, False, "", [], {"a": [1, {"b": None}]}, b"\x00", 1.5, "ñandú"]
UNREADABLE = [b"", b"\xc1", b"\x01\x02", b"\xd9\x05ab", b"\xc7\x01\x05x"]


def keep(desk: Desk, job_id: str, value: Any) -> None:
    desk.redis.set(desk.keys.result(job_id), wire.encode(value))


async def test_what_handlers_returned_is_read(desk: Desk) -> None:
    async def handle(job: Job) -> Any:
        return job.data

    async with desk.queue() as queue, desk.working(handle, store_results=True):
        jobs = await queue.add_bulk([{"name": "echo", "data": value} for value in VALUES])
        await desk.settled()
        assert [await queue.get_job_result(job.id) for job in jobs] == VALUES
        assert await queue.get_job_result_bulk([job.id for job in jobs]) == VALUES


async def test_what_is_not_stored_is_the_default(desk: Desk) -> None:
    async with desk.queue() as queue:
        keep(desk, "of-none", None)
        assert await queue.get_job_result("unknown") is None
        assert await queue.get_job_result("unknown", default=7) == 7
        assert await queue.get_job_result("of-none", default=7) is None, "None is a result"
        desk.redis.delete(desk.keys.result("of-none"))
        assert await queue.get_job_result("of-none", 7) == 7


async def test_a_bulk_keeps_its_order(desk: Desk) -> None:
    keep(desk, "a", 1)
    keep(desk, "ñ", {"x": 2})
    async with desk.queue() as queue:
        ids = ["ñ", "unknown", "a", "ñ"]
        assert await queue.get_job_result_bulk(ids) == [{"x": 2}, None, 1, {"x": 2}]
        assert await queue.get_job_result_bulk(tuple(ids)) == [{"x": 2}, None, 1, {"x": 2}]


async def test_a_large_bulk_is_read_in_parts(own_desk: Desk) -> None:
    ids = [f"job-{n}" for n in range(2_500)]
    own_desk.redis.mset({own_desk.keys.result(job_id): wire.encode(job_id) for job_id in ids})
    own_desk.redis.config_resetstat()
    async with own_desk.queue() as queue:
        assert await queue.get_job_result_bulk(ids) == ids
    assert own_desk.redis.info("commandstats")["cmdstat_mget"]["calls"] == 3


async def test_no_ids_ask_nobody() -> None:
    async with Queue("any", redis_url="redis://127.0.0.1:1") as queue:
        assert await queue.get_job_result_bulk([]) == []


@pytest.mark.parametrize("stored", UNREADABLE, ids=repr)
async def test_bytes_that_are_no_result_are_an_error_that_names_the_job(
    desk: Desk, stored: bytes
) -> None:
    desk.redis.set(desk.keys.result("broken"), stored)
    async with desk.queue() as queue:
        for ask in (
            queue.get_job_result("broken", default=1),
            queue.get_job_result_bulk(["fine", "broken"]),
            queue.wait_for_result("broken"),
        ):
            with pytest.raises(WireError, match="'broken'"):
                await ask


async def test_ids_are_checked_before_anybody_is_asked() -> None:
    async with Queue("any", redis_url="redis://127.0.0.1:1") as queue:
        for wrong in ("", " ", "x" * 1025, 7, None):
            job_id: Any = wrong
            for ask in (
                queue.get_job_result(job_id),
                queue.get_job_result_bulk(["fine", job_id]),
                queue.wait_for_result(job_id),
            ):
                with pytest.raises(ConfigError, match="job id"):
                    await ask
        with pytest.raises(ArgumentError, match="list of ids"):
            await queue.get_job_result_bulk("job-1")
