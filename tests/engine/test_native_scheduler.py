"""The standalone Scheduler: what it makes and tells of. How it leads: test_native_leaders."""

from __future__ import annotations

from typing import Any

import pytest

from chasquimq import ConfigError, InMemorySink, RepeatPattern
from chasquimq.native import Scheduler
from tests.engine.desk import Desk, eventually
from tests.engine.roles import Scheduling
from tests.engine.roster import HOUR_MS, lay, now_ms


async def test_due_specs_make_jobs_and_are_told_of(desk: Desk) -> None:
    sink = InMemorySink()
    one, two = Scheduling(desk).lay("one"), Scheduling(desk).lay("two", "ñ")
    lay(desk, "far", now_ms(desk) + HOUR_MS)
    async with Scheduling(desk).leading(metrics=sink):
        await eventually(lambda: desk.waiting() == 2)
        async with desk.queue() as queue:
            await queue.add("soon", 1, repeat=RepeatPattern.every(1), limit=1)
        await eventually(lambda: desk.waiting() == 3)
        await eventually(lambda: len(desk.events()) == 3)
    ids = [envelope.id for envelope in desk.envelopes()]
    assert sorted(ids[:2]) == [f"one@{one}", f"two@{two}"]
    assert ids[2].startswith("soon::every:1@")
    told = [(e.name, e.job_id, e.job_name) for e in desk.events()]
    assert sorted(told[:2]) == [("waiting", f"one@{one}", ""), ("waiting", f"two@{two}", "ñ")]
    assert told[2] == ("waiting", ids[2], "soon")
    assert desk.redis.zscore(desk.keys.repeat, "one") == one + HOUR_MS
    assert desk.redis.zcard(desk.keys.repeat) == 3


async def test_events_can_be_off_and_are_capped(desk: Desk) -> None:
    for number in range(1_200):
        Scheduling(desk).lay(f"s-{number}")
    async with Scheduling(desk).leading(events_enabled=False, batch=1_000):
        await eventually(lambda: desk.waiting() == 1_200)
    assert desk.events() == []
    for number in range(1_200):
        Scheduling(desk).lay(f"s-{number}")
    async with Scheduling(desk).leading(events_max_stream_len=10):
        await eventually(lambda: desk.waiting() == 2_400)
    assert 10 <= desk.redis.xlen(desk.keys.events) < 1_200


@pytest.mark.parametrize("batch", [0, 1, 3])
async def test_a_batch_is_how_many_specs_it_takes_at_once(desk: Desk, batch: int) -> None:
    for number in range(7):
        Scheduling(desk).lay(f"s-{number}")
    # Neither its tick nor its lock makes it look again.
    async with Scheduling(desk).leading(
        batch=batch, tick_interval_ms=3_600_000, lock_ttl_secs=86_400
    ):
        await eventually(lambda: desk.waiting() == 7)
    assert len({envelope.id for envelope in desk.envelopes()}) == 7


async def test_the_stream_is_not_trimmed_by_what_fires(desk: Desk) -> None:
    for number in range(300):
        Scheduling(desk).lay(f"s-{number}")
    async with Scheduling(desk).leading(max_stream_len=10):
        await eventually(lambda: desk.waiting() == 300)


async def test_a_lock_that_lives_shorter_than_a_tick_is_renewed(desk: Desk) -> None:
    """Nothing is due, and the tick is an hour: it comes by to keep the lock."""
    left: list[int] = []

    def renewed() -> bool:
        left.append(desk.redis.pttl(desk.keys.scheduler_lock))
        return 0 < left[-2] < left[-1]

    async with Scheduling(desk).leading(lock_ttl_secs=1, tick_interval_ms=3_600_000):
        await eventually(lambda: Scheduling(desk).holder())
        left.append(desk.redis.pttl(desk.keys.scheduler_lock))
        await eventually(renewed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tick_interval_ms": 0}, "tick_ms must be from 1 to 3600000"),
        ({"tick_interval_ms": -1}, "tick_ms must be from 1 to 3600000"),
        ({"batch": 1_001}, "batch must be from 1 to 1000"),
        ({"batch": -1}, "batch must be from 1 to 1000"),
        ({"lock_ttl_secs": 0}, "must be from 1 to 86400"),
        ({"events_max_stream_len": 0}, "must be at least 1"),
        ({"metrics": 5}, "none of the callbacks"),
        ({"tick_ms": 5}, "did you mean 'tick_interval_ms'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Scheduler("redis://127.0.0.1:1", "q", **options)
