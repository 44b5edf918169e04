"""Handlers that cancel their own task, or raise what is no Exception: a failed run, and no more."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chasquimq import BackoffSpec, Job
from chasquimq.engine.pool import Pool
from chasquimq.job import Again, Dead
from tests.engine.desk import Desk, eventually

SLOTS = 2
FAST = BackoffSpec.fixed(1, jitter_ms=0)
OPTIONS: dict[str, Any] = {"concurrency": SLOTS, "max_attempts": 2, "backoff": FAST}

Misdeed = Callable[[], Awaitable[None]]


def _me() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _by_a_timer() -> None:
    asyncio.get_running_loop().call_later(0.01, _me().cancel)  # as async-timeout 4.0.2 does
    await asyncio.sleep(60)


async def _at_once() -> None:
    _me().cancel()
    await asyncio.sleep(0)


async def _several_times() -> None:
    for _ in range(5):
        _me().cancel()
    await asyncio.sleep(0)


async def _while_it_raises() -> None:
    _me().cancel()  # delivered at the next await, which is not the handler's any more
    raise ValueError("boom")


async def _exits() -> None:
    sys.exit(3)


async def _generator_exit() -> None:
    raise GeneratorExit


MISDEEDS = [_by_a_timer, _at_once, _several_times, _while_it_raises, _exits, _generator_exit]


@pytest.mark.parametrize("misdeed", MISDEEDS)
async def test_a_run_that_cancels_or_exits_fails_and_costs_no_slot(
    desk: Desk, misdeed: Misdeed
) -> None:
    runs: list[Any] = []

    async def handler(job: Job) -> None:
        runs.append(job.data)
        if job.data == "bad":
            await misdeed()

    bad = 3 * SLOTS
    async with desk.queue() as queue, desk.working(handler, **OPTIONS) as worker:
        await queue.add_bulk([{"name": "", "data": "bad"} for _ in range(bad)])
        await queue.add_bulk([{"name": "", "data": number} for number in range(20)])
        await desk.settled()
        await eventually(lambda: worker.health().held == 0)
        health = worker.health()
        assert (health.state, health.slots, health.running) == ("running", SLOTS, 0)
    assert runs.count("bad") == 2 * bad
    assert sorted(run for run in runs if run != "bad") == list(range(20))
    assert [row[b"reason"] for row in desk.dead()] == [b"retries_exhausted"] * bad


async def test_a_cancellation_that_a_successful_run_leaves_behind_fails_no_other(
    desk: Desk,
) -> None:
    runs: list[int] = []

    async def handler(job: Job) -> None:
        runs.append(job.data)
        if job.data % 2:
            _me().cancel()
        else:
            await asyncio.sleep(0)

    async with desk.queue() as queue, desk.working(handler, **OPTIONS) as worker:
        await queue.add_bulk([{"name": "", "data": number} for number in range(20)])
        await desk.settled()
        assert worker.health().slots == SLOTS
    assert sorted(runs) == list(range(20))
    assert desk.dead() == []


async def test_a_slot_that_is_cancelled_while_it_waits_is_replaced(desk: Desk) -> None:
    slots: set[asyncio.Task[Any]] = set()
    runs: list[int] = []

    async def handler(job: Job) -> None:
        slots.add(_me())
        runs.append(job.data)
        await asyncio.sleep(0.01)

    async with desk.queue() as queue, desk.working(handler, **OPTIONS) as worker:
        await queue.add_bulk([{"name": "", "data": number} for number in range(2 * SLOTS)])
        await desk.settled()
        assert len(slots) == SLOTS
        for task in slots:
            task.cancel()
        await asyncio.wait(slots)
        await queue.add_bulk([{"name": "", "data": number} for number in range(10, 20)])
        await desk.settled()
        assert worker.health().slots == SLOTS
    assert sorted(runs) == [*range(2 * SLOTS), *range(10, 20)]


async def test_on_error_of_a_run_that_cancelled_itself_is_called_to_its_end(desk: Desk) -> None:
    heard: list[str] = []

    async def handler(job: Job) -> None:
        await _while_it_raises()

    async def on_error(job: Job, error: BaseException, verdict: Again | Dead) -> None:
        await asyncio.sleep(0)
        heard.append(type(error).__name__)

    async with desk.queue() as queue, desk.working(handler, on_error=on_error, **OPTIONS):
        await queue.add("", 1)
        await desk.settled()
        await eventually(lambda: len(heard) == 2)
    assert heard == ["ValueError"] * 2


async def test_an_on_error_that_exits_takes_no_worker_along(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(job: Job) -> None:
        raise ValueError("boom")

    def on_error(job: Job, error: BaseException, verdict: Again | Dead) -> None:
        sys.exit(1)

    async with desk.queue() as queue, desk.working(handler, on_error=on_error, **OPTIONS) as worker:
        await queue.add("", 1)
        await desk.settled()
        await eventually(lambda: caplog.text.count("on_error failed") == 2)
        assert worker.health().state == "running"
    assert len(desk.dead()) == 1


@pytest.mark.parametrize("error", [SystemExit(1), GeneratorExit(), asyncio.CancelledError()])
async def test_a_plain_function_that_exits_fails_its_run_and_costs_no_thread(
    desk: Desk, error: BaseException
) -> None:
    runs: list[Any] = []
    threads: set[str] = set()

    def handler(job: Job) -> None:
        runs.append(job.data)
        threads.add(threading.current_thread().name)
        if job.data == "bad":
            raise error

    bad = 3 * SLOTS
    async with desk.queue() as queue, desk.working(handler, **OPTIONS) as worker:
        await queue.add_bulk([{"name": "", "data": "bad"} for _ in range(bad)])
        await queue.add_bulk([{"name": "", "data": number} for number in range(20)])
        await desk.settled()
        assert (worker.health().slots, worker.health().threads_busy) == (SLOTS, 0)
    assert runs.count("bad") == 2 * bad and len(desk.dead()) == bad
    assert sorted(run for run in runs if run != "bad") == list(range(20))
    assert len(threads) <= SLOTS


async def test_a_stop_still_cuts_off_a_handler_that_cancels_itself_and_goes_on(desk: Desk) -> None:
    """What the handler asked for itself is no stop, and does not hide one that comes later."""
    began = asyncio.Event()

    async def handler(job: Job) -> None:
        _me().cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            began.set()
        await asyncio.sleep(3600)

    options: dict[str, Any] = {"concurrency": 1, "drain_ms": 10}
    async with asyncio.timeout(30), desk.queue() as queue, desk.working(handler, **options):
        await queue.add("", 1, job_id="cut")
        await began.wait()
    assert desk.dead() == [] and desk.waiting() == 1


@pytest.mark.parametrize("part", ["claimer", "reader", "brake", "promoter", "scheduler", "janitor"])
async def test_a_worker_with_a_part_that_a_handler_ended_is_stalled_and_says_so(
    desk: Desk, part: str
) -> None:
    """Nothing in the process begins it again: whoever supervises it starts another."""

    async def reckless(job: Job) -> None:
        for task in asyncio.all_tasks():
            if task.get_name() == f"chasqui-{part}":
                task.cancel()

    async with desk.queue() as queue, desk.working(reckless) as worker:
        await eventually(lambda: worker.health().healthy)
        await queue.add("end", part)
        await eventually(lambda: worker.health().stalled)
        assert worker.health().stalled == (
            f"{part} has ended, and nothing in this process begins it again"
        )
    assert worker.health().stalled is None


async def test_a_worker_whose_slots_are_gone_is_stalled_and_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it would be if a defect of ours kept slots from being replaced."""
    monkeypatch.setattr(Pool, "_spawn", lambda self, slot: None)

    async def handler(job: Job) -> None:
        pass

    async with desk.working(handler, **OPTIONS) as worker:
        await eventually(lambda: worker.health().stalled)
        health = worker.health()
        assert health.stalled == f"all {SLOTS} slots have ended: nothing is started"
        assert not health.healthy and health.slots == 0
        assert worker._consumer is not None
        worker._consumer.pool._ended.set()


@pytest.mark.parametrize("told", [False, True])
async def test_a_second_timer_of_a_handler_that_was_cancelled_hits_no_other_job(
    desk: Desk, told: bool
) -> None:
    timers: list[Callable[[], object]] = []
    runs: list[str] = []

    async def handler(job: Job) -> None:
        runs.append(job.id)
        if job.id == "rude":
            timers.append(_me().cancel)
            await _at_once()
        timers[0]()
        await asyncio.sleep(0.01)

    def on_error(job: Job, error: BaseException, verdict: Again | Dead) -> None:
        pass

    options = {"concurrency": 1, "max_attempts": 1, "on_error": on_error if told else None}
    async with desk.working(handler, **options) as worker:
        desk.put("rude")
        desk.put("good")
        await desk.settled()
        assert worker.health().slots == 1
    assert runs == ["rude", "good"]
    assert [dead[b"job_id"] for dead in desk.dead()] == [b"rude"]
