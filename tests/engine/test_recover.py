"""What dead workers leave is taken up: by whom, when, and at whose charge."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import time

import pytest

from chasquimq import BackoffSpec, Job
from tests.engine.desk import Desk, eventually

FAST = BackoffSpec.fixed(1, jitter_ms=0)
LEASE = 300
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


async def nothing(job: Job) -> None:
    pass


async def test_what_a_dead_consumer_left_is_run(desk: Desk) -> None:
    seen: dict[str, int] = {}

    async def handler(job: Job) -> None:
        seen[job.id] = job.attempt

    for number in range(5):
        desk.put(f"left-{number}")
    desk.abandon(5)
    async with desk.working(handler, claim_min_idle_ms=LEASE):
        await desk.settled()
    # The crash counts as a run.
    assert seen == {f"left-{number}": 1 for number in range(5)}


COUNTS = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (2, 1), (1, 2)]


@pytest.mark.parametrize(("failures", "deliveries"), COUNTS)
async def test_deliveries_that_crashed_are_charged_exactly(
    desk: Desk, failures: int, deliveries: int
) -> None:
    """And beside failures: a retry is a new entry, whose deliveries the server counts anew."""
    ran: list[int] = []

    async def handler(job: Job) -> None:
        ran.append(job.attempt)
        raise ValueError("again")

    desk.put("crashed", name="n", attempt=failures)
    desk.abandon(1, deliveries=deliveries)
    async with desk.working(handler, claim_min_idle_ms=LEASE, max_attempts=3, backoff=FAST):
        await desk.settled()
    assert ran == list(range(failures + deliveries, 3))
    [dead] = desk.dead()
    assert (dead[b"reason"], dead[b"job_id"]) == (b"retries_exhausted", b"crashed")


async def test_new_jobs_do_not_wait_for_suspects(desk: Desk) -> None:
    release = asyncio.Event()
    fresh = asyncio.Event()

    async def handler(job: Job) -> None:
        if job.id == "suspect":
            await release.wait()
        else:
            fresh.set()

    desk.put("suspect")
    desk.abandon(1)
    async with desk.queue() as queue, desk.working(handler, claim_min_idle_ms=LEASE):
        await eventually(lambda: any(row["consumer"] != b"ghost" for row in desk.pending()))
        await queue.add("n", 1)
        await asyncio.wait_for(fresh.wait(), 10)
        release.set()
        await desk.settled()


async def test_a_job_longer_than_its_lease_runs_once(desk: Desk) -> None:
    runs: list[str] = []

    async def handler(job: Job) -> None:
        runs.append(job.id)
        await asyncio.sleep(LEASE * 4 / 1000)

    one = desk.working(handler, claim_min_idle_ms=LEASE, concurrency=2)
    other = desk.working(handler, claim_min_idle_ms=LEASE, concurrency=2)
    async with desk.queue() as queue, one, other:
        added = await queue.add_bulk([{"name": "long", "data": n} for n in range(6)])
        await desk.settled()
    assert sorted(runs) == sorted(job.id for job in added)


async def test_a_handler_that_blocks_the_loop_keeps_its_lease(desk: Desk) -> None:
    runs: list[str] = []

    async def handler(job: Job) -> None:
        runs.append(job.id)
        time.sleep(LEASE * 4 / 1000)

    async def other(job: Job) -> None:
        runs.append("stolen")

    async with desk.queue() as queue:
        await queue.add("rude", 1, job_id="rude")

        def elsewhere() -> None:
            async def claim() -> None:
                async with desk.working(other, claim_min_idle_ms=LEASE):
                    await desk.settled()

            asyncio.run(claim())

        async with desk.working(handler, claim_min_idle_ms=LEASE):
            await eventually(lambda: len(desk.pending()) == 1 or not desk.waiting())
            await asyncio.to_thread(elsewhere)
    assert runs == ["rude"]


async def test_a_handler_whose_lease_was_lost_is_cancelled_and_its_outcome_void(
    desk: Desk,
) -> None:
    ended: list[str] = []

    async def handler(job: Job) -> None:
        assert not job.lease_lost
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append(f"{job.id} {job.lease_lost}")
            raise

    async with desk.queue() as queue, desk.working(handler, claim_min_idle_ms=LEASE, concurrency=2):
        await queue.add("stolen", 1, job_id="stolen")
        await eventually(lambda: len(desk.pending()) == 1)
        [row] = desk.pending()
        desk.redis.xclaim(desk.keys.stream, "default", "thief", 0, [row["message_id"]])
        await eventually(lambda: ended)
        assert [row["consumer"] for row in desk.pending()] == [b"thief"]
    assert ended == ["stolen True"]
    assert [row.name for row in desk.events() if row.job_id] == ["active"]  # the rest is not ours
    assert (desk.delayed(), desk.dead()) == (0, [])
    assert [row["consumer"] for row in desk.pending()] == [b"thief"]


async def test_a_fresh_worker_does_not_claim_before_one_lease_has_passed(desk: Desk) -> None:
    """After an outage everybody's entries look abandoned; their owners renew them first."""
    desk.put("busy")
    [entry_id] = desk.abandon(1, "owner")
    await asyncio.sleep(LEASE * 2 / 1000)  # the owner was cut off for longer than its lease
    stop = asyncio.Event()

    async def renew() -> None:
        while not stop.is_set():
            desk.redis.xclaim(desk.keys.stream, "default", "owner", 0, [entry_id], justid=True)
            await asyncio.sleep(LEASE / 3000)

    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.id)

    async with asyncio.TaskGroup() as group, desk.working(handler, claim_min_idle_ms=LEASE):
        await asyncio.sleep(LEASE / 2000)  # the worker is up before the owner is back
        group.create_task(renew())
        await asyncio.sleep(LEASE * 3 / 1000)
        assert seen == []
        stop.set()
        await desk.settled()
    assert seen == ["busy"]


