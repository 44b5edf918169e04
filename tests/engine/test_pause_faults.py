"""Pauses and the limits of a worker, its health, and what befalls the key and the server."""

from __future__ import annotations

import asyncio
import logging

import pytest

from chasquimq import Worker
from chasquimq.engine import brake, holdings
from tests.engine.desk import Desk, eventually
from tests.engine.recess import LONG_BLOCK, Hand, charged, inside, is_blocked, is_paused, raw
from tests.servers import DialectServer

LEASE = 300
WARNING = "the queue is paused: this burst ends"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "EVERY_S", 0.05)


async def run(worker: Worker) -> None:
    await asyncio.wait_for(worker.run(), 60)


def user(server: DialectServer, *rules: str) -> str:
    """The URL of a user with these rules; of one test only, on a server of its own."""
    server.client().execute_command("ACL", "SETUSER", "ada", "on", ">pw", *rules)
    return server.url.replace("redis://", "redis://ada:pw@")


# -- limits --------------------------------------------------------------------------------------


async def test_a_burst_ends_on_a_paused_queue_and_says_why(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    hand = Hand()
    desk.put("job")
    desk.put("own")
    desk.abandon(1, "in-place")
    desk.redis.set(desk.keys.paused, "")
    with caplog.at_level(logging.WARNING):
        await run(desk.worker(hand, burst=True))
        await run(desk.worker(hand, burst=True, consumer_id="in-place"))
    assert [WARNING in message for message in caplog.messages] == [True, True]
    assert (hand.begun, desk.waiting(), list(charged(desk).values())) == ([], 2, [1])


async def test_a_burst_that_is_paused_ends_when_its_jobs_have(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brake, "IDLE_S", 0.05)  # it reads nothing ahead, and looks as the idle do
    hand = Hand()
    desk.put("long", "long")
    desk.put("next")
    async with asyncio.TaskGroup() as group:
        worker = desk.worker(hand, burst=True, concurrency=1)
        running = group.create_task(run(worker))
        await eventually(lambda: hand.begun)
        desk.redis.set(desk.keys.paused, "")
        await eventually(lambda: worker.health().paused)
        assert not running.done()
        hand.over.set()
    assert (hand.ended, desk.waiting(), desk.pending()) == (["long"], 1, [])
    assert any(WARNING in message for message in caplog.messages)


async def test_what_was_given_back_does_not_count_for_max_jobs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "AHEAD_S", 60.0)
    hand = Hand()
    async with desk.queue() as queue, asyncio.TaskGroup() as group:
        await queue.add_bulk([{"name": "", "data": None}] * 100)
        await queue.add_bulk([{"name": "", "data": "long"}] + [{"name": "", "data": 1}] * 50)
        worker = desk.worker(hand, max_jobs=120, concurrency=1)
        running = group.create_task(run(worker))
        await eventually(lambda: worker.health().queued == 19)
        await queue.pause()
        await eventually(lambda: worker.health().held == 1)
        hand.over.set()
        await eventually(lambda: worker.health().held == 0)
        await is_paused(worker)
        assert (running.done(), len(hand.ended)) == (False, 101)
        await queue.resume()
    assert (len(hand.ended), desk.waiting()) == (120, 31)


@pytest.mark.parametrize("how", ["close", "max_runtime"])
async def test_a_paused_worker_stops_at_once(desk: Desk, how: str) -> None:
    desk.redis.set(desk.keys.paused, "")
    desk.put("job")
    options = {"max_runtime_ms": 600} if how == "max_runtime" else {}
    worker = desk.worker(Hand(), read_block_ms=LONG_BLOCK, **options)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await eventually(lambda: worker.health().paused)
        if how == "close":
            await worker.close()
    assert worker.health().state == "stopped"
    assert (desk.waiting(), desk.pending()) == (1, [])
    assert desk.redis.xinfo_consumers(desk.keys.stream, "default") == []


# -- health, and what befalls the key ------------------------------------------------------------


