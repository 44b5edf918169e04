"""Workers that stop by themselves: on an empty queue, after so many jobs, after so long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chasquimq import BackoffSpec, ConfigError, Job, Worker
from chasquimq.engine.promoter import Promoter
from tests.engine.desk import Desk

LONG_AGO = 1_000


def jobs(count: int) -> list[dict[str, Any]]:
    return [{"name": "", "data": number} for number in range(count)]


async def run(worker: Worker) -> None:
    await asyncio.wait_for(worker.run(), 60)


async def test_burst_runs_all_there_is_and_ends(desk: Desk) -> None:
    seen: list[int] = []

    async def handler(job: Job) -> None:
        await asyncio.sleep(0)
        seen.append(job.data)

    async with desk.queue() as queue:
        await queue.add_bulk(jobs(300))
        worker = desk.worker(handler, burst=True, concurrency=7)
        await run(worker)
    assert sorted(seen) == list(range(300))
    assert desk.waiting() == 0
    assert desk.redis.xinfo_consumers(desk.keys.stream, "default") == []
    assert worker.health().state == "stopped"


async def test_burst_on_an_empty_queue_ends_at_once(desk: Desk) -> None:
    async def handler(job: Job) -> None: ...

    await run(desk.worker(handler, burst=True, read_block_ms=600_000))


async def test_burst_takes_delayed_jobs_that_are_due_and_leaves_the_others(desk: Desk) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.data)

    async with desk.queue() as queue:
        for number in range(300):  # more than one promotion
            await queue.add("", "due", delay_ms=1 + number % 2)
        await queue.add("", "later", delay_ms=600_000)
        await asyncio.sleep(0.05)
        await run(desk.worker(handler, burst=True))
    assert seen == ["due"] * 300
    assert desk.delayed() == 1


async def test_burst_looks_for_due_jobs_itself_before_it_ends(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The promoter beside it may not have come to it yet."""
    seen: list[int] = []

    async def idle(self: Promoter) -> None: ...

    async def handler(job: Job) -> None:
        seen.append(job.data)

    monkeypatch.setattr(Promoter, "run", idle)
    async with desk.queue() as queue:
        await queue.add_bulk([{"name": "", "data": n, "delay_ms": 1} for n in range(300)])
        await asyncio.sleep(0.05)
        await run(desk.worker(handler, burst=True))
    assert sorted(seen) == list(range(300))


async def test_burst_waits_for_what_its_jobs_add(desk: Desk) -> None:
    seen: list[int] = []
    async with desk.queue() as queue:

        async def handler(job: Job) -> None:
            seen.append(job.data)
            await asyncio.sleep(0.3)  # longer than several empty reads of a burst
            if job.data:
                await queue.add("", job.data - 1)

        await queue.add("", 3)
        await run(desk.worker(handler, burst=True))
    assert seen == [3, 2, 1, 0]


async def test_a_job_that_fails_in_a_burst_is_left_for_its_next_run(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        raise ValueError("no")

    async with desk.queue() as queue:
        await queue.add("", None)
        slow = BackoffSpec.fixed(600_000, jitter_ms=0)
        await run(desk.worker(handler, burst=True, backoff=slow))
    assert (desk.waiting(), desk.delayed()) == (0, 1)


@pytest.mark.parametrize("concurrency", [1, 16])
async def test_max_jobs_is_exact_and_the_rest_stays_for_others(
    desk: Desk, concurrency: int
) -> None:
    seen: list[int] = []

    async def handler(job: Job) -> None:
        await asyncio.sleep(0.001)
        seen.append(job.data)

    async with desk.queue() as queue:
        await queue.add_bulk(jobs(100))
        await run(desk.worker(handler, max_jobs=37, concurrency=concurrency))
    assert sorted(seen) == list(range(37))
    assert desk.waiting() == 63
    assert desk.pending() == []


async def test_max_jobs_is_exact_with_suspects_among_them(desk: Desk) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.id)

    for number in range(6):
        desk.put(f"job-{number}")
    desk.abandon(3, "dead")
    worker = desk.worker(handler, max_jobs=4, claim_min_idle_ms=150)
    await run(worker)
    assert len(seen) == len(set(seen)) == 4
    assert desk.waiting() == 2


async def test_what_comes_while_the_last_one_runs_is_not_taken(desk: Desk) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.id)
        desk.put("one too many")
        await asyncio.sleep(0.2)

    desk.put("suspect")
    desk.abandon(1, "dead")
    await run(desk.worker(handler, max_jobs=1, claim_min_idle_ms=150))
    assert seen == ["suspect"]
    assert [one.id for one in desk.envelopes()] == ["one too many"]
    assert desk.pending() == []


async def test_max_jobs_is_reached_by_suspects_alone(desk: Desk) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.id)

    for number in range(3):
        desk.put(f"job-{number}")
    desk.abandon(3, "dead")
    await run(desk.worker(handler, max_jobs=2, claim_min_idle_ms=150, read_block_ms=600_000))
    assert seen == ["job-0", "job-1"]
    assert desk.waiting() == 1


async def test_max_jobs_waits_for_jobs_to_come(desk: Desk) -> None:
    seen: list[int] = []

    async def handler(job: Job) -> None:
        seen.append(job.data)

    async with desk.queue() as queue, asyncio.TaskGroup() as group:
        running = group.create_task(run(desk.worker(handler, max_jobs=2)))
        await queue.add("", 1)
        await asyncio.sleep(0.2)
        assert not running.done()
        await queue.add("", 2)
    assert seen == [1, 2]


async def test_max_runtime_ends_a_worker_and_drains_it(desk: Desk) -> None:
    ended: list[int] = []

    async def handler(job: Job) -> None:
        await asyncio.sleep(0.5)
        ended.append(job.data)

    async with desk.queue() as queue:
        await queue.add_bulk(jobs(10))
        await run(desk.worker(handler, max_runtime_ms=250, concurrency=2))
    assert len(ended) == 2
    assert desk.waiting() == 8
    assert desk.pending() == []


@pytest.mark.parametrize("option", ["max_jobs", "max_runtime_ms"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_limits_that_make_no_sense_are_refused(option: str, value: Any) -> None:
    async def handler(job: Job) -> None: ...

    with pytest.raises(ConfigError, match=option):
        Worker("q", handler, **{option: value})