async def test_a_stopped_worker_leaves_no_name_behind(desk: Desk) -> None:
    async with desk.queue() as queue, desk.working(nothing, consumer_id="short-lived"):
        await queue.add("n", 1)
        await desk.settled()
        names = [row["name"] for row in desk.redis.xinfo_consumers(desk.keys.stream, "default")]
        assert names == [b"short-lived"]
    assert desk.redis.xinfo_consumers(desk.keys.stream, "default") == []


async def test_a_stopping_worker_gives_back_what_it_did_not_start(desk: Desk) -> None:
    started: list[str] = []
    gate = asyncio.Event()

    async def handler(job: Job) -> None:
        started.append(job.id)
        if len(started) > 2_000:  # by now it is known to be fast, and many are read ahead
            await gate.wait()

    async with desk.queue() as queue:
        added = await queue.add_bulk([{"name": "n", "data": n} for n in range(4_000)])
        async with desk.working(handler, concurrency=2) as worker:
            await eventually(lambda: len(started) == 2_002)
            assert len(desk.pending()) > 2
            await worker.close()
            await eventually(lambda: len(desk.pending()) == 2)  # while the two still run
            gate.set()
    assert len(started) == 2_002
    assert desk.pending() == []
    assert desk.waiting() == 1_998
    left = {envelope.id for envelope in desk.envelopes()}
    assert left | set(started) == {job.id for job in added}
    assert {envelope.attempt for envelope in desk.envelopes()} == {0}


async def test_a_handler_that_outlives_the_deadline_is_cancelled_and_given_back(
    desk: Desk,
) -> None:
    ended: list[str] = []
    begun = asyncio.Event()

    async def slow(job: Job) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(job.id)
            raise

    async with desk.queue() as queue:
        await queue.add("slow", 1, job_id="slow")
        async with desk.working(slow, drain_ms=50):
            await begun.wait()  # pending alone, it could still be given back unrun
    assert ended == ["slow"]
    assert [envelope.id for envelope in desk.envelopes()] == ["slow"]
    assert desk.pending() == []


