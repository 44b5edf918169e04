"""Delayed jobs run when they are due, on one promoter at a time."""

from __future__ import annotations

import asyncio

from chasquimq import Job, wire
from chasquimq.address import read_url
from chasquimq.config import PromoteOptions
from chasquimq.engine.promoter import Promoter
from chasquimq.happening import Happening
from chasquimq.job import Envelope
from chasquimq.store import Dialer, Store
from tests.engine.desk import Desk, eventually


async def test_a_delayed_job_runs_once_due_and_not_before(desk: Desk) -> None:
    seen: list[tuple[str, int]] = []

    async def handler(job: Job) -> None:
        seconds, micros = desk.redis.time()
        seen.append((job.id, int(seconds) * 1000 + int(micros) // 1000))

    async with desk.queue() as queue, desk.working(handler):
        for number in range(20):
            await queue.add("d", number, delay_ms=10 * number + 1, job_id=f"d-{number}")
        due = dict(desk.redis.zrange(desk.keys.delayed, 0, -1, withscores=True))
        scores = {wire.unpack_envelope(wire.split_member(m)[1]).id: at for m, at in due.items()}
        await desk.settled()
    assert sorted(job_id for job_id, _ in seen) == sorted(f"d-{n}" for n in range(20))
    assert all(at >= scores[job_id] for job_id, at in seen if job_id in scores)


async def test_a_job_put_in_front_is_not_late(desk: Desk) -> None:
    """The promoter sleeps until the next score; an earlier one wakes it. Polling, which would
    hide a missing wake-up, is an hour away."""
    store = await opened(desk)
    promoter = Promoter(store, "holder", lambda happening: None, PromoteOptions(poll_ms=3_600_000))
    async with desk.queue() as queue, asyncio.TaskGroup() as group:
        await queue.add("far", 1, delay_ms=3_600_000)
        group.create_task(promoter.run())
        await eventually(lambda: promoter.leads)
        await queue.add("near", 1, delay_ms=5, job_id="near")
        await eventually(lambda: [envelope.id for envelope in desk.envelopes()] == ["near"])
        [entry_id] = desk.abandon(1, "us")  # retries wake it, too
        member = wire.join_member(b"", wire.pack_envelope(Envelope("again", b"\xc0", 1)))
        retry = ("default", "us", entry_id, 5, member, desk.keys.wake)
        assert await store.link.run("retry", (desk.keys.stream, desk.keys.delayed), retry) == 1
        await eventually(lambda: "again" in [envelope.id for envelope in desk.envelopes()])
        promoter.stop()
    await store.close()


async def test_a_promoted_job_can_no_longer_be_cancelled_and_its_id_stays_taken(
    desk: Desk,
) -> None:
    async def handler(job: Job) -> None:
        pass

    async with desk.queue() as queue, desk.working(handler):
        await queue.add("d", 1, delay_ms=1, job_id="once")
        await desk.settled()
        assert await queue.cancel_delayed("once") is False
        await queue.add("d", 2, delay_ms=1, job_id="once")
        assert desk.delayed() == 0
    assert not desk.redis.exists(desk.keys.didx("once"))


async def test_unreadable_members_are_buried_and_the_rest_goes_on(desk: Desk) -> None:
    good = wire.join_member(b"n", wire.pack_envelope(Envelope("good", b"\xc0", 1)))
    old = b"\x01n" + wire.pack_envelope(Envelope("one-byte form", b"\xc0", 1))
    bad = [b"", b"\x01", b"abc", b"\xff\xff\x00\x00short"]
    for score, member in enumerate([*bad, good, old]):
        desk.redis.zadd(desk.keys.delayed, {member: score})
    seen: list[tuple[str, str]] = []

    async def handler(job: Job) -> None:
        seen.append((job.id, job.name))

    async with desk.working(handler):
        await desk.settled()
    assert seen == [("good", "n"), ("one-byte form", "n")]
    assert [(dead[b"d"], dead[b"reason"]) for dead in desk.dead()] == [
        (member, b"malformed") for member in bad
    ]


async def test_one_promoter_leads_and_another_takes_over(desk: Desk) -> None:
    told: list[Happening] = []
    async with asyncio.timeout(20):
        stores = [await opened(desk) for _ in range(2)]
        one, other = (
            Promoter(store, f"holder-{n}", told.append, PromoteOptions())
            for n, store in enumerate(stores)
        )
        await one.tick()
        await other.tick()
        assert (one.leads, other.leads) == (True, False)
        assert desk.redis.get(desk.keys.promoter_lock) == b"holder-0"
        assert 0 < desk.redis.ttl(desk.keys.promoter_lock) <= 5
        await stores[1].delayed.release("holder-1")  # not its own: stays
        assert desk.redis.get(desk.keys.promoter_lock) == b"holder-0"
        await stores[0].delayed.release("holder-0")
        await other.tick()
        assert other.leads
        for store in stores:
            await store.close()


async def test_a_worker_releases_the_lock_when_it_stops(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        pass

    async with desk.working(handler, consumer_id="leader"):
        await eventually(lambda: desk.redis.get(desk.keys.promoter_lock) == b"leader")
    assert not desk.redis.exists(desk.keys.promoter_lock)


async def test_promotion_can_be_off(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        pass

    async with desk.queue() as queue, desk.working(handler, delayed_enabled=False):
        await queue.add("d", 1, delay_ms=1)
        await queue.add("n", 1)
        await eventually(lambda: desk.waiting() == 0)
        assert not desk.redis.exists(desk.keys.promoter_lock)
    assert desk.delayed() == 1


async def opened(desk: Desk) -> Store:
    store = Store(desk.keys, Dialer(read_url(desk.server.url)), desk.server.forced_dialect)
    await store.open()
    return store
