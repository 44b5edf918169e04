"""Repeatable jobs, from the queue's door to the handler."""

from __future__ import annotations

from collections import Counter

import pytest

from chasquimq import ConfigError, Job, MissedFiresPolicy, RepeatPattern, wire
from tests.engine.desk import Desk, eventually


async def test_a_spec_fires_and_its_jobs_run_each_window_once(desk: Desk) -> None:
    ran: list[Job] = []

    async def handler(job: Job) -> None:
        ran.append(job)

    async with desk.queue() as queue, desk.working(handler):
        spec = await queue.add("tick", {"a": 1}, repeat=RepeatPattern.every(100))
        assert spec.id == "tick::every:100"
        [meta] = await queue.get_repeatable_jobs()
        await eventually(lambda: len(ran) >= 12)
        assert await queue.remove_repeatable_by_key(spec.id)
    assert {(job.name, str(job.data)) for job in ran} == {("tick", "{'a': 1}")}
    windows = [int(job.id.removeprefix("tick::every:100@")) for job in ran]
    assert Counter(windows).most_common(1)[0][1] == 1
    assert sorted(windows) == [meta.next_fire_ms + 100 * n for n in range(len(windows))], (
        "a window is missing"
    )
    assert desk.redis.keys(desk.keys.tag + b"repeat*") == []


async def test_a_limit_ends_a_spec(desk: Desk) -> None:
    ran: list[str] = []

    async def handler(job: Job) -> None:
        ran.append(job.id)

    async with desk.queue() as queue, desk.working(handler):
        await queue.add("tick", None, repeat={"kind": "every", "interval_ms": 20}, limit=3)
        await eventually(lambda: desk.redis.keys(desk.keys.tag + b"repeat*") == [])
        await eventually(lambda: len(ran) >= 3)
        await desk.settled()
    assert len(ran) == len(set(ran)) == 3


async def test_attempts_and_backoff_reach_each_job(desk: Desk) -> None:
    async with desk.queue() as queue:
        spec = await queue.upsert_repeatable_job(
            "tick",
            1,
            repeat=RepeatPattern.cron("* * * * * *"),
            attempts=7,
            backoff=50,
            limit=1,
            missed_fires=MissedFiresPolicy.fire_all(3),
        )
        [meta] = await queue.get_repeatable_jobs()
        assert (meta.attempts, meta.backoff.delay_ms if meta.backoff else None) == (7, 50)
        async with desk.working(lambda job: None, burst=True, delayed_enabled=False):
            pass
        job = await queue.run_repeatable_now(spec.id)
        [envelope] = [e for e in desk.envelopes() if e.id == job.id]
        assert envelope.retry is not None
        assert envelope.retry.max_attempts == 7
        assert wire.decode(envelope.payload) == 1


async def test_a_paused_spec_stays_paused_when_it_is_written_again(desk: Desk) -> None:
    async with desk.queue() as queue:
        every = RepeatPattern.every(50)
        key = (await queue.add("tick", 1, repeat=every)).id
        assert await queue.pause_repeatable(key)
        assert not await queue.pause_repeatable(key)
        await queue.add("tick", 2, repeat=every)
        [meta] = await queue.get_repeatable_jobs()
        assert meta.paused
        assert await queue.resume_repeatable(key)
        assert not await queue.resume_repeatable(key)
        [now] = await queue.get_repeatable_jobs()
        assert not now.paused
        assert (now.next_fire_ms - meta.next_fire_ms) % 50 == 0
        assert len(await queue.next_fires(key, 3)) == 3


async def test_a_pause_outlives_another_pattern(desk: Desk) -> None:
    async with desk.queue() as queue:

        async def write(pattern: RepeatPattern) -> None:
            await queue.upsert_repeatable_job("n", 1, repeat=pattern, key="k")

        await write(RepeatPattern.every(3_600_000))
        await queue.pause_repeatable("k")
        await write(RepeatPattern.cron("0 0 1 1 *"))
        [meta] = await queue.get_repeatable_jobs()
        assert (meta.paused, meta.pattern.kind) == (True, "cron")
        await queue.resume_repeatable("k")
        [first] = await queue.next_fires("k", 1)
        assert (first.month, first.day, first.hour, first.minute) == (1, 1, 0, 0)
        assert meta.next_fire_ms == first.timestamp() * 1000, "where it would stand"


async def test_a_spec_that_never_fires_is_refused(desk: Desk) -> None:
    async with desk.queue() as queue:
        with pytest.raises(ConfigError, match="never fire"):
            await queue.add("x", 1, repeat=RepeatPattern.cron("0 0 0 1 1 * 2020"))
        with pytest.raises(ConfigError, match="end_before"):
            await queue.add("x", 1, repeat=RepeatPattern.every(1000), end_before=1000)
        assert await queue.get_repeatable_jobs() == []
