"""Many workers in one process: they share the thread that renews their leases."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from contextlib import AsyncExitStack

import pytest

from chasquimq import Job, Worker
from chasquimq.flow.backroom import Backroom, backroom
from tests.engine.desk import Desk, eventually

LEASE_MS = 1_500


def lodgers() -> int:
    return sum(thread.name == "chasqui-backroom" for thread in threading.enumerate())


async def test_they_have_one_thread_and_none_is_left_when_the_last_has_ended(desk: Desk) -> None:
    before = lodgers()

    async def handle(job: Job) -> None:
        await asyncio.sleep(0)

    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(desk.working(handle, claim_min_idle_ms=LEASE_MS))
            for _ in range(10)
        ]
        await eventually(lambda: all(one.health().healthy for one in workers))
        assert lodgers() == 1
    assert lodgers() == before == 0


async def test_all_of_them_keep_what_they_run_while_the_event_loop_is_kept_busy(
    desk: Desk,
) -> None:
    runs: list[str] = []
    silent_ms: list[int] = []

    def watch() -> None:
        """Without giving way to anybody."""
        until = time.monotonic() + 2 * LEASE_MS / 1000
        while time.monotonic() < until:
            silent_ms.extend(one["time_since_delivered"] for one in desk.pending())
            time.sleep(0.05)

    async def handle(job: Job) -> None:
        runs.append(job.id)
        await eventually(lambda: len(runs) >= 3)
        if job.id == runs[0]:
            watch()

    async with desk.queue() as queue, AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(
                desk.working(handle, concurrency=1, claim_min_idle_ms=LEASE_MS, read_count=1)
            )
        await queue.add_bulk([{"name": "", "data": n} for n in range(3)])
        await desk.settled()
    assert len(silent_ms) > 30 and max(silent_ms) < LEASE_MS


async def test_one_whose_life_fails_leaves_the_others_alone() -> None:
    room = Backroom("chasqui-test-room")
    go = threading.Event()

    async def fails() -> None:
        raise ValueError("no")

    async def lives() -> None:
        await asyncio.to_thread(go.wait)

    staying, failing = room.enter(lives()), room.enter(fails())
    with pytest.raises(ValueError, match="no"):
        failing.result(10)
    room.leave(failing)
    room.leave(failing)
    assert not staying.done()
    go.set()
    staying.result(10)
    room.leave(staying)
    assert "chasqui-test-room" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
async def test_a_child_has_a_thread_of_its_own(desk: Desk) -> None:
    async def handle(job: Job) -> None:
        pass

    async with desk.working(handle) as worker:
        await eventually(lambda: worker.health().healthy)
        child = os.fork()
        if not child:
            code = 1
            try:

                async def answer() -> None:
                    pass

                stay = backroom.enter(answer())
                stay.result(10)
                backroom.leave(stay)
                code = 0
            finally:
                os._exit(code)
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0


async def test_a_stop_needs_none_of_the_event_loops_own_threads(desk: Desk) -> None:
    """Handlers that were cut off leave them all taken: nobody can end what runs in them."""
    began: list[str] = []
    go = threading.Event()

    async def handle(job: Job) -> None:
        began.append(job.id)
        await asyncio.to_thread(go.wait)

    worker = desk.worker(handle, drain_ms=1)
    running = asyncio.ensure_future(worker.run())
    try:
        async with desk.queue() as queue:
            await queue.add_bulk([{"name": "", "data": n} for n in range(40)])
        await eventually(lambda: len(began) == 40)
        await worker.close()
        await asyncio.wait([running], timeout=20)
        assert running.done() and desk.pending() == []
    finally:
        go.set()
        await running


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_worker_whose_event_loop_was_closed_keeps_nothing(desk: Desk) -> None:
    """As after a second Ctrl-C in a notebook. What it ran goes to others."""
    runs: list[str] = []

    async def lasts(job: Job) -> None:
        runs.append(job.id)
        await asyncio.sleep(3_600)

    async def handle(job: Job) -> None:
        runs.append(job.id)

    def ends_badly() -> None:
        loop = asyncio.new_event_loop()
        worker = desk.worker(lasts, claim_min_idle_ms=LEASE_MS)
        running = loop.create_task(worker.run())
        loop.run_until_complete(eventually(lambda: runs))
        loop.close()
        assert not running.done()

    async with desk.queue() as queue:
        job = await queue.add("", None)
    await asyncio.to_thread(ends_badly)
    async with desk.working(handle, claim_min_idle_ms=LEASE_MS):
        await eventually(lambda: len(runs) == 2)
        await desk.settled()
    assert runs == [job.id] * 2
    for stay in list(backroom._inside):
        backroom.leave(stay)  # on behalf of the one that could not
    gc.collect()  # its tasks, which never ended, complain here and in no other test
    assert lodgers() == 0


async def test_a_start_that_is_cut_off_leaves_no_thread(desk: Desk) -> None:
    async def handle(job: Job) -> None:
        pass

    for wait_s in (0.0, 0.001, 0.003, 0.01, 0.03):
        running = asyncio.ensure_future(
            Worker(desk.keys.queue, handle, redis_url=desk.server.url).run()
        )
        await asyncio.sleep(wait_s)
        running.cancel()
        await asyncio.wait([running])
    assert lodgers() == 0


@pytest.mark.parametrize("company", [0, 1])
async def test_a_stop_that_is_cut_off_again_and_again_leaves_nothing(
    desk: Desk, company: int
) -> None:
    async def handle(job: Job) -> None:
        pass

    stays = desk.worker(handle)
    staying = asyncio.ensure_future(stays.run() if company else asyncio.sleep(0))
    for wait_s in (0.0, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01) * 3:
        worker = desk.worker(handle)
        running = asyncio.ensure_future(worker.run())
        await eventually(lambda worker=worker: worker.health().state == "running")  # type: ignore[misc]
        while not running.done():
            running.cancel()
            await asyncio.sleep(wait_s)
    await eventually(lambda: lodgers() == company)
    if company:  # its lease is the only one that is renewed
        await eventually(lambda: len(asyncio.all_tasks(backroom._loop)) == 1)
    await stays.close()
    await staying
    await eventually(lambda: lodgers() == 0)
