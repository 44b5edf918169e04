"""Many specs at once, long catch-ups, and a scheduler that has nothing to do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from chasquimq import Job, MissedFiresPolicy, RepeatPattern
from chasquimq.config import ScheduleOptions
from chasquimq.engine.scheduler import MOST, MOST_OF_A_TICK, TURN, Planned, Scheduler
from chasquimq.happening import Fired, Happening, SpecsTicked
from chasquimq.repeat import PAUSED_MS
from chasquimq.store.specs import MAX_BYTES, Firing, Specs
from tests.engine.desk import Desk, eventually
from tests.engine.roster import HOUR_MS, fires, lay, now_ms, packed, scheduling
from tests.engine.wait import calls

BATCH = ScheduleOptions().batch
MANY = 10_000
FAR = {"tick_ms": HOUR_MS, "lock_ttl_s": 86_400}  # a tick that does not come by itself


def lay_many(desk: Desk, first_ms: int) -> list[tuple[str, int]]:
    """Ten thousand hourly specs, a millisecond apart; answers what they should fire."""
    rows = [(f"spec-{number:05}", first_ms + number) for number in range(MANY)]
    pipe = desk.redis.pipeline(transaction=False)
    for key, at_ms in reversed(rows):
        pipe.hset(desk.keys.spec(key), "spec", packed(key))  # type: ignore[arg-type]
        pipe.zadd(desk.keys.repeat, {key: at_ms})
    pipe.execute()
    return rows


class Running:
    """A scheduler's own loop, for a block; and what it has told."""

    def __init__(self, desk: Desk, **options: int) -> None:
        self.told: list[Happening] = []
        self._place = scheduling(desk, self.told.append, **options)

    async def __aenter__(self) -> Running:
        self.scheduler = await self._place.__aenter__()
        self._task = asyncio.ensure_future(self.scheduler.run())
        await eventually(lambda: self.ticks)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.scheduler.stop()
        await self._task
        await self._place.__aexit__(None, None, None)

    @property
    def ticks(self) -> list[SpecsTicked]:
        return [what for what in self.told if isinstance(what, SpecsTicked)]

    @property
    def fired(self) -> list[str]:
        return [what.job_id for what in self.told if isinstance(what, Fired)]


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[list[list[bytes]]]:
    """What was to be fired: write by write, spec by spec, the jobs."""
    seen: list[list[list[bytes]]] = []

    async def fire(self: Specs, holder: str, firings: Sequence[Firing]) -> Any:
        seen.append([list(firing.envelopes) for firing in firings])
        return await real(self, holder, firings)

    real: Callable[..., Awaitable[Any]] = Specs.fire
    monkeypatch.setattr(Specs, "fire", fire)
    return seen


# -- load ------------------------------------------------------------------------------------------