async def test_a_handler_that_swallows_its_cancellation_does_not_hold_up_the_stop(
    desk: Desk,
) -> None:
    begun = asyncio.Event()

    async def stubborn(job: Job) -> None:
        begun.set()
        VARIABLE.set(job.id)  # and leaves something behind, too
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    async with desk.queue() as queue:
        await queue.add("slow", 1, job_id="slow")
        async with desk.working(stubborn, drain_ms=50):
            await begun.wait()  # pending alone, it could still be given back
        assert (desk.waiting(), desk.pending()) == (0, [])  # it said it was done
        await queue.add("slow", 2)
        running = asyncio.ensure_future(desk.worker(stubborn).run())
        await eventually(lambda: len(desk.pending()) == 1)
        running.cancel()
        await asyncio.wait([running], timeout=20)
        assert running.done()


async def test_a_function_that_the_deadline_cuts_off_is_told(desk: Desk) -> None:
    started, told = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def handler(job: Job) -> None:
        loop.call_soon_threadsafe(started.set)
        deadline = time.monotonic() + 20
        while not job.lease_lost and time.monotonic() < deadline:
            time.sleep(0.01)
        if job.lease_lost:
            told.set()

    async with desk.queue() as queue, desk.working(handler, drain_ms=20):
        await queue.add("", None)
        await started.wait()
    await eventually(told.is_set)
    assert desk.waiting() == 1


async def test_a_function_stuck_in_its_thread_does_not_hold_up_the_stop(desk: Desk) -> None:
    release = threading.Event()

    def stuck(job: Job) -> None:
        release.wait(30)

    async with desk.queue() as queue:
        await queue.add("slow", 1, job_id="slow")
        try:
            async with desk.working(stuck, drain_ms=50):
                await eventually(lambda: len(desk.pending()) == 1)
            assert [envelope.id for envelope in desk.envelopes()] == ["slow"]
        finally:
            release.set()


