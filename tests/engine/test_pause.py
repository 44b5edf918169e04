"""A paused queue: nothing new is started, nothing is lost, nobody is charged."""

from __future__ import annotations

import asyncio

import pytest

from chasquimq import BackoffSpec, Job, RepeatPattern
from chasquimq.engine import brake, holdings
from tests.engine.desk import Desk, eventually
from tests.engine.recess import LONG_BLOCK, Hand, charged, inside, is_blocked, is_paused, raw

LEASE = 300


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "EVERY_S", 0.05)


# -- the guarantee -------------------------------------------------------------------------------


async def test_the_door_says_whether_it_changed_anything(desk: Desk) -> None:
    async with desk.queue() as queue:
        assert await queue.is_paused() is False
        assert [await queue.pause("why"), await queue.pause("why not")] == [True, False]
        assert await queue.is_paused() is True
        assert desk.redis.get(desk.keys.paused).endswith(b": why")
        assert [await queue.resume(), await queue.resume()] == [True, False]
        assert await queue.is_paused() is False


async def test_what_a_blocked_read_brings_after_a_pause_is_given_back_uncharged(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No timer helps here, and nobody is told: it is the read that knows."""
    monkeypatch.setattr(brake, "EVERY_S", 3600.0)
    hand = Hand()
    async with desk.queue() as queue, desk.working(hand, read_block_ms=LONG_BLOCK) as worker:
        await is_blocked(worker)
        desk.redis.set(desk.keys.paused, "by somebody else")
        jobs = await queue.add_bulk([{"name": "", "data": n} for n in range(30)])
        await eventually(lambda: worker.health().paused)
        await eventually(lambda: worker.health().held == 0)
        assert (hand.begun, desk.pending(), desk.waiting()) == ([], [], 30)
        assert worker.health().counters.read == 0
    assert {one.id for one in desk.envelopes()} == {job.id for job in jobs}
    desk.redis.delete(desk.keys.paused)
    async with desk.working(hand):
        await desk.settled()
    assert sorted(hand.begun) == sorted(f"{job.id} 0" for job in jobs)


async def test_a_pause_and_its_end_are_heard_without_looking(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brake, "EVERY_S", 3600.0)
    async with desk.queue() as queue, desk.working(Hand(), read_block_ms=LONG_BLOCK) as worker:
        await is_blocked(worker)
        await queue.pause()
        await eventually(lambda: worker.health().paused)
        await queue.resume()
        await eventually(lambda: not worker.health().paused)
        await is_blocked(worker)


async def test_a_worker_with_nothing_to_give_back_leaves_looking_to_its_reads(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brake, "IDLE_S", 3600.0)
    async with desk.working(Hand(), read_block_ms=LONG_BLOCK) as worker:
        await is_blocked(worker)
        looks = []
        monkeypatch.setattr(brake.Brake, "look", lambda self: looks.append(self))
        await asyncio.sleep(20 * brake.EVERY_S)
        assert looks == []


async def test_what_runs_ends_and_what_waits_stays_until_the_queue_goes_on(desk: Desk) -> None:
    hand = Hand()
    async with (
        desk.queue() as queue,
        desk.working(hand, concurrency=3) as one,
        desk.working(hand, concurrency=3) as two,
    ):
        await queue.add_bulk([{"name": "", "data": "long"}] * 10)
        await eventually(lambda: len(hand.begun) == 6)
        await queue.pause()
        await is_paused(one, two)
        hand.over.set()
        await eventually(lambda: not desk.pending())
        assert (len(hand.begun), len(hand.ended), desk.waiting()) == (6, 6, 4)
        assert [event.name for event in desk.events()].count("completed") == 6
        await queue.resume()
        await desk.settled()
    assert sorted(hand.ended) == sorted({one.split()[0] for one in hand.begun})
    assert [one.split()[1] for one in hand.begun] == ["0"] * 10


@pytest.mark.parametrize("behind", [50, 500], ids=["it reads", "it is full"])
async def test_what_a_busy_worker_has_read_ahead_is_given_back(
    desk: Desk, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "AHEAD_S", 60.0)
    monkeypatch.setattr(holdings.Holdings, "surrender", lambda self: [])  # not by the claimer
    hand = Hand()
    jobs = [*[None] * 500, "long", "long", *[1] * behind]
    async with desk.queue() as queue:
        await queue.add_bulk([{"name": "", "data": data} for data in jobs])
        async with desk.working(hand, concurrency=2) as worker:
            await eventually(lambda: len(hand.begun) == 502)  # all its places are taken
            await eventually(lambda: worker.health().queued >= min(behind, 100))
            if behind > holdings.MAX_AHEAD:
                await eventually(lambda: inside(worker).holdings.hungry)
            await queue.pause()
            await eventually(lambda: len(desk.pending()) == 2)
            await eventually(lambda: worker.health().held == 2)
            assert worker.health().queued == 0
            assert set(charged(desk).values()) == {1}
            hand.over.set()
            await eventually(lambda: not desk.pending())
            assert (len(hand.begun), desk.waiting()) == (502, behind)
            await queue.resume()
            await desk.settled()
    assert [one.split()[1] for one in hand.begun] == ["0"] * len(jobs)


async def test_who_knows_of_the_pause_leaves_what_comes_where_it_is(desk: Desk) -> None:
    """A worker that was there, whose read is ended before it gets anything, and a new one."""
    hand = Hand()
    async with desk.queue() as queue, desk.working(hand, read_block_ms=LONG_BLOCK) as worker:
        await is_blocked(worker)
        await queue.pause()
        await is_paused(worker)
        entry_id = desk.put("job")
        async with desk.working(hand) as newcomer:
            await eventually(lambda: newcomer.health().state == "running")
            await is_paused(newcomer)
        # Given back it would be another entry.
        assert [row[0] for row in desk.redis.xrange(desk.keys.stream)] == [entry_id]
        assert (hand.begun, desk.pending()) == ([], [])


async def test_outcomes_of_what_runs_are_settled_in_a_pause(desk: Desk) -> None:
    over = asyncio.Event()

    async def handler(job: Job) -> int:
        await over.wait()
        if job.data is not None:
            raise ValueError(job.data)
        return 7

    slow = BackoffSpec.fixed(3_600_000, jitter_ms=0)
    async with (
        desk.queue() as queue,
        desk.working(handler, store_results=True, backoff=slow, claim_min_idle_ms=LEASE) as worker,
    ):
        good = await queue.add("", None)
        await queue.add("", "again")
        await queue.add("", "dead", attempts=1)
        await eventually(lambda: worker.health().running == 3)
        await queue.pause()
        await is_paused(worker)
        # Leases go on: nobody could claim them.
        gap = worker.health().renewal_gap_s
        await eventually(lambda: (worker.health().renewal_gap_s or 0) < (gap or 0))
        over.set()
        assert await queue.wait_for_result(good.id, 20) == 7
        await eventually(lambda: (desk.delayed(), len(desk.dead()), desk.pending()) == (1, 1, []))
        assert worker.health().counters.leases_lost == 0


async def test_what_is_due_comes_in_and_waits(desk: Desk) -> None:
    hand = Hand()
    async with desk.queue() as queue, desk.working(hand) as worker:
        await queue.pause()
        await is_paused(worker)
        await queue.add("", "later", delay_ms=10)
        await queue.add("", "often", repeat=RepeatPattern.every(100), limit=2)
        await queue.add("", "now")
        await eventually(lambda: desk.waiting() == 4)
        assert hand.begun == []
        await queue.resume()
        await desk.settled()
    assert len(hand.ended) == 4


async def test_two_groups_on_one_queue_are_both_paused(desk: Desk) -> None:
    first, second = Hand(), Hand()
    async with (
        desk.queue() as queue,
        desk.working(first, group="first") as one,
        desk.working(second, group="second") as two,
    ):
        await is_blocked(one)
        await is_blocked(two)
        await queue.pause()
        job = await queue.add("", "job")
        await is_paused(one, two)
        await eventually(lambda: one.health().held == two.health().held == 0)
        assert first.begun == second.begun == []
        await queue.resume()
        await eventually(lambda: f"{job.id} 0" in first.begun or f"{job.id} 0" in second.begun)


# -- what others left ----------------------------------------------------------------------------


async def test_nothing_is_claimed_in_a_pause(desk: Desk) -> None:
    hand = Hand()
    desk.put("left")
    [left] = desk.abandon(1, "dead")
    async with desk.queue() as queue:
        await queue.pause()
        async with desk.working(hand, claim_min_idle_ms=LEASE) as worker:
            await eventually(lambda: worker._consumer and inside(worker).lease.steady())
            # As the claimer would if it did not know yet: the script knows.
            recovery = inside(worker).recovery
            await recovery._look()
            await recovery._claim()
            assert (recovery.waiting, charged(desk)) == (1, {left: 1})
            assert desk.pending()[0]["consumer"] == b"dead"
            await queue.resume()
            await desk.settled()
    assert hand.begun == ["left 1"]


async def test_a_suspect_that_waits_for_a_place_goes_back_with_its_count(desk: Desk) -> None:
    hand = Hand()
    desk.put("long", "long")
    options = {"claim_min_idle_ms": LEASE, "concurrency": 1, "consumer_id": "busy"}
    async with desk.queue() as queue, desk.working(hand, **options) as worker:
        await eventually(lambda: hand.begun)
        desk.put("left")
        [left] = desk.abandon(1, "dead", deliveries=2)
        await eventually(lambda: worker.health().suspects == 1)
        recovery, holdings = inside(worker).recovery, inside(worker).holdings
        recovery._every_s = 3600.0  # nor does the claimer's timer help
        holdings._turned_at -= 1  # as if a place had become free a moment before
        holdings.nudge.set()
        await eventually(lambda: worker.health().queued == 1)
        assert charged(desk)[left] == 3
        await queue.pause()
        await eventually(lambda: charged(desk)[left] == 2)
        hand.over.set()
        await eventually(lambda: "long" in hand.ended and worker.health().held == 0)
        assert len(hand.begun) == 1
    desk.redis.delete(desk.keys.paused)
    async with desk.working(hand, claim_min_idle_ms=LEASE):
        await desk.settled()
    assert hand.begun[1:] == ["left 2"]


async def test_a_worker_with_a_lasting_name_takes_its_own_back_after_the_pause(desk: Desk) -> None:
    hand = Hand()
    for number in range(3):
        desk.put(f"job-{number}")
    ids = desk.abandon(2, "in-place")
    async with desk.queue() as queue:
        await queue.pause()
        async with desk.working(hand, consumer_id="in-place") as worker:
            await is_paused(worker)
            assert charged(desk) == dict.fromkeys(ids, 1)
        assert charged(desk) == dict.fromkeys(ids, 1)  # also a stop leaves them as they are
        async with desk.working(hand, consumer_id="in-place") as worker:
            await is_paused(worker)
            await queue.resume()
            await desk.settled()
    assert sorted(hand.begun) == ["job-0 1", "job-1 1", "job-2 0"]


async def test_what_a_lost_reply_had_brought_in_a_pause_is_given_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brake, "EVERY_S", 3600.0)
    hand = Hand()
    desk.put("first")
    async with desk.working(hand, consumer_id="me", read_block_ms=LONG_BLOCK) as worker:
        await eventually(lambda: hand.ended and not desk.pending())
        await is_blocked(worker)
        # Blocked readers are served behind a transaction: the entry is ours, and we do not know.
        pipe = desk.redis.pipeline(transaction=True)
        pipe.set(desk.keys.paused, "")
        pipe.xadd(desk.keys.stream, raw())
        pipe.xreadgroup("default", "me", {desk.keys.stream: ">"})
        pipe.execute()
        assert len(desk.pending()) == 1
        desk.redis.client_kill_filter(_id=str(inside(worker).reader._client_id))
        await eventually(lambda: not desk.pending() and desk.waiting() == 1)
        assert worker.health().paused
        assert len(hand.begun) == 1