async def test_a_paused_worker_is_healthy_and_keeps_looking(desk: Desk) -> None:
    async with desk.queue() as queue, desk.working(Hand(), read_block_ms=1) as worker:
        await eventually(lambda: worker.health().healthy)
        assert worker.health().paused is False
        await queue.pause()
        await is_paused(worker)
        reader, reads = inside(worker).reader, []
        for _ in range(3):  # there are no reads, and yet it is fresh
            reads.append(reader.last_read_at)
            await eventually(lambda: reader.last_read_at != reads[-1])
        assert not reader._blocked
        health = worker.health()
        assert (health.healthy, health.problems, health.to_dict()["paused"]) == (True, (), True)
        await queue.resume()
        await eventually(lambda: not worker.health().paused)


async def test_a_key_that_is_deleted_ends_the_pause(desk: Desk) -> None:
    hand = Hand()
    desk.redis.set(desk.keys.paused, "")
    async with desk.queue() as queue, desk.working(hand) as worker:
        await is_paused(worker)
        await queue.add("", None)
        desk.redis.delete(desk.keys.paused)
        await eventually(lambda: hand.ended)


async def test_a_server_that_is_emptied_ends_the_pause(own_desk: Desk) -> None:
    hand = Hand()
    async with own_desk.queue() as queue, own_desk.working(hand) as worker:
        await queue.pause()
        await is_paused(worker)
        own_desk.redis.flushall()
        await queue.add("", None)
        await eventually(lambda: hand.ended)


async def test_a_pause_outlives_the_server(own_desk: Desk) -> None:
    hand = Hand()
    async with own_desk.queue() as queue, own_desk.working(hand) as worker:
        await queue.add("", "first")
        await eventually(lambda: hand.ended and not own_desk.pending())
        await queue.pause()
        await is_paused(worker)
        await queue.add("", "second")
        await asyncio.to_thread(own_desk.server.server.kill)
        await asyncio.to_thread(own_desk.server.server.start)
        await eventually(lambda: worker.health().healthy)
        looked_at = inside(worker).reader.brake.looked_at
        await eventually(lambda: inside(worker).reader.brake.looked_at != looked_at)
        assert worker.health().paused
        assert (len(hand.begun), own_desk.waiting()) == (1, 1)
        await queue.resume()
        await eventually(lambda: len(hand.ended) == 2)


async def test_what_cannot_be_given_back_is_not_started_either(own_desk: Desk) -> None:
    desk, hand = own_desk, Hand()
    async with desk.working(hand, read_block_ms=LONG_BLOCK, events_enabled=False) as worker:
        await is_blocked(worker)
        # All at one moment: a pause, a job for the read that blocks, and no memory for a copy.
        pipe = desk.redis.pipeline(transaction=True)
        pipe.set(desk.keys.paused, "")
        pipe.xadd(desk.keys.stream, raw())
        pipe.config_set("maxmemory", 1)
        pipe.execute()
        await eventually(lambda: worker.health().held == 1)
        await is_paused(worker)
        assert (worker.health().queued, worker.health().running) == (0, 0)
        desk.redis.delete(desk.keys.paused)
        await eventually(lambda: not worker.health().paused)
        assert (worker.health().held, len(desk.pending())) == (1, 1)
        desk.redis.config_set("maxmemory", 0)
        await eventually(lambda: len(desk.dead()) == 1)  # read again, and it was no job
        await eventually(lambda: worker.health().counters.given_back == 1)


async def test_a_worker_that_may_not_look_works_on_and_says_so_once(
    own_desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    hand = Hand()
    url = user(own_desk.server, "~*", "&*", "+@all", "resetkeys", "~*:stream")
    own_desk.put("left")
    own_desk.abandon(1, "dead")
    own_desk.redis.set(own_desk.keys.paused, "")
    options = {"delayed_enabled": False, "run_scheduler": False, "events_enabled": False}
    async with own_desk.working(hand, redis_url=url, claim_min_idle_ms=LEASE, **options) as worker:
        own_desk.put("job")
        await own_desk.settled()
        await eventually(lambda: (inside(worker).reader.brake.looked_at or 0) > 0)
        assert worker.health().paused is False
    assert sorted(hand.begun) == ["job 0", "left 1"]
    assert sum("does not heed pauses" in message for message in caplog.messages) == 1
