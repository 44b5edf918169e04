"""A worker with a name that lasts takes back what an earlier run under it left, at once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from chasquimq import Job
from tests.engine.desk import Desk, eventually

LEASE = 60_000  # far longer than any of these tests: nothing here comes by claiming


async def test_it_takes_back_what_it_left_without_waiting_for_a_lease(desk: Desk) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(f"{job.id} {job.attempt}")

    for number in range(30):
        desk.put(f"job-{number:02}")
    desk.abandon(30, "worker-1")
    async with desk.working(handler, consumer_id="worker-1", claim_min_idle_ms=LEASE):
        await desk.settled()
    assert seen == [f"job-{number:02} 1" for number in range(30)]  # the lost run was counted
    assert desk.pending() == []


async def test_it_does_not_wait_for_its_next_look_at_what_others_left(desk: Desk) -> None:
    """Right at the start no slot is free yet."""
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.id)

    desk.put("left")
    desk.abandon(1, "worker-1")
    worker = desk.worker(handler, consumer_id="worker-1", claim_min_idle_ms=LEASE)
    read = msgspec.structs.replace(worker._options.read, claim_every_ms=LEASE)
    worker._options = msgspec.structs.replace(worker._options, read=read)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await eventually(lambda: seen == ["left"])
        await worker.close()


async def test_what_others_hold_is_left_alone(desk: Desk) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.id)

    desk.put("theirs")
    desk.abandon(1, "worker-2")
    desk.put("ours")
    desk.abandon(1, "worker-1")
    async with desk.working(handler, consumer_id="worker-1", claim_min_idle_ms=LEASE):
        await eventually(lambda: len(desk.pending()) == 1)
        await asyncio.sleep(0.1)
    assert seen == ["ours"]
    assert [row["consumer"] for row in desk.pending()] == [b"worker-2"]


async def test_a_name_made_up_for_one_run_takes_nothing_back(desk: Desk) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.id)

    desk.put("left")
    desk.abandon(1, "c-somebody")
    async with desk.queue() as queue, desk.working(handler, claim_min_idle_ms=LEASE):
        await queue.add("", None, job_id="new")
        await eventually(lambda: seen == ["new"])
    assert [row["consumer"] for row in desk.pending()] == [b"c-somebody"]


@pytest.mark.parametrize(("deliveries", "runs"), [(1, 2), (2, 1), (3, 0), (9, 0)])
async def test_a_crash_loop_ends_after_exactly_its_budget(
    desk: Desk, deliveries: int, runs: int
) -> None:
    seen: list[int] = []

    async def handler(job: Job) -> None:
        seen.append(job.attempt)
        raise ValueError("and now by itself")

    desk.put("killer")
    desk.abandon(1, "worker-1", deliveries)
    options = {"consumer_id": "worker-1", "claim_min_idle_ms": LEASE, "max_attempts": 3}
    async with desk.working(handler, **options):
        await eventually(lambda: desk.dead())
    assert seen == list(range(deliveries, deliveries + runs))
    [entry] = desk.dead()
    assert entry[b"reason"] == b"retries_exhausted"


async def test_taking_back_counts_a_delivery_and_running_beside_it_does_not(desk: Desk) -> None:
    """What is read while leftovers are taken back is ours too, but no leftover."""
    left, new = asyncio.Event(), asyncio.Event()
    started: list[str] = []

    async def handler(job: Job) -> None:
        started.append(job.id)
        await (new if job.id.startswith("new") else left).wait()

    for number in range(3):
        desk.put(f"left-{number}")
    desk.abandon(3, "worker-1")
    async with desk.working(handler, consumer_id="worker-1", claim_min_idle_ms=LEASE):
        await eventually(lambda: started == ["left-0"])
        for number in range(5):
            desk.put(f"new-{number}")
        await eventually(lambda: len(started) == 6)
        left.set()
        await eventually(lambda: len(desk.pending()) == 5)
        counts = {row["message_id"]: row["times_delivered"] for row in desk.pending()}
        assert set(counts.values()) == {1}
        new.set()
        await desk.settled()
    assert sorted(started) == [*(f"left-{n}" for n in range(3)), *(f"new-{n}" for n in range(5))]


async def test_a_restart_after_a_clean_stop_finds_nothing(desk: Desk) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.id)

    options = {"consumer_id": "worker-1", "claim_min_idle_ms": LEASE}
    for number in range(3):
        async with desk.queue() as queue, desk.working(handler, **options):
            await queue.add("", None, job_id=f"job-{number}")
            await desk.settled()
    assert seen == ["job-0", "job-1", "job-2"]


async def test_a_burst_under_a_lasting_name_ends_after_its_leftovers(desk: Desk) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        await asyncio.sleep(0.1)
        seen.append(job.id)

    for number in range(3):
        desk.put(f"job-{number}")
    desk.abandon(3, "worker-1")
    worker = desk.worker(handler, consumer_id="worker-1", claim_min_idle_ms=LEASE, burst=True)
    await asyncio.wait_for(worker.run(), 30)
    assert seen == ["job-0", "job-1", "job-2"]


@pytest.mark.parametrize("how", ["max_jobs", "close"])
async def test_what_was_not_taken_back_before_a_stop_keeps_its_count(desk: Desk, how: str) -> None:
    """It crashed with an earlier run, and nobody has run it since."""
    seen: list[tuple[str, int]] = []
    for number in range(5):
        desk.put(f"job-{number}")
    desk.abandon(5, "worker-1")
    options = {"consumer_id": "worker-1", "claim_min_idle_ms": LEASE}
    first, cut_off = list[str](), list[str]()
    if how == "max_jobs":

        async def one(job: Job) -> None:
            first.append(job.id)

        await asyncio.wait_for(desk.worker(one, max_jobs=1, **options).run(), 30)
        assert first == ["job-0"]
    else:
        started = asyncio.Event()

        async def hangs(job: Job) -> None:
            cut_off.append(job.id)
            started.set()
            await asyncio.sleep(60)

        async with desk.working(hangs, drain_ms=20, **options):
            await started.wait()

    async def handler(job: Job) -> None:
        seen.append((job.id, job.attempt))

    # They lie there to be claimed at once; a lease so short only lets a new worker claim soon.
    async with desk.working(handler, claim_min_idle_ms=150):
        await desk.settled()
    left = [f"job-{number}" for number in range(5) if f"job-{number}" not in first]
    # The one that the drain deadline cut off has had a second run.
    assert sorted(seen) == [(job_id, 1 + (job_id in cut_off)) for job_id in left]
