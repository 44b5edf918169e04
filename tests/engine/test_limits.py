"""Time limits: a run that takes too long fails, whatever it does about it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from chasquimq import BackoffSpec, Job, Router
from chasquimq.engine import limit
from chasquimq.health import STALLED_S
from tests.engine.desk import Desk, eventually

FAST = BackoffSpec.fixed(1, jitter_ms=0)


async def test_a_run_that_takes_too_long_is_cancelled_and_tried_again(desk: Desk) -> None:
    told: list[str] = []

    async def handler(job: Job) -> None:
        if job.attempt == 0:
            try:
                await asyncio.sleep(60)
            finally:
                told.append(f"cancelled, lease_lost={job.lease_lost}")
        else:
            told.append("again")

    async with desk.queue() as queue, desk.working(handler, time_limit_ms=100, backoff=FAST):
        added = await queue.add("", None)
        await eventually(lambda: "again" in told)
        await desk.settled()
    assert told == ["cancelled, lease_lost=True", "again"]
    failed = [row for row in desk.events() if row.name == "failed"]
    assert [(row.job_id, row.fields["reason"]) for row in failed] == [
        (added.id, "CMQ-012: the handler ran for longer than 100 ms")
    ]


async def test_a_limit_buries_in_the_end_with_its_reason(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        await asyncio.sleep(60)

    async with (
        desk.queue() as queue,
        desk.working(handler, time_limit_ms=60, max_attempts=2, backoff=FAST),
    ):
        await queue.add("", None)
        await eventually(lambda: desk.dead())
    [entry] = desk.dead()
    assert entry[b"error_type"] == b"TimeLimitError"
    assert (entry[b"attempt"], entry[b"reason"]) == (b"2", b"retries_exhausted")


async def test_names_have_limits_of_their_own(desk: Desk) -> None:
    ended: list[str] = []
    router = Router()

    @router.on("quick", time_limit_ms=60)
    @router.on("patient", time_limit_ms=60_000)
    @router.on("usual")
    async def handler(job: Job) -> None:
        try:
            await asyncio.sleep(0.6)
            ended.append(job.name)
        except asyncio.CancelledError:
            ended.append(f"{job.name} cut off")
            raise

    async with (
        desk.queue() as queue,
        desk.working(router, time_limit_ms=200, max_attempts=1),
    ):
        for name in ("quick", "patient", "usual"):
            await queue.add(name, None)
        await eventually(lambda: len(ended) == 3)
        await eventually(lambda: len(desk.dead()) == 2)
    assert sorted(ended) == ["patient", "quick cut off", "usual cut off"]


async def test_a_name_without_a_limit_runs_beside_one_that_has_one(desk: Desk) -> None:
    ended: list[str] = []
    router = Router()

    @router.on("limited", time_limit_ms=60)
    @router.on("free")
    async def handler(job: Job) -> None:
        await asyncio.sleep(0.5)
        ended.append(job.name)

    async with desk.queue() as queue, desk.working(router, max_attempts=1):
        await queue.add("limited", None)
        await queue.add("free", None)
        await eventually(lambda: ended)
        await eventually(lambda: desk.dead())
    assert ended == ["free"]
    assert len(desk.dead()) == 1


async def test_a_run_that_ends_in_time_is_left_alone_and_so_is_the_next(desk: Desk) -> None:
    seen: list[int] = []

    async def handler(job: Job) -> None:
        await asyncio.sleep(0.03)
        seen.append(job.data)

    async with (
        desk.queue() as queue,
        desk.working(handler, time_limit_ms=1_000, concurrency=1),
    ):
        await queue.add_bulk([{"name": "", "data": number} for number in range(50)])
        await desk.settled(60)
    assert seen == list(range(50))  # together they took longer than the limit of one


async def test_swallowing_the_cancellation_does_not_make_it_a_success(desk: Desk) -> None:
    runs: list[int] = []

    async def handler(job: Job) -> str:
        runs.append(job.attempt)
        if job.attempt == 0:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "as if nothing had happened"
        return "done"

    async with desk.queue() as queue, desk.working(handler, time_limit_ms=60, backoff=FAST):
        await queue.add("", None)
        await eventually(lambda: runs == [0, 1])
        await desk.settled()
    assert [row.name for row in desk.events() if row.name in ("failed", "completed")] == [
        "failed",
        "completed",
    ]


async def test_one_that_does_not_end_fails_all_the_same_and_ends_for_nobody(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, "GRACE_S", 0.1)
    over, runs = asyncio.Event(), []
    heard: list[str] = []

    async def on_error(job: Job, error: BaseException, verdict: object) -> None:
        await asyncio.sleep(0)
        heard.append(f"{type(error).__name__} {type(verdict).__name__}")

    async def handler(job: Job) -> None:
        runs.append(job.attempt)
        while job.attempt == 0 and not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                pass

    options = {"time_limit_ms": 60, "backoff": FAST, "on_error": on_error}
    async with desk.queue() as queue, desk.working(handler, **options):
        await queue.add("", None)
        await eventually(lambda: runs == [0, 1])  # the second runs while the first still hangs
        await desk.settled()
        over.set()
    outcomes = [row.name for row in desk.events() if row.name in ("failed", "completed", "dlq")]
    assert outcomes == ["failed", "completed"]
    assert heard == ["TimeLimitError Again"]
    assert desk.dead() == []


@pytest.mark.parametrize("why", ["limit", "lease"])
async def test_health_tells_of_handlers_that_were_given_up_and_keep_all_slots(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(limit, "GRACE_S", 0.1)
    over, runs = asyncio.Event(), []

    async def handler(job: Job) -> None:
        runs.append(job.data)
        while job.data == "hangs" and not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                pass

    limits = {"time_limit_ms": 60} if why == "limit" else {"claim_min_idle_ms": 300}
    options = {"concurrency": 2, "max_attempts": 1, **limits}
    async with desk.queue() as queue, desk.working(handler, **options) as worker:
        try:
            await queue.add_bulk([{"name": "", "data": "hangs"}] * 2)
            await eventually(lambda: len(runs) == 2)
            if why == "lease":
                ids = [row["message_id"] for row in desk.pending()]
                desk.redis.xclaim(desk.keys.stream, "default", "thief", 0, ids)
                desk.redis.xack(desk.keys.stream, "default", *ids)
                await eventually(lambda: worker.health().counters.leases_lost == 2)
            else:
                await eventually(lambda: len(desk.dead()) == 2)
            assert worker.health().slots_kept == 2
            [problem] = worker.health().problems
            assert problem.startswith("all 2 slots are kept by handlers that were given up")
            assert worker.health().stalled is None
            consumer = worker._consumer
            assert consumer is not None
            for slot in consumer.pool.slots:
                slot.void_since -= STALLED_S
            assert "all 2 slots have been kept for 30 s" in (worker.health().stalled or "")
        finally:
            over.set()  # else the handlers, and the worker with them, never end
        await queue.add("", "runs")
        await eventually(lambda: runs[2:] == ["runs"])
        await eventually(lambda: worker.health().healthy)
        assert worker.health().stalled is None


async def test_a_plain_function_fails_in_time_and_keeps_its_thread_until_it_ends(
    desk: Desk,
) -> None:
    over = threading.Event()
    runs: list[Any] = []

    def handler(job: Job) -> None:
        runs.append((job.data, job.attempt))
        if job.data == "hangs":
            over.wait(60)

    worker: Any
    try:
        async with (
            desk.queue() as queue,
            desk.working(
                handler, time_limit_ms=100, concurrency=2, max_attempts=1, drain_ms=100
            ) as worker,
        ):
            await queue.add("", "hangs")
            await eventually(lambda: desk.dead())
            await queue.add_bulk([{"name": "", "data": number} for number in range(20)])
            await desk.settled()
            assert worker.health().threads_busy == 1
            # With its last thread stuck it takes nothing that could not start.
            await queue.add("", "hangs")
            await eventually(lambda: len(desk.dead()) == 2)
            await queue.add("", "waits")
            await eventually(lambda: worker.health().threads_stuck == 2)
            assert "all 2 threads are kept" in worker.health().problems[0]
            assert worker.health().stalled is None  # yet: they may end
            threads = worker._consumer.pool.threads if worker._consumer else None
            assert threads is not None and threads._full_since is not None
            threads._full_since -= STALLED_S
            assert "all 2 threads have been kept for 30 s" in (worker.health().stalled or "")
            await asyncio.sleep(0.3)
            assert ("waits", 0) not in runs
            assert len(desk.dead()) == 2
            over.set()
            await desk.settled()
            await eventually(lambda: worker.health().threads_stuck == 0)
            assert worker.health().healthy and worker.health().stalled is None
    finally:
        over.set()
    assert sorted(map(str, runs)) == sorted(
        map(str, [("hangs", 0), ("hangs", 0), ("waits", 0), *((n, 0) for n in range(20))])
    )


async def test_a_worker_without_limits_waits(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        await asyncio.sleep(0.5)

    async with desk.queue() as queue, desk.working(handler):
        await queue.add("", None)
        await desk.settled()
    assert desk.dead() == []