async def test_ten_thousand_that_are_due_at_once_fire_each_once_in_their_order(
    desk: Desk,
) -> None:
    expected = lay_many(desk, now_ms(desk) - MANY)
    async with Running(desk) as running:
        await eventually(lambda: running.scheduler.fired >= MANY, 60)
        await eventually(lambda: running.ticks[-1].fired == 0)
    assert fires(desk) == expected
    assert running.fired == [f"{key}@{at_ms}" for key, at_ms in expected]
    assert all(tick.fired <= BATCH for tick in running.ticks)
    assert sum(tick.fired > 0 for tick in running.ticks) == -(-MANY // BATCH)
    scores = desk.redis.zrange(desk.keys.repeat, 0, -1, withscores=True)
    assert scores == [(key.encode(), at_ms + HOUR_MS) for key, at_ms in expected]


async def test_others_in_the_event_loop_have_their_turns_meanwhile(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_many(desk, now_ms(desk) - MANY)
    lay(desk, "long", 1, packed("long", RepeatPattern.every(1_000), missed_fires=all_of(MOST)))
    in_a_row = longest = turns = 0

    def planned(self: Scheduler, *args: Any) -> Planned:
        nonlocal in_a_row, longest
        found = real(self, *args)
        in_a_row += 1
        longest = max(longest, in_a_row)
        return found

    async def take_turns() -> None:
        nonlocal in_a_row, turns
        while True:
            in_a_row, turns = 0, turns + 1
            await asyncio.sleep(0)

    real = Scheduler._planned
    monkeypatch.setattr(Scheduler, "_planned", planned)
    ticker = asyncio.ensure_future(take_turns())
    async with scheduling(desk) as scheduler:
        while await scheduler.tick() == 0.0:
            pass
    ticker.cancel()
    assert scheduler.fired >= MANY
    assert longest <= TURN
    assert turns > MANY / TURN


async def test_a_long_catch_up_goes_on_from_tick_to_tick_and_others_have_their_share(
    desk: Desk, writes: list[list[list[bytes]]]
) -> None:
    every, each, many = RepeatPattern.every(1_000), 750, 20
    start = now_ms(desk) - 10 * HOUR_MS
    for number in range(many):
        body = packed(f"{number}", every, missed_fires=all_of(each), end_before_ms=start + HOUR_MS)
        lay(desk, f"{number}", start + number, body)
    async with scheduling(desk) as scheduler:
        assert await scheduler.tick() == 0.0
        assert scheduler.fired <= MOST_OF_A_TICK
        assert set(Counter(key for key, _ in fires(desk)).values()) == {MOST_OF_A_TICK // many}
        while await scheduler.tick() == 0.0:
            pass
    windows = [(f"{n}", start + n + 1_000 * k) for n in range(many) for k in range(each)]
    assert sorted(fires(desk)) == sorted(windows)
    assert all(len(jobs) <= MOST for specs in writes for jobs in specs)
    assert all(sum(map(len, specs)) < 2 * MOST for specs in writes)


async def test_no_write_is_much_larger_than_some_megabytes(
    desk: Desk, writes: list[list[list[bytes]]]
) -> None:
    """However large the payloads: a write is kept in memory, by us and by the server."""
    payload = b"\xc4" + b"x" * (MAX_BYTES // 10)
    for number in range(2):
        slots = {"payload": payload, "missed_fires": all_of(25), "end_before_ms": 1_000_000}
        lay(desk, f"{number}", 1, packed(f"{number}", RepeatPattern.every(1_000), **slots))
    async with scheduling(desk) as scheduler:
        while await scheduler.tick() == 0.0:
            pass
    assert scheduler.fired == desk.waiting() == 50
    sizes = [sum(len(body) for jobs in specs for body in jobs) for specs in writes]
    assert max(sizes) <= 2 * MAX_BYTES
    desk.redis.delete(desk.keys.stream)


async def test_a_short_interval_loses_and_doubles_nothing_while_the_worker_is_busy(
    desk: Desk,
) -> None:
    ran: list[str] = []

    async def handler(job: Job) -> None:
        if job.name == "tick":
            ran.append(job.id)
        else:
            sum(range(2_000))  # keeps the event loop busy

    async with desk.queue() as queue, desk.working(handler, concurrency=20):
        await queue.add("tick", None, repeat=RepeatPattern.every(100))
        [meta] = await queue.get_repeatable_jobs()
        while len(ran) < 25:
            await queue.add_bulk([{"name": "other", "data": n} for n in range(500)])
            await eventually(lambda: desk.waiting() < 1_000)
        assert await queue.remove_repeatable_by_key(meta.key)
        await desk.settled()
    windows = sorted(int(job_id.removeprefix("tick::every:100@")) for job_id in ran)
    assert windows == [meta.next_fire_ms + 100 * n for n in range(len(windows))]


def all_of(count: int) -> MissedFiresPolicy:
    return MissedFiresPolicy.fire_all(count)


# -- nothing to do ---------------------------------------------------------------------------------


async def test_an_idle_scheduler_sleeps_until_the_next_score_and_an_earlier_one_wakes_it(
    desk: Desk,
) -> None:
    """Its tick, which would hide a missing wake-up, is an hour away."""
    soon = now_ms(desk) + 300
    lay(desk, "soon", soon, packed("soon", limit=1))
    lay(desk, "far", soon + 10 * HOUR_MS)
    lay(desk, "paused", PAUSED_MS, packed("paused", RepeatPattern.every(50), limit=1))
    desk.redis.hset(desk.keys.spec("paused"), "aside", f"{soon} ")  # type: ignore[arg-type]
    async with desk.queue() as queue, Running(desk, **FAR) as running:
        await eventually(lambda: running.fired == [f"soon@{soon}"])
        await queue.upsert_repeatable_job(
            "n", 1, repeat=RepeatPattern.every(50), key="new", limit=1
        )
        await eventually(lambda: len(running.fired) == 2)
        assert await queue.resume_repeatable("paused")
        await eventually(lambda: len(running.fired) == 3)
        assert [job_id.partition("@")[0] for job_id in running.fired] == ["soon", "new", "paused"]
        assert len(running.ticks) < 20, "it does not sleep"


async def test_what_another_program_writes_fires_within_a_tick(desk: Desk) -> None:
    async with Running(desk, tick_ms=50) as running:
        at_ms = now_ms(desk)
        lay(desk, "theirs", at_ms)  # nobody is told
        await eventually(lambda: running.fired == [f"theirs@{at_ms}"])


@pytest.mark.parametrize("leads", [True, False])
async def test_an_idle_scheduler_asks_once_a_tick(own_desk: Desk, leads: bool) -> None:
    lay(own_desk, "far", now_ms(own_desk) + 10 * HOUR_MS)
    if not leads:
        own_desk.redis.set(own_desk.keys.scheduler_lock, "another")
    async with scheduling(own_desk, tick_ms=20) as scheduler:
        await scheduler.tick()  # whatever the server has to learn first, it knows now
        counts, waits, real = [asked(own_desk)], [], scheduler.tick

        async def tick() -> float:
            waits.append(await real())
            counts.append(asked(own_desk))
            if len(waits) == 30:
                scheduler.stop()
            return waits[-1]

        scheduler.tick = tick  # type: ignore[method-assign]
        await scheduler.run()
    assert [count - counts[0] for count in counts] == list(range(31))
    assert min(waits) >= 0.02
    assert scheduler.fired == 0


def asked(desk: Desk) -> int:
    return sum(calls(desk, name) for name in ("evalsha", "eval", "script|load"))