async def test_cancelling_a_run_gives_everything_back(desk: Desk) -> None:
    async def slow(job: Job) -> None:
        await asyncio.sleep(60)

    async with desk.queue() as queue:
        await queue.add_bulk([{"name": "n", "data": n} for n in range(10)])
        worker = desk.worker(slow, concurrency=2)
        task = asyncio.ensure_future(worker.run())
        await eventually(lambda: len(desk.pending()) >= 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not worker.is_running
    assert desk.pending() == []
    assert desk.waiting() == 10
    assert not desk.redis.exists(desk.keys.promoter_lock)


async def test_run_and_close_are_as_documented(desk: Desk) -> None:
    worker = desk.worker(nothing)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(worker.run())
        second = group.create_task(worker.run())  # waits for the same run
        await eventually(lambda: worker.is_running and desk.redis.exists(desk.keys.stream))
        assert not first.done()
        assert not second.done()
        await worker.close()
    assert worker.is_closed
    assert not worker.is_running
    await worker.run()  # after close: returns at once


async def test_doors_that_are_closed_leave_nothing_open(desk: Desk) -> None:
    """Neither files here nor clients there, whatever happened in between."""

    def open_things() -> tuple[int, int, int]:
        files = len(os.listdir("/proc/self/fd"))
        return files, len(desk.redis.client_list()), threading.active_count()

    async def once() -> None:
        async with desk.queue() as queue, desk.working(nothing):
            await queue.add("n", 1)
            await desk.settled()
            for client in desk.redis.client_list():
                if client["cmd"] != "client|list":
                    desk.redis.client_kill_filter(_id=client["id"])
            await queue.add("n", 2, job_id="two")
            await desk.settled()

    await once()
    before = open_things()
    for _ in range(3):
        await once()
    await eventually(lambda: open_things() <= before)


async def test_a_function_in_its_thread_is_told_that_its_lease_is_lost(desk: Desk) -> None:
    begun: list[str] = []
    told: list[bool] = []

    def handler(job: Job) -> str:
        begun.append(job.id)
        deadline = time.monotonic() + 20
        while not job.lease_lost and time.monotonic() < deadline:
            time.sleep(0.01)
        told.append(job.lease_lost)
        return "void"

    options = {"claim_min_idle_ms": LEASE, "store_results": True}
    async with desk.queue() as queue, desk.working(handler, **options):
        added = await queue.add("stolen", 1)
        await eventually(lambda: begun)  # else it would be dropped, and never begin
        [row] = desk.pending()
        desk.redis.xclaim(desk.keys.stream, "default", "thief", 0, [row["message_id"]])
        await eventually(lambda: told)
    assert told == [True]
    assert desk.redis.get(desk.keys.result(added.id)) is None
    assert [row["consumer"] for row in desk.pending()] == [b"thief"]


async def test_a_run_that_the_deadline_cuts_off_is_counted(desk: Desk) -> None:
    """A job that is longer than any deployment lets it be has its attempts, and then is dead."""
    runs: list[int] = []

    async def slow(job: Job) -> None:
        runs.append(job.attempt)
        await asyncio.sleep(60)

    async with desk.queue() as queue:
        await queue.add("slow", 1, job_id="slow")
    for deploys in range(1, 4):
        async with desk.working(slow, drain_ms=10, max_attempts=3):
            await eventually(lambda deploys=deploys: len(runs) == deploys)
        assert [envelope.attempt for envelope in desk.envelopes()] == [deploys]
    async with desk.working(slow, max_attempts=3):
        await desk.settled()
    assert runs == [0, 1, 2]
    [dead] = desk.dead()
    assert (dead[b"job_id"], dead[b"reason"]) == (b"slow", b"retries_exhausted")


async def test_a_suspect_that_the_deadline_cuts_off_keeps_what_it_was_charged(desk: Desk) -> None:
    runs: list[int] = []

    async def slow(job: Job) -> None:
        runs.append(job.attempt)
        await asyncio.sleep(60)

    desk.put("left", attempt=1)
    desk.abandon(1, deliveries=2)
    async with desk.working(slow, drain_ms=10, claim_min_idle_ms=LEASE):
        await eventually(lambda: runs == [3])
    assert [envelope.attempt for envelope in desk.envelopes()] == [4]
    assert desk.pending() == []


@pytest.mark.parametrize("holds", [False, True])
async def test_a_stop_does_not_wait_for_a_server_that_is_frozen(
    own_desk: Desk, holds: bool
) -> None:
    """All that it asks of Redis has one deadline; before, each request had its own."""
    desk, begun = own_desk, asyncio.Event()

    async def slow(job: Job) -> None:
        begun.set()
        await asyncio.sleep(60)

    worker = desk.worker(slow, drain_ms=100 if holds else 60_000)
    running = asyncio.ensure_future(worker.run())
    await eventually(lambda: worker.health().healthy)
    if holds:
        async with desk.queue() as queue:
            await queue.add("slow", 1)
        await begun.wait()
    desk.server.server.pause()
    try:
        await worker.close()
        await asyncio.wait_for(running, 12)  # one request alone may last as long elsewhere
    finally:
        desk.server.server.resume()
    assert worker.health().state == "stopped"
    async with desk.working(nothing, claim_min_idle_ms=LEASE):
        await desk.settled()


@pytest.mark.parametrize("connection", [1, 2])
async def test_a_stop_does_not_wait_for_a_server_that_froze_at_the_start(
    own_desk: Desk, connection: int
) -> None:
    """`connection`: the one that a worker makes when the server freezes. Nothing is held then: the
    run ends without an error."""
    desk, asked = own_desk, 0

    def provider(place: str | None) -> tuple[None, None]:
        nonlocal asked
        asked += 1
        if asked == connection:
            desk.server.server.pause()
            worker.stop()
        return None, None

    worker = desk.worker(nothing, credential_provider=provider)
    try:
        await worker.run()
    finally:
        desk.server.server.resume()
    assert (asked, worker.health().state) == (connection, "stopped")
    async with desk.working(nothing, claim_min_idle_ms=LEASE):
        await desk.settled()


async def test_a_worker_that_renews_late_claims_nothing(desk: Desk) -> None:
    """At a gap of half a lease it stops claiming, long before others may claim from it; and its
    connection is made anew before that."""
    async with desk.working(nothing, claim_min_idle_ms=6_000) as worker:
        await eventually(lambda: worker._consumer and worker._consumer.lease.steady_since)
        assert worker._consumer is not None
        lease = worker._consumer.lease
        lease.steady_since = time.monotonic() - 60
        for gap_s, steady in ((2.5, True), (3.5, False)):
            lease.renewed_at = time.monotonic() - gap_s
            assert lease.steady() is steady
        options = lease._dialer.options
        assert (options.max_retry_ms, options.timeout_ms) == (1_000, 2_000)
