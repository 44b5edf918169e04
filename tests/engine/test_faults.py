"""A worker and a queue go on when the server loses, forgets or refuses something."""

from __future__ import annotations

import asyncio

import pytest
import redis

from chasquimq import BackoffSpec, Job, QueueFullError, StoreError, UnrecoverableError
from tests.engine.desk import Desk, eventually

FAST = BackoffSpec.fixed(1, jitter_ms=0)


class Log:
    """A handler that remembers, and fails the first run of every third job."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def __call__(self, job: Job) -> None:
        if job.attempt == 0 and isinstance(job.data, int) and job.data % 3 == 0:
            raise ValueError("once")
        self.done.append(job.id)


async def test_flushall_is_survived(own_desk: Desk) -> None:
    log = Log()
    async with own_desk.queue() as queue, own_desk.working(log, read_block_ms=500):
        await queue.add("before", 1)
        await own_desk.settled()
        own_desk.redis.flushall()
        own_desk.redis.script_flush()
        added = await queue.add_bulk([{"name": "after", "data": n} for n in range(100)])
        await eventually(lambda: len(log.done) == 101)
        await own_desk.settled()
    assert set(log.done[1:]) == {job.id for job in added}


async def test_a_deleted_stream_is_created_again_with_its_settings(own_desk: Desk) -> None:
    log = Log()
    async with own_desk.queue() as queue, own_desk.working(log, read_block_ms=500):
        await queue.add("before", 1)
        await own_desk.settled()
        with own_desk.redis.pipeline(transaction=True) as together:
            together.delete(own_desk.keys.stream)  # and a producer that knows no settings
            together.xadd(own_desk.keys.stream, {"d": b"\x94\xa4else\xc4\x01\x01\x01\x00"})
            together.execute()
        await eventually(lambda: "else" in log.done)
        await queue.add("after", 1, job_id="after")
        await eventually(lambda: log.done[-1] == "after")
        if own_desk.server.name == "redis-native":
            info = own_desk.redis.execute_command("XINFO STREAM", own_desk.keys.stream)
            assert info["idmp-maxsize"] == 10_000


async def test_a_destroyed_group_is_created_again_and_misses_nothing(own_desk: Desk) -> None:
    log = Log()
    async with own_desk.queue() as queue, own_desk.working(log, read_block_ms=500):
        await queue.add("before", 1)
        await own_desk.settled()
        own_desk.redis.xgroup_destroy(own_desk.keys.stream, "default")
        await queue.add("after", 1, job_id="after")
        await eventually(lambda: "after" in log.done)
        await own_desk.settled()


async def test_forgotten_scripts_are_loaded_again(own_desk: Desk) -> None:
    log = Log()
    async with own_desk.queue() as queue, own_desk.working(log, backoff=FAST):
        for number in range(15):
            own_desk.redis.script_flush()
            await queue.add("n", number, job_id=f"id-{number}")
            await queue.add("n", number + 0.5, job_id=f"later-{number}", delay_ms=1)
        await own_desk.settled()
    assert sorted(set(log.done)) == sorted(log.done)
    assert len(log.done) == 30


async def test_a_restarted_server_is_found_again_and_nothing_is_lost(own_desk: Desk) -> None:
    log = Log()
    async with own_desk.queue() as queue, own_desk.working(log, backoff=FAST):
        await queue.add_bulk([{"name": "n", "data": n} for n in range(50)])
        await eventually(lambda: len(log.done) > 10)
        own_desk.server.server.kill()
        waiting = asyncio.ensure_future(queue.add("n", 1, job_id="while it was down"))
        await asyncio.sleep(0.2)
        own_desk.server.server.start()
        await waiting
        await eventually(lambda: _idle(own_desk))
    assert "while it was down" in log.done
    assert len(set(log.done)) == 51


def _idle(desk: Desk) -> bool:
    try:
        return desk.waiting() == 0 and desk.delayed() == 0
    except redis.ConnectionError:
        return False


async def test_a_server_out_of_memory_refuses_adds_and_goes_on_draining(own_desk: Desk) -> None:
    log = Log()
    async with own_desk.queue() as queue:
        async with own_desk.working(log):
            await eventually(lambda: own_desk.redis.exists(own_desk.keys.stream))
        await queue.add_bulk([{"name": "n", "data": n} for n in range(300)])
        await queue.add("warm", 1, delay_ms=3_600_000)
        own_desk.redis.config_set("maxmemory", 1)
        with pytest.raises(QueueFullError, match="oom"):
            await queue.add("n", 1)
        with pytest.raises(QueueFullError, match="oom") as caught:
            await queue.add_bulk([{"name": "n", "data": n} for n in range(3)])
        assert [type(outcome) for outcome in caught.value.outcomes] == [QueueFullError] * 3
        assert own_desk.waiting() == 300
        async with own_desk.working(log, backoff=FAST, events_enabled=False):
            # What succeeds is acked; what must be moved waits for memory, still held.
            await eventually(lambda: own_desk.waiting() == 100)
            own_desk.redis.config_set("maxmemory", 0)
            await eventually(lambda: own_desk.waiting() == 0 and own_desk.delayed() == 1)
    assert len(log.done) == len(set(log.done)) == 300


async def test_a_destination_of_the_wrong_type_keeps_the_job(own_desk: Desk) -> None:
    async def handler(job: Job) -> None:
        raise UnrecoverableError("bad")

    own_desk.redis.set(own_desk.keys.dlq, "in the way")
    async with own_desk.queue() as queue, own_desk.working(handler):
        await queue.add("n", 1, job_id="kept")
        await eventually(lambda: len(own_desk.pending()) == 1)
        own_desk.redis.delete(own_desk.keys.dlq)
        await eventually(lambda: len(own_desk.dead()) == 1)
        await own_desk.settled()


async def test_a_stream_of_the_wrong_type_is_a_loud_error(own_desk: Desk) -> None:
    async def handler(job: Job) -> None:
        pass

    own_desk.redis.set(own_desk.keys.stream, "in the way")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await own_desk.worker(handler).run()


async def test_a_frozen_server_costs_no_second_run(own_desk: Desk) -> None:
    """Frozen for two leases under two workers: both find everything idle when it thaws, and
    neither claims what the other still runs."""
    runs: list[str] = []

    async def handler(job: Job) -> None:
        runs.append(job.id)
        await asyncio.sleep(3)

    one = own_desk.working(handler, claim_min_idle_ms=600, concurrency=3)
    other = own_desk.working(handler, claim_min_idle_ms=600, concurrency=3)
    async with own_desk.queue() as queue, one, other:
        added = await queue.add_bulk([{"name": "n", "data": n} for n in range(6)])
        await eventually(lambda: len(runs) == 6)
        await asyncio.sleep(0.7)  # both are steady and would claim
        own_desk.server.server.pause()
        await asyncio.sleep(1.2)
        own_desk.server.server.resume()
        await own_desk.settled()
    assert sorted(runs) == sorted(job.id for job in added)


async def test_connections_that_break_under_load_lose_and_double_nothing(own_desk: Desk) -> None:
    log = Log()
    async with own_desk.queue() as queue, own_desk.working(log, backoff=FAST, concurrency=20):
        ids = ["first"]
        await queue.add("n", 1, job_id="first")
        await eventually(lambda: log.done == ["first"])
        for turn in range(10):
            jobs = [{"name": "n", "data": n, "job_id": f"{turn}-{n}"} for n in range(200)]
            ids += [str(job["job_id"]) for job in jobs]
            adding = asyncio.ensure_future(queue.add_bulk(jobs))
            await asyncio.sleep(0.005)
            own_desk.redis.client_kill_filter(_type="normal", skipme=True)
            await adding
        await own_desk.settled()
        await eventually(lambda: len(log.done) >= len(ids))
    assert sorted(log.done) == sorted(ids)


async def test_acks_that_are_refused_for_a_while_are_kept_until_they_land(own_desk: Desk) -> None:
    """Longer than a few tries: dropped ones would leave a job that is done to run again."""
    log, acl = Log(), own_desk.redis.execute_command
    native = own_desk.server.name == "redis-native"
    async with own_desk.queue() as queue, own_desk.working(log) as worker:
        await eventually(lambda: worker.health().state == "running")
        acl("ACL", "SETUSER", "default", "-xack", *["-xackdel"] * native)
        job = await queue.add("n", 1)
        await eventually(lambda: _refusals(own_desk) >= 5)
        assert [log.done, worker.health().held] == [[job.id], 1]
        acl("ACL", "SETUSER", "default", "+@all")
        await own_desk.settled()
    assert log.done == [job.id]


def _refusals(desk: Desk) -> int:
    """How often somebody was not allowed to ack."""
    said = desk.redis.acl_log()
    return sum(int(one["count"]) for one in said if "xack" in str(one["object"]))


async def test_an_event_and_an_ack_that_are_lost_together_are_made_good(own_desk: Desk) -> None:
    """Both of one write whose connection is gone before any of it is answered."""

    async def handle(job: Job) -> None:
        own_desk.redis.client_kill_filter(_type="normal", skipme=True)  # nothing else runs

    async with own_desk.queue(add_timeout_ms=60_000) as queue, own_desk.working(handle):
        for number in range(20):
            await queue.add("cuts", number, job_id=f"id-{number}")
            await own_desk.settled()
