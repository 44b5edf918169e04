"""What handlers, those who hear of them, and the machine may do wrong, and the worker goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from chasquimq import BackoffSpec, Job
from chasquimq.job import Again, Dead
from tests.engine.desk import Desk, eventually

FAST = BackoffSpec.fixed(1, jitter_ms=0)


class WordlessError(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


async def test_an_exception_that_cannot_say_what_it_is_is_a_failure_like_others(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        raise WordlessError

    async with desk.queue() as queue, desk.working(handler, max_attempts=1) as worker:
        for number in range(3):
            await queue.add("", number)
        await desk.settled()
        assert worker.health().state == "running"
    assert [row[b"error_type"] for row in desk.dead()] == [b"WordlessError"] * 3
    told = [event.fields["reason"] for event in desk.events() if event.name == "failed"]
    assert told == ["WordlessError"] * 3


async def test_an_on_error_that_ends_cancelled_takes_no_worker_along(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []

    async def handler(job: Job) -> None:
        runs.append(job.data)
        raise ValueError("boom")

    async def on_error(job: Job, error: BaseException, verdict: Again | Dead) -> None:
        raise asyncio.CancelledError  # as from a task of its own that was cancelled

    options: dict[str, Any] = {"max_attempts": 1, "concurrency": 1, "on_error": on_error}
    async with desk.queue() as queue, desk.working(handler, **options):
        for number in range(3):
            await queue.add("", number)
        await eventually(lambda: len(runs) == 3)
        await desk.settled()
    assert sorted(runs) == [0, 1, 2]
    assert caplog.text.count("on_error failed") == 3


async def test_a_stop_ends_an_on_error_that_lasts(desk: Desk) -> None:
    began = asyncio.Event()

    async def handler(job: Job) -> None:
        raise ValueError("boom")

    async def on_error(job: Job, error: BaseException, verdict: Again | Dead) -> None:
        began.set()
        await asyncio.sleep(3600)

    async with desk.queue() as queue, asyncio.timeout(30):
        options: dict[str, Any] = {"max_attempts": 1, "drain_ms": 10, "on_error": on_error}
        async with desk.working(handler, **options):
            await queue.add("", 1)
            await began.wait()
    assert len(desk.dead()) == 1


@pytest.mark.parametrize("there_are", [0, 1])
async def test_where_the_system_has_no_more_threads_no_job_hangs(
    desk: Desk, there_are: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails and runs again, or shares the threads that there are."""
    started, refused = [], []
    start = threading.Thread.start

    def scarce(thread: threading.Thread) -> None:
        if thread.name.startswith("chasqui-job"):
            if len(started) == there_are and len(refused) < 3:
                refused.append(thread)
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    runs: list[int] = []

    def handler(job: Job) -> None:
        runs.append(job.data)
        time.sleep(0.01)

    async with desk.queue() as queue, desk.working(handler, concurrency=4, backoff=FAST):
        await queue.add_bulk([{"name": "", "data": number} for number in range(8)])
        await desk.settled()
    assert sorted(runs) == list(range(8)) and refused
    assert desk.dead() == []


async def test_events_are_told_whatever_the_clock_of_the_machine_says(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without a battery begins in 1970, until it has asked somebody."""
    monkeypatch.setattr(time, "time", lambda: 86_400.0)
    runs: list[int] = []

    async def handler(job: Job) -> None:
        runs.append(job.data)

    async with desk.queue() as queue, desk.working(handler):
        await queue.add_bulk([{"name": "", "data": number} for number in range(5)])
        await desk.settled()
    assert sorted(runs) == list(range(5))
    told = [event.fields["ts"] for event in desk.events() if event.name in ("active", "completed")]
    assert told == [86_400_000] * 10
