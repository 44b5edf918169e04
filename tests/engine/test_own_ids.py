"""An id that the caller chose, added again: the answer says what became of it.

Its job is there, or a worker had it: a duplicate. It was removed before any worker had it: it comes
in again, because otherwise it would be missing and nobody would know.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chasquimq import Job, Producer
from tests.engine.desk import Desk, deafened, eventually


def remove_all(desk: Desk) -> None:
    for entry_id, _ in desk.redis.xrange(desk.keys.stream):
        desk.redis.xdel(desk.keys.stream, entry_id)


async def test_a_second_add_is_told_that_it_is_one(desk: Desk) -> None:
    async with desk.queue() as queue:
        first = await queue.add("n", 1, job_id="order-17")
        second = await queue.add("n", 2, job_id="order-17")
        assert (first.duplicate, second.duplicate) == (False, True)
        bulk = await queue.add_bulk(
            [{"name": "n", "data": n, "job_id": f"order-{n}"} for n in (16, 17, 18, 18)]
        )
        assert [job.duplicate for job in bulk] == [False, True, False, True]
    assert [one.id for one in desk.envelopes()] == ["order-17", "order-16", "order-18"]


async def test_a_job_that_was_removed_unread_comes_in_again(desk: Desk) -> None:
    async with desk.queue() as queue:
        for turn in range(4):
            job = await queue.add("n", turn, job_id="order-17")
            assert not job.duplicate
            assert [one.id for one in desk.envelopes()] == ["order-17"]
            assert (await queue.add("n", turn, job_id="order-17")).duplicate
            remove_all(desk)


@pytest.mark.parametrize("end", ["done", "retried", "dead"])
async def test_a_job_that_a_worker_had_does_not_come_in_again(desk: Desk, end: str) -> None:
    ran: list[Any] = []

    async def handle(job: Job) -> None:
        ran.append(job.data)
        if end != "done":
            raise RuntimeError(end)

    backoff = {"attempts": 1 if end == "dead" else 2, "backoff": 3_600_000}
    async with desk.queue() as queue, desk.working(handle):
        await queue.add("n", 1, job_id="order-17", **backoff)
        await eventually(lambda: desk.waiting() == 0 and desk.pending() == [])
        assert len(desk.dead()) + desk.delayed() == (end != "done")
        again = await queue.add("n", 2, job_id="order-17", **backoff)
        assert again.duplicate
        await queue.add("n", 3, job_id="order-18", attempts=1)
        await eventually(lambda: 3 in ran)
    assert ran == [1, 3]


@pytest.mark.parametrize("bulk", [False, True], ids=["one", "bulk"])
async def test_an_add_that_is_sent_again_is_no_duplicate_of_itself(
    own_desk: Desk, bulk: bool
) -> None:
    async with own_desk.queue() as queue:
        await queue.add("warm", 1, job_id="warm")
        pipe, _ = deafened(queue)
        if bulk:
            jobs = [{"name": "n", "data": 1, "job_id": "order-17"}]
            adding: Any = asyncio.ensure_future(queue.add_bulk(jobs))
        else:
            adding = asyncio.ensure_future(queue.add("n", 1, job_id="order-17"))
        await eventually(lambda: own_desk.waiting() == 2)
        pipe.close()
        [job] = await adding if bulk else [await adding]
        assert not job.duplicate
        assert (await queue.add("n", 1, job_id="order-17")).duplicate
    assert own_desk.waiting() == 2


async def test_a_unique_add_that_is_sent_again_still_tells_a_duplicate(own_desk: Desk) -> None:
    async with own_desk.queue() as queue, own_desk.queue() as other:
        await other.add("n", 1, job_id="one", unique="until_done")
        await queue.add("warm", 1, job_id="warm", unique="until_done")
        pipe, unheard = deafened(queue)
        adding = asyncio.ensure_future(queue.add("n", 1, job_id="one", unique="until_done"))
        await eventually(lambda: unheard)
        pipe.close()
        assert (await adding).duplicate


async def test_a_durable_add_under_the_id_of_its_error(own_desk: Desk) -> None:
    own_desk.redis.config_set("appendfsync", "always")
    async with own_desk.queue(durability="local") as queue:
        job = await queue.add("n", 1)
        assert not job.duplicate
        assert (await queue.add("n", 1, job_id=job.id)).duplicate
        remove_all(own_desk)
        assert not (await queue.add("n", 1, job_id=job.id)).duplicate
    assert own_desk.waiting() == 1


async def test_the_native_door(desk: Desk) -> None:
    door = Producer(desk.server.url, desk.name, dialect=desk.server.forced_dialect)
    for _ in range(3):
        for _ in range(2):
            assert await door.add_with_options(b"1", {"id": "order-17"}) == "order-17"
            assert desk.waiting() == 1
        remove_all(desk)
    await door.shutdown()
