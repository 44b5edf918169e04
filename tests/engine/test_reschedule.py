"""What `add` delayed can be cancelled, moved and run now, whoever chose its id."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chasquimq import BackoffSpec, Job, Producer, wire
from chasquimq.address import read_url
from chasquimq.config import PromoteOptions
from chasquimq.engine.promoter import Promoter
from chasquimq.store import Dialer, Store
from tests.engine.desk import Desk, eventually
from tests.engine.roster import HOUR_MS, now_ms

KINDS = pytest.mark.parametrize("own_id", [None, "mine"], ids=["minted", "own"])


def due_ms(desk: Desk) -> float:
    [(_, score)] = desk.redis.zrange(desk.keys.delayed, 0, -1, withscores=True)
    return float(score)


async def promoter(desk: Desk) -> Promoter:
    """One that looks once an hour, unless it is woken."""
    store = Store(desk.keys, Dialer(read_url(desk.server.url)), desk.server.forced_dialect)
    await store.open()
    return Promoter(store, "holder", lambda happening: None, PromoteOptions(poll_ms=HOUR_MS))


# -- cancel --------------------------------------------------------------------------------------


@KINDS
async def test_a_delayed_job_is_cancelled_by_another_queue_object(
    desk: Desk, own_id: str | None
) -> None:
    async with desk.queue() as queue, desk.queue() as other:
        stays = await queue.add("", 1, delay_ms=HOUR_MS)
        goes = await queue.add("ñ", {"n": 2}, delay=timedelta(hours=1), job_id=own_id, attempts=3)
        assert await other.cancel_delayed(goes.id) is True
        assert [await each.cancel_delayed(goes.id) for each in (queue, other)] == [False, False]
        assert desk.delayed() == 1
        assert await other.cancel_delayed(stays.id) is True
    assert desk.redis.keys(desk.keys.tag + b"d*") == []


async def test_jobs_of_a_bulk_that_are_due_together_are_cancelled_one_by_one(desk: Desk) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    async with desk.queue() as queue:
        jobs = await queue.add_bulk([{"name": "n", "data": n, "delay": moment} for n in range(300)])
        for job in jobs[::2]:
            assert await queue.cancel_delayed(job.id) is True
    left = [
        wire.unpack_envelope(wire.split_member(member)[1]).id
        for member in desk.redis.zrange(desk.keys.delayed, 0, -1)
    ]
    assert sorted(left) == sorted(job.id for job in jobs[1::2])


async def test_the_native_door_cancels_what_it_gave_an_id(desk: Desk) -> None:
    door = Producer(desk.server.url, desk.name, dialect=desk.server.forced_dialect)
    ids = [await door.add_in(HOUR_MS, b"1"), await door.add_at(now_ms(desk) + HOUR_MS, b"2")]
    ids += await door.add_in_bulk(HOUR_MS, [b"3", b"4"])
    ids += await door.add_in_bulk_with_ids(HOUR_MS, [("own", b"5")])
    assert await door.cancel_delayed(ids[0]) is True
    assert await door.cancel_delayed_bulk([*ids, "nobody"]) == [False, *[True] * 4, False]
    await door.shutdown()
    assert desk.redis.keys(desk.keys.tag + b"d*") == []


# -- another time --------------------------------------------------------------------------------

DELAYS: list[tuple[dict[str, Any], int]] = [
    ({"delay_ms": 60_000}, 60_000),
    ({"delay_ms": 60_000.9}, 60_000),
    ({"delay": 60_000}, 60_000),
    ({"delay": timedelta(minutes=1)}, 60_000),
    ({"delay_ms": timedelta(days=2)}, 172_800_000),
    ({"delay_ms": 0}, 0),
    ({"delay": timedelta(0)}, 0),
    ({"delay": datetime(2001, 1, 1, tzinfo=UTC)}, 0),
]


@KINDS
@pytest.mark.parametrize(("options", "wait_ms"), DELAYS)
async def test_a_new_delay_counts_from_now_by_redis_time(
    desk: Desk, own_id: str | None, options: dict[str, Any], wait_ms: int
) -> None:
    async with desk.queue() as queue:
        job = await queue.add("n", 1, delay_ms=HOUR_MS, job_id=own_id)
        before = now_ms(desk)
        assert await queue.reschedule(job.id, **options) is True
        assert before + wait_ms <= due_ms(desk) <= now_ms(desk) + wait_ms
        assert await queue.cancel_delayed(job.id) is True


@KINDS
async def test_a_moment_is_kept_to_the_millisecond(desk: Desk, own_id: str | None) -> None:
    moment = datetime(2090, 12, 1, 8, 30, 0, 123_000, tzinfo=UTC)
    async with desk.queue(max_delay_secs=0) as queue:
        job = await queue.add("n", 1, delay_ms=HOUR_MS, job_id=own_id)
        for when in (moment, moment.replace(tzinfo=None)):
            assert await queue.reschedule(job.id, when) is True
            assert due_ms(desk) == moment.timestamp() * 1000


async def test_what_is_unknown_cannot_be_moved(desk: Desk) -> None:
    async with desk.queue() as queue:
        assert await queue.reschedule("nobody", 5) is False
        assert await queue.run_now("nobody") is False
        assert await queue.cancel_delayed("nobody") is False
        job = await queue.add("at once", 1)
        assert await queue.reschedule(job.id, 5) is False
    assert desk.redis.keys(desk.keys.tag + b"d*") == []


async def test_an_own_id_that_was_moved_still_comes_in_once(desk: Desk) -> None:
    async with desk.queue() as queue, desk.queue() as other:
        await queue.add("n", 1, delay_ms=1_000, job_id="once")
        assert await queue.reschedule("once", HOUR_MS) is True
        await other.add("n", 2, delay_ms=1_000, job_id="once")
    assert desk.delayed() == 1
    assert desk.redis.ttl(desk.keys.dlid("once")) > 7_100


# -- the run -------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("now", [True, False], ids=["run_now", "reschedule"])
async def test_a_job_that_was_moved_runs_as_it_was_added_and_once(
    desk: Desk, own_id: str | None, now: bool
) -> None:
    seen: list[tuple[str, str, Any, int]] = []

    async def handler(job: Job) -> None:
        seen.append((job.id, job.name, job.data, job.attempt))
        raise RuntimeError("once more")

    async with desk.queue() as queue:
        backoff = BackoffSpec.fixed(1, jitter_ms=0)
        job = await queue.add(
            "名前", {"n": 1}, delay_ms=HOUR_MS, job_id=own_id, attempts=2, backoff=backoff
        )
        async with desk.working(handler):
            assert await (queue.run_now(job.id) if now else queue.reschedule(job.id, 5)) is True
            await eventually(lambda: len(desk.dead()) == 1)
            assert await queue.run_now(job.id) is False
            assert await queue.cancel_delayed(job.id) is False
    assert seen == [(job.id, "名前", {"n": 1}, attempt) for attempt in (0, 1)]
    assert not desk.redis.exists(desk.keys.didx(job.id))


@KINDS
async def test_a_sleeping_promoter_is_woken(desk: Desk, own_id: str | None) -> None:
    """Polling, which would hide a missing wake-up, is an hour away."""
    one = await promoter(desk)
    async with desk.queue() as queue, asyncio.TaskGroup() as group:
        job = await queue.add("n", 1, delay_ms=HOUR_MS, job_id=own_id)
        soon = await queue.add("n", 2, delay_ms=HOUR_MS)
        group.create_task(one.run())
        await eventually(lambda: one.leads)
        assert await queue.run_now(job.id) is True
        await eventually(lambda: [envelope.id for envelope in desk.envelopes()] == [job.id])
        assert await queue.reschedule(soon.id, delay_ms=5) is True
        await eventually(lambda: len(desk.envelopes()) == 2)
        one.stop()
    await one._store.close()


async def test_a_job_that_was_put_off_does_not_run_before(desk: Desk) -> None:
    one = await promoter(desk)
    async with desk.queue() as queue:
        job = await queue.add("n", 1, delay_ms=1)
        await asyncio.sleep(0.005)  # it is due, and nobody has promoted it yet
        assert await queue.reschedule(job.id, HOUR_MS) is True
        assert await one.tick() > 3_000
    assert (desk.waiting(), desk.delayed()) == (0, 1)
    await one._store.close()


async def test_a_job_that_waits_for_its_retry_is_left_alone(desk: Desk) -> None:
    failed: list[str] = []

    async def handler(job: Job) -> None:
        failed.append(job.id)
        raise RuntimeError("later")

    async with desk.queue() as queue, desk.working(handler):
        jobs = [
            await queue.add("n", 1, delay_ms=1, backoff=HOUR_MS),
            await queue.add("n", 1, delay_ms=1, backoff=HOUR_MS, job_id="mine"),
        ]
        await eventually(lambda: len(failed) == desk.delayed() == 2)
        for job in jobs:
            assert await queue.cancel_delayed(job.id) is False
            assert await queue.run_now(job.id) is False
            assert await queue.reschedule(job.id, 1) is False
        assert desk.delayed() == 2


# -- the event -----------------------------------------------------------------------------------


@KINDS
async def test_a_new_time_is_told(desk: Desk, own_id: str | None) -> None:
    async with desk.queue() as queue:
        job = await queue.add("ñ", 1, delay_ms=HOUR_MS, job_id=own_id)
        await queue.reschedule(job.id, 90_000)
        await queue.run_now(job.id)
        await queue.run_now("nobody")
    told = [(row.name, row.job_id, row.job_name, row.fields["delay_ms"]) for row in desk.events()]
    assert told == [("delayed", job.id, "ñ", wait_ms) for wait_ms in (HOUR_MS, 90_000, 0)]


async def test_a_queue_without_events_tells_nothing(desk: Desk) -> None:
    async with desk.queue(events_enabled=False) as queue:
        job = await queue.add("n", 1, delay_ms=HOUR_MS)
        assert await queue.reschedule(job.id, 90_000) is True
    assert desk.events() == []


# -- counts --------------------------------------------------------------------------------------


async def test_a_queue_counts_its_jobs_where_they_are(desk: Desk) -> None:
    async with desk.queue() as queue:
        assert (await queue.counts()).to_dict() == {
            **dict.fromkeys(("waiting", "running", "delayed", "dead", "repeatables"), 0),
            "oldest_waiting_ms": None,
        }
        assert desk.redis.keys(desk.keys.tag + b"*") == []
        going = asyncio.Event()

        async def handler(job: Job) -> None:
            await going.wait()

        await queue.add("n", 0, attempts=0)
        async with desk.working(handler, concurrency=2, read_count=1):
            await eventually(lambda: len(desk.dead()) == 1)
            for number in range(3):
                await queue.add("n", number, delay_ms=HOUR_MS)
                await queue.add("n", number)
            await eventually(lambda: len(desk.pending()) >= 2)
            found = await queue.counts()
            assert found.waiting + found.running == 3
            assert (found.delayed, found.dead) == (3, 1)
            others = await queue.counts("others")
            assert (others.waiting, others.running) == (3, 0)
            going.set()
            await eventually(lambda: desk.waiting() == 0)
            found = await queue.counts()
            assert (found.waiting, found.running, found.oldest_waiting_ms) == (0, 0, None)
