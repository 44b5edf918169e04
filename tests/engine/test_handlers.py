"""Which handler runs a job, in what it runs, and who hears of its errors."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from typing import Any

import pytest

from chasquimq import (
    BackoffSpec,
    ConfigError,
    Job,
    NoHandlerError,
    Queue,
    Route,
    Router,
    UnrecoverableError,
    Worker,
    run_workers,
    wire,
)
from chasquimq.job import Again, Dead, Reason
from tests.engine.desk import Desk, eventually

FAST = BackoffSpec.fixed(1, jitter_ms=0)


async def nothing(job: Job) -> None:
    pass


# -- by name -----------------------------------------------------------------------------------


async def test_each_name_has_its_handler(desk: Desk) -> None:
    seen: list[tuple[str, str]] = []

    async def welcome(job: Job) -> None:
        seen.append(("welcome", job.name))

    def report(job: Job) -> None:
        seen.append(("report", job.name))

    async with desk.queue() as queue, desk.working({"welcome": welcome, "report": report}):
        for name in ("welcome", "report", "welcome"):
            await queue.add(name, None)
        await desk.settled()
    assert sorted(seen) == [("report", "report"), ("welcome", "welcome"), ("welcome", "welcome")]
    assert desk.dead() == []


async def test_a_name_that_nobody_handles_is_buried_with_its_reason_and_its_data(
    desk: Desk,
) -> None:
    async with desk.queue() as queue, desk.working({"welcome": nothing, "report": nothing}):
        added = await queue.add("welcom", {"to": "ada"})
        await eventually(lambda: desk.dead())
        [entry] = await queue.peek_dlq()
    assert (entry["reason"], entry["job_id"], entry["name"]) == (
        "unrecoverable",
        added.id,
        "welcom",
    )
    assert entry["error_type"] == "NoHandlerError"
    assert "'welcom'" in entry["error"]
    assert "'report', 'welcome'" in entry["error"]
    assert desk.pending() == []


async def test_what_nobody_handled_can_be_replayed_to_a_worker_that_does(desk: Desk) -> None:
    seen: list[Any] = []
    async with desk.queue() as queue:
        async with desk.working({"welcome": nothing}):
            await queue.add("goodbye", 7)
            await eventually(lambda: desk.dead())
        await queue.replay_dlq()

        async def goodbye(job: Job) -> None:
            seen.append(job.data)

        async with desk.working({"goodbye": goodbye}):
            await desk.settled()
    assert seen == [7]


async def test_otherwise_takes_all_other_names(desk: Desk) -> None:
    seen: list[tuple[str, str]] = []
    router = Router()

    @router.on("a", "b")
    async def ours(job: Job) -> None:
        seen.append(("ours", job.name))

    @router.otherwise
    def rest(job: Job) -> None:
        seen.append(("rest", job.name))

    async with desk.queue() as queue, desk.working(router):
        for name in ("a", "b", "c", ""):
            await queue.add(name, None)
        await desk.settled()
    assert sorted(seen) == [("ours", "a"), ("ours", "b"), ("rest", ""), ("rest", "c")]


def test_routers_can_be_put_together() -> None:
    mail, bills = Router({"welcome": nothing}), Router()
    bills.on("invoice", time_limit_ms=5)(nothing)
    bills.otherwise(nothing)
    mail.include(bills)
    assert mail.routes == {"welcome": Route(nothing), "invoice": Route(nothing, 5)}
    assert mail.default == Route(nothing)
    with pytest.raises(ConfigError, match="'invoice' already"):
        mail.include(Router({"invoice": nothing}))


BAD: list[tuple[Any, str]] = [
    (None, "must be a function, got NoneType"),
    ({}, "no handlers"),
    (Router(), "no handlers"),
    ({"a": 1}, "handler of 'a' must be a function, got int"),
    ({1: nothing}, "name is a str, got int"),
    ({"a": Route(nothing, 0)}, "at least 1, got 0"),
    ({"a": Route(nothing, True)}, "whole number, got True"),
]


@pytest.mark.parametrize(("handler", "words"), BAD, ids=[words for _, words in BAD])
def test_a_handler_that_cannot_be_one_is_refused_at_the_door(handler: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Worker("q", handler)


def test_a_router_refuses_what_is_ambiguous() -> None:
    router = Router({"a": nothing})
    with pytest.raises(ConfigError, match="handler for 'a' already"):
        router.on("a")(nothing)
    with pytest.raises(ConfigError, match="at least one job name"):
        router.on()
    router.otherwise(nothing)
    with pytest.raises(ConfigError, match="other names already"):
        router.otherwise(nothing)


# -- in threads --------------------------------------------------------------------------------


async def test_plain_functions_run_side_by_side(desk: Desk) -> None:
    together = threading.Barrier(8)

    def handler(job: Job) -> None:
        together.wait(20)

    async with desk.queue() as queue, desk.working(handler, concurrency=8):
        await queue.add_bulk([{"name": "", "data": None}] * 16)
        await desk.settled()
    assert desk.dead() == []


async def test_a_plain_function_keeps_no_more_threads_than_its_concurrency(desk: Desk) -> None:
    seen: set[int] = set()

    def handler(job: Job) -> None:
        seen.add(threading.get_ident())

    async with desk.queue() as queue, desk.working(handler, concurrency=4):
        await queue.add_bulk([{"name": "", "data": None}] * 400)
        await desk.settled()
        names = [thread.name for thread in threading.enumerate() if "chasqui-job" in thread.name]
        assert len(names) <= 4
    assert 1 <= len(seen) <= 4
    await eventually(lambda: not [t for t in threading.enumerate() if "chasqui-job" in t.name])


async def test_the_errors_of_plain_functions_are_their_own(desk: Desk) -> None:
    def handler(job: Job) -> None:
        raise UnrecoverableError("no") if job.data else StopIteration("odd")

    async with desk.queue() as queue, desk.working(handler, max_attempts=1):
        await queue.add("", True)
        await queue.add("", False)
        await eventually(lambda: len(desk.dead()) == 2)
    kinds = {entry[b"error_type"] for entry in desk.dead()}
    assert kinds == {b"UnrecoverableError", b"RuntimeError"}  # a coroutine turns StopIteration


async def test_a_plain_function_sees_no_context_of_another(desk: Desk) -> None:
    mark: contextvars.ContextVar[int] = contextvars.ContextVar("mark", default=0)
    seen: list[int] = []

    def handler(job: Job) -> None:
        seen.append(mark.get())
        mark.set(job.data)

    async with desk.queue() as queue, desk.working(handler, concurrency=2):
        await queue.add_bulk([{"name": "", "data": number} for number in range(1, 40)])
        await desk.settled()
    assert seen == [0] * 39


async def test_a_function_that_returns_a_coroutine_is_awaited(desk: Desk) -> None:
    seen: list[str] = []

    async def later(job: Job) -> None:
        seen.append(threading.current_thread().name)

    async with desk.queue() as queue, desk.working(lambda job: later(job)):
        await queue.add("", None)
        await desk.settled()
    assert seen == [threading.main_thread().name]


# -- errors are told ---------------------------------------------------------------------------


async def test_on_error_hears_each_failed_run_and_what_follows(desk: Desk) -> None:
    heard: list[tuple[str, int, str, Again | Dead]] = []

    async def handler(job: Job) -> None:
        raise ValueError(f"run {job.attempt_number}")

    async def on_error(job: Job, error: BaseException, verdict: Again | Dead) -> None:
        await asyncio.sleep(0)
        heard.append((job.id, job.attempt, str(error), verdict))

    async with (
        desk.queue() as queue,
        desk.working(handler, on_error=on_error, max_attempts=2, backoff=FAST),
    ):
        added = await queue.add("", None)
        await eventually(lambda: desk.dead())
    assert heard == [
        (added.id, 0, "run 1", Again(1, 1)),
        (added.id, 1, "run 2", Dead(2, Reason.RETRIES_EXHAUSTED)),
    ]


async def test_on_error_hears_of_names_nobody_handles(desk: Desk) -> None:
    heard: list[BaseException] = []

    def on_error(job: Job, error: BaseException, verdict: Again | Dead) -> None:
        heard.append(error)

    async with desk.queue() as queue, desk.working({"a": nothing}, on_error=on_error):
        await queue.add("b", None)
        await eventually(lambda: desk.dead())
    assert [type(error) for error in heard] == [NoHandlerError]


async def test_an_on_error_that_fails_is_logged_and_not_felt(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []

    async def handler(job: Job) -> None:
        runs.append(job.attempt)
        if job.attempt == 0:
            raise ValueError("first")

    def on_error(job: Job, error: BaseException, verdict: Again | Dead) -> None:
        raise OSError("pager is down")

    with caplog.at_level(logging.ERROR, "chasquimq"):
        async with (
            desk.queue() as queue,
            desk.working(handler, on_error=on_error, backoff=FAST),
        ):
            await queue.add("", None)
            await eventually(lambda: runs == [0, 1])
            await desk.settled()
    assert "on_error failed" in caplog.text
    assert "pager is down" in caplog.text


# -- several queues ----------------------------------------------------------------------------


async def test_several_queues_run_in_one_process(desk: Desk) -> None:
    seen: dict[str, int] = {"a": 0, "b": 0}
    workers: list[Worker] = []

    def worker(which: str) -> Worker:
        async def handler(job: Job) -> None:
            seen[which] += 1
            if seen == {"a": 30, "b": 30}:
                for each in workers:
                    await each.close()

        options: dict[str, Any] = {"redis_url": desk.server.url}
        options["dialect"] = desk.server.forced_dialect
        return Worker(f"{desk.name}-{which}", handler, **options)

    for which in seen:
        async with Queue(f"{desk.name}-{which}", redis_url=desk.server.url) as queue:
            await queue.add_bulk([{"name": "", "data": None}] * 30)
    workers += [worker(which) for which in seen]
    await asyncio.wait_for(run_workers(*workers, signals=False), 30)
    assert seen == {"a": 30, "b": 30}


async def test_one_worker_that_fails_closes_the_others(desk: Desk) -> None:
    desk.redis.set(wire.Keys(f"{desk.name}-bad").stream, "no stream")
    good = desk.worker(nothing)
    bad = Worker(f"{desk.name}-bad", nothing, redis_url=desk.server.url)
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="WRONGTYPE"):
        await asyncio.wait_for(run_workers(good, bad), 30)
    assert good.is_closed
    assert not good.is_running
    assert time.monotonic() - started < 30


async def test_signals_are_for_the_main_thread(desk: Desk) -> None:
    def elsewhere() -> None:
        asyncio.run(run_workers(desk.worker(nothing)))

    with pytest.raises(ConfigError, match="signals=False"):
        await asyncio.to_thread(elsewhere)
