"""Waiting for results: what wakes whom, and what is told instead of a result."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from chasquimq import (
    ChasquiError,
    ConfigError,
    Job,
    JobFailedError,
    Queue,
    ResultTimeoutError,
    UnrecoverableError,
    wire,
)
from tests.engine.desk import Desk, eventually
from tests.engine.wait import NEVER, cancel, echo, fields, finish, tell, waiting, written_down


@pytest.fixture(autouse=True)
def _nobody_is_left() -> Iterator[None]:
    yield
    assert written_down() == 0


# -- what wakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 0, {"total": [1, 2]}], ids=repr)
async def test_completion_wakes_without_a_poll(desk: Desk, value: Any) -> None:
    async with desk.queue() as queue, desk.working(echo, store_results=True):
        job = await queue.add("echo", value)
        assert await job.wait_for_result(poll_interval=NEVER) == value
        assert await job.wait_for_result(poll_interval=NEVER) == value, "it is still there"


async def test_jobs_of_every_add_can_wait(desk: Desk) -> None:
    async with desk.queue() as queue, desk.working(echo, store_results=True):
        jobs = [
            await queue.add("echo", 1),
            await queue.add("echo", 2, delay_ms=10),
            await queue.add_unique("echo", 3, job_id="given"),
            *await queue.add_bulk([{"data": 4}, {"name": "echo", "data": 5, "delay_ms": 10}]),
        ]
        waits = [job.wait_for_result(poll_interval=NEVER) for job in jobs]
        assert await asyncio.gather(*waits) == [1, 2, 3, 4, 5]


async def test_an_id_is_enough(desk: Desk) -> None:
    """As it is kept elsewhere: the one who waits has not added the job."""
    async with desk.queue() as queue, desk.queue() as other, desk.working(echo, store_results=True):
        job = await queue.add("echo", "hello")
        assert await other.wait_for_result(job.id, poll_interval=NEVER) == "hello"


async def test_without_events_polling_finds_it(desk: Desk) -> None:
    async with desk.queue() as queue, desk.working(echo, store_results=True, events_enabled=False):
        job = await queue.add("echo", 1)
        assert await job.wait_for_result(poll_interval=0.05) == 1
    assert desk.events() == []


async def test_a_result_behind_its_event_is_found_by_polling(desk: Desk) -> None:
    """A reference worker says `completed` before its result exists."""
    async with desk.queue() as queue:
        [task] = await waiting(queue.wait_for_result("early", poll_interval=0.05))
        tell(desk, "completed", "early", attempt=1, duration_us=5)
        desk.redis.set(desk.keys.result("early"), wire.encode(1))
        assert await task == 1


async def test_everybody_who_waits_for_a_job_gets_the_result_as_their_own(desk: Desk) -> None:
    async with desk.queue() as queue:
        waits = [queue.wait_for_result("same", poll_interval=NEVER) for _ in range(2)]
        tasks = await waiting(*waits)
        finish(desk, "same", value={"list": []})
        first, second = await asyncio.gather(*tasks)
    assert first == second == {"list": []}
    first["list"].append(1)
    assert second == {"list": []}


# -- jobs that die ---------------------------------------------------------------------------------


async def test_a_job_that_dies_is_told_with_its_last_error(desk: Desk) -> None:
    async def fail(job: Job) -> None:
        raise ValueError(f"run {job.attempt_number} went wrong")

    async with desk.queue() as queue:
        job = await queue.add("doomed", 1, attempts=2, backoff=10)
        [task] = await waiting(job.wait_for_result(poll_interval=NEVER))
        async with desk.working(fail, store_results=True):
            with pytest.raises(JobFailedError) as caught:
                await task
    error = caught.value
    assert (error.job_id, error.reason, error.attempts) == (job.id, "retries_exhausted", 2)
    assert error.error == "run 2 went wrong"
    assert str(error).startswith("CMQ-103: ")
    for part in (job.id, "2 runs", "retries_exhausted", "run 2 went wrong", "peek_dlq"):
        assert part in str(error)


async def test_a_job_that_died_before_is_told_to_whoever_comes_later(desk: Desk) -> None:
    async def fail(job: Job) -> None:
        raise UnrecoverableError("no such user")

    async with desk.queue() as queue, desk.working(fail):
        jobs = await queue.add_bulk([{"data": n} for n in range(2)])
        await eventually(lambda: [e.name for e in desk.events()].count("dlq") == 2)
        for job in jobs:  # the first begins to listen, the second comes to one who listens
            with pytest.raises(JobFailedError, match="no such user") as caught:
                await job.wait_for_result(poll_interval=NEVER)
            assert (caught.value.reason, caught.value.attempts) == ("unrecoverable", 1)


async def test_a_result_wins_over_a_death(desk: Desk) -> None:
    tell(desk, "dlq", "both", attempt=1, reason="unrecoverable")
    desk.redis.set(desk.keys.result("both"), wire.encode("alive"))
    async with desk.queue() as queue:
        tasks = await waiting(queue.wait_for_result("other", poll_interval=NEVER))
        assert await queue.wait_for_result("both", poll_interval=NEVER) == "alive"
        tasks += await waiting(queue.wait_for_result("late", poll_interval=NEVER))
        pipe = desk.redis.pipeline(transaction=True)
        pipe.set(desk.keys.result("late"), wire.encode("alive"))
        pipe.xadd(desk.keys.events, fields("dlq", "late", attempt=1, reason="unrecoverable"))
        pipe.execute()
        assert await tasks[1] == "alive"
        await cancel(tasks[0])


async def test_a_replayed_job_is_not_dead_any_more(desk: Desk) -> None:
    repaired, release = False, asyncio.Event()

    async def handle(job: Job) -> str:
        if not repaired:
            raise UnrecoverableError("not yet")
        await release.wait()
        return "in the end"

    async with desk.working(handle, store_results=True):
        async with desk.queue() as queue:
            job = await queue.add("twice", 1)
            with pytest.raises(JobFailedError):
                await job.wait_for_result(poll_interval=NEVER)
            repaired = True
            assert await queue.replay_dlq() == 1
            await eventually(lambda: [e.name for e in desk.events()].count("active") == 2)
            tasks = await waiting(job.wait_for_result(poll_interval=NEVER))
            await cancel(*tasks)
        # Whoever begins to listen now hears of its death and of its second run at once.
        async with desk.queue() as queue:
            [task] = await waiting(queue.wait_for_result(job.id, poll_interval=NEVER))
            release.set()
            assert await task == "in the end"


# -- too late --------------------------------------------------------------------------------------


async def test_a_timeout_says_what_to_check(desk: Desk) -> None:
    async with desk.queue() as queue:
        job = await queue.add("nobody-works", 1)
        with pytest.raises(ResultTimeoutError) as caught:
            await job.wait_for_result(timeout=0.05)
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert (error.job_id, error.timeout) == (job.id, 0.05)
    text = str(error)
    assert text.startswith("CMQ-102: ")
    for part in (job.id, desk.name, "0.05 s", "worker", "store_results=True", "result_ttl_ms"):
        assert part in text
    assert "completed" not in text


async def test_a_timeout_says_that_the_job_completed(desk: Desk) -> None:
    tell(desk, "completed", "kept-nothing", attempt=1, duration_us=5)
    async with desk.queue() as queue:
        with pytest.raises(ResultTimeoutError, match=r"has completed.*store_results"):
            await queue.wait_for_result("kept-nothing", timeout=1)


async def test_a_wait_does_not_outlive_its_timeout_where_nobody_answers(own_desk: Desk) -> None:
    async with own_desk.queue() as queue:
        own_desk.server.server.pause()
        try:
            with pytest.raises(ResultTimeoutError):
                await queue.wait_for_result("a", timeout=0.2)
        finally:
            own_desk.server.server.resume()


# -- wrong calls -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0, -1, -0.5, float("nan"), "1", None, True], ids=repr)
async def test_times_are_positive_numbers(wrong: Any) -> None:
    async with Queue("any", redis_url="redis://127.0.0.1:1") as queue:
        with pytest.raises(ConfigError, match="timeout"):
            await queue.wait_for_result("a", timeout=wrong)
        with pytest.raises(ValueError, match="poll_interval"):
            await queue.wait_for_result("a", poll_interval=wrong)


async def test_the_job_a_handler_gets_cannot_wait_for_itself(desk: Desk) -> None:
    told: list[ChasquiError] = []

    async def handle(job: Job) -> None:
        try:
            await job.wait_for_result()
        except ChasquiError as error:
            told.append(error)

    async with desk.queue() as queue, desk.working(handle):
        await queue.add("itself", 1)
        await eventually(lambda: told)
    assert "Queue.wait_for_result(job_id)" in str(told[0])


async def test_the_queue_of_a_job_is_neither_shown_nor_compared(desk: Desk) -> None:
    async with desk.queue() as queue:
        job = await queue.add("n", 1)
        [in_bulk] = await queue.add_bulk([{"name": "n", "data": 1}])
    for added in (job, in_bulk):
        assert added == Job(added.id, "n", 1, 0, added.created_at_ms)
        assert "queue" not in repr(added).lower()
