"""What is told of schedules: to metrics sinks, and in the events stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chasquimq import Job, MissedFiresPolicy, RepeatPattern
from chasquimq.observe.memory import InMemorySink, WorkerRollup
from chasquimq.observe.metrics import LockOutcome, listening
from chasquimq.store import Link
from tests.engine.desk import Desk, eventually
from tests.engine.roster import HOUR_MS, fires, lay, now_ms, packed, scheduling


async def nothing(job: Job) -> None:
    pass


async def test_every_tick_of_a_scheduler_is_told_and_every_fire(desk: Desk) -> None:
    sink, other = InMemorySink(), InMemorySink()
    now = now_ms(desk)
    lay(desk, "older", now - 2_000)
    lay(desk, "old", now - 1_000)
    lay(desk, "coming", now + HOUR_MS)
    async with (
        scheduling(desk, listening(sink), "one", batch=1) as one,
        scheduling(desk, listening(other), "two") as two,
    ):
        await one.tick()
        await two.tick()  # does not lead: nothing to tell
        await one.tick()
        await one.tick()
    assert other.calls == []
    assert [call.callback for call in sink.calls] == [
        "promoter_lock_outcome",
        *("spec_fired", "scheduler_tick") * 2,
        "scheduler_tick",
    ]
    assert sink.heard("promoter_lock_outcome") == [LockOutcome("acquired", "scheduler")]
    older, old = sink.heard("spec_fired")
    assert (older.key, older.name, old.key, old.name) == ("older", "n", "old", "n")
    assert 2_000 <= older.late_ms <= now_ms(desk) - now + 2_000
    ticks = sink.heard("scheduler_tick")
    assert [(tick.fired, tick.depth) for tick in ticks] == [(1, 3), (1, 3), (0, 3)]
    assert [tick.lag_ms for tick in ticks] == [older.late_ms, old.late_ms, 0]
    assert sink.rollup().worker == WorkerRollup(fired=2)


async def test_a_fire_is_a_waiting_event_with_its_name_and_there_is_no_other(desk: Desk) -> None:
    at_ms = now_ms(desk) - 1
    lay(desk, "key", at_ms, packed("key", job_name="report", limit=1))
    async with desk.working(nothing):
        await eventually(lambda: "completed" in [row.name for row in desk.events()])
    rows = [(row.name, row.job_id, row.job_name) for row in desk.events() if row.name != "drained"]
    assert sorted(rows) == [
        (event, f"key@{at_ms}", "report") for event in ("active", "completed", "waiting")
    ]


async def test_only_what_a_limit_let_through_is_told(desk: Desk) -> None:
    sink, start = InMemorySink(), now_ms(desk) - HOUR_MS
    every, fire_all = RepeatPattern.every(1_000), MissedFiresPolicy.fire_all(5)
    lay(desk, "key", start, packed("key", every, missed_fires=fire_all, limit=2))
    async with scheduling(desk, listening(sink)) as scheduler:
        await scheduler.tick()
    assert fires(desk) == [("key", start), ("key", start + 1_000)]
    assert len(sink.heard("spec_fired")) == scheduler.fired == 2
    assert [tick.fired for tick in sink.heard("scheduler_tick")] == [2]


async def test_a_spec_that_fires_while_specs_are_listed_is_listed_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(self: Link, script: str, *args: Any) -> Any:
        answer = await real(self, script, *args)
        if script == "list_specs":
            desk.redis.zincrby(desk.keys.repeat, 10, "moving")
        return answer

    real: Callable[..., Awaitable[Any]] = Link.run
    monkeypatch.setattr(Link, "run", run)
    lay(desk, "moving", HOUR_MS)
    for number in range(9):
        lay(desk, f"{number}", HOUR_MS + 5 + 10 * number)
    async with desk.queue() as queue:
        keys = [meta.key for meta in await queue.get_repeatable_jobs()]
        assert len(await queue.get_repeatable_jobs(3)) == 3
    assert keys == ["moving", *"012345678"]


async def test_a_scheduler_renews_its_lock_in_time_however_far_its_tick_is(desk: Desk) -> None:
    desk.redis.set(desk.keys.scheduler_lock, "another")
    async with scheduling(desk, tick_ms=HOUR_MS, lock_ttl_s=3) as scheduler:
        assert await scheduler.tick() == 1.0
