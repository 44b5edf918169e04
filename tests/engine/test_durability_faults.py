"""Durable adds when something breaks: servers that die, connections, closes, missing rights."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest

from chasquimq import AccessError, Job, Queue, StoreError, UnconfirmedError, wire
from chasquimq.address import read_url
from chasquimq.config import ConnectOptions, Durability, DurabilityOptions, ProducerOptions
from chasquimq.engine import producer
from chasquimq.engine.clock import now_ms
from chasquimq.engine.session import Session
from chasquimq.job import Draft
from chasquimq.server import Server
from chasquimq.store import Dialer, Store
from tests.engine.desk import Desk, eventually
from tests.engine.shelter import DURABLE, LATER, SOON, Shelter, unconfirmed
from tests.servers import DialectServer

SECRET = "canary-in-a-coal-mine"  # not a secret


class Stream:
    """Adds that go on until they are stopped, and what became of each."""

    def __init__(self, queue: Queue) -> None:
        self.confirmed: set[str] = set()
        self.doubtful = 0
        self._queue = queue

    async def add(self) -> None:
        while True:
            try:
                self.confirmed.add((await self._queue.add("n", 1)).id)
            except UnconfirmedError:
                self.doubtful += 1


@pytest.mark.parametrize("how", ["the master dies", "the network splits"])
async def test_every_confirmed_job_is_on_the_replica_that_takes_over(
    shelter: Shelter, how: str
) -> None:
    desk, replica = shelter.desk, shelter.replica
    async with desk.queue(durability="replicated", **SOON) as queue:
        stream = Stream(queue)
        adding = [asyncio.ensure_future(stream.add()) for _ in range(20)]
        await eventually(lambda: len(stream.confirmed) > 300)
        if how == "the master dies":
            desk.server.server.kill()
        else:
            replica.line.cut()
            await eventually(lambda: stream.doubtful >= 10)
        for task in adding:
            task.cancel()
        replica.promote()
        rows = replica.redis.xrange(desk.keys.stream)
        there = {wire.unpack_envelope(fields[b"d"]).id for _, fields in rows}
        assert stream.confirmed <= there
        if how == "the master dies":
            desk.server.server.start()
        else:
            assert desk.waiting() > len(rows)  # what the split cost, and nobody was promised


async def test_what_the_disk_confirmed_is_there_after_a_crash(own_desk: Desk) -> None:
    if own_desk.server.name != "valkey":  # which is believed under appendfsync always only
        own_desk.redis.config_set("appendfsync", "everysec")
    async with own_desk.queue(durability="local") as queue:
        jobs = await asyncio.gather(*(queue.add("n", n) for n in range(200)))
        own_desk.server.server.kill()
        own_desk.server.server.start()
        jobs.append(await queue.add("n", 200))
    assert {job.id for job in jobs} == {envelope.id for envelope in own_desk.envelopes()}


@pytest.mark.parametrize("level", DURABLE)
async def test_a_wait_that_was_cut_off_is_sent_again_with_its_jobs(
    shelter: Shelter, level: Durability
) -> None:
    desk = shelter.desk
    async with desk.queue(durability=level, durability_timeout_ms=60_000) as queue:
        await queue.add("warm", 1)
        shelter.stall(level)
        kinds: list[dict[str, Any]] = [{}, LATER, {"job_id": "mine"}, {"job_id": "due", **LATER}]
        adding = [asyncio.ensure_future(queue.add("n", 1, **kind)) for kind in kinds]
        await eventually(lambda: shelter.count() == 2)
        seen: set[str] = set()
        for _ in range(3):
            seen |= await shelter.next_wait(seen)
            desk.redis.delete(desk.keys.didx("due"))  # as if it had been due, and promoted
            desk.redis.client_kill_filter(_type="normal", skipme=True)
        await shelter.next_wait(seen)
        assert not any(task.done() for task in adding)
        shelter.mend(level)
        jobs = [await task for task in adding]
        assert not any(job.duplicate for job in jobs)  # the first answer is the true one
    assert shelter.count() == 1 + len(kinds)


@pytest.mark.parametrize("level", DURABLE)
async def test_a_close_waits_for_durable_adds(shelter: Shelter, level: Durability) -> None:
    queue = shelter.desk.queue(durability_timeout_ms=60_000)
    await queue.add("warm", 1, durability=level)
    shelter.stall(level)
    adding = [asyncio.ensure_future(queue.add("n", n, durability=level)) for n in range(10)]
    await eventually(lambda: shelter.count() == 2)  # one is on its way, the rest has gathered
    closing = asyncio.ensure_future(queue.close())
    await asyncio.sleep(0)  # it has begun
    shelter.mend(level)
    await closing
    assert all(isinstance(job, Job) for job in await asyncio.gather(*adding))
    assert shelter.count() == 11
    await eventually(lambda: len(shelter.desk.redis.client_list(_type="normal")) == 1)  # ours


async def test_a_close_tells_those_who_are_not_confirmed(
    shelter: Shelter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "GOODBYE_S", 1.0)  # two waits take longer than that
    queue = shelter.desk.queue(durability="replicated", durability_timeout_ms=1_000)
    await queue.add("warm", 1)
    shelter.stall("replicated")
    adding = [asyncio.ensure_future(unconfirmed(queue)) for _ in range(10)]
    await eventually(lambda: shelter.count() == 2)
    await queue.close()
    assert all(error.accepted for error in await asyncio.gather(*adding))
    assert shelter.count() == 11


async def test_a_long_wait_is_no_broken_connection(shelter: Shelter) -> None:
    durable = DurabilityOptions(durability="replicated", durability_timeout_ms=1_500)
    options = ProducerOptions(durable=durable, connect=ConnectOptions(reply_ms=500))
    dialer = Dialer(read_url(shelter.desk.server.url), None, options.connect)
    store = Store(shelter.desk.keys, dialer, shelter.desk.server.forced_dialect)
    session = Session(asyncio.get_running_loop(), store, options)
    adding = await session.producer()
    shelter.stall("replicated")
    _, told = await session.send_one(Draft(b"", b"\xc0"), now_ms())
    assert told is not None and "0 of 1 replicas" in str(told.errors[0])
    assert adding.link.reconnects == 0
    await session.close()


async def test_a_lost_answer_names_its_job(own_desk: Desk) -> None:
    """Not only of durable adds: who knows the id can look for the job."""
    server = own_desk.server.server
    async with own_desk.queue() as queue:
        await queue.add("warm", 1)
        server.pause()
        one = asyncio.ensure_future(queue.add("n", 1, **LATER))
        two = asyncio.ensure_future(queue.add_bulk([{"data": n, **LATER} for n in range(2)]))
        await asyncio.sleep(0.05)  # they are on their way
        server.kill()
        with pytest.raises(UnconfirmedError, match="may be in, or not") as caught:
            await one
        with pytest.raises(UnconfirmedError) as bulk:
            await two
        server.start()
    errors = [caught.value, *bulk.value.outcomes]
    assert len({error.job_id for error in errors}) == 3
    assert all(len(error.job_id) == 26 and error.accepted is None for error in errors)


async def test_a_caller_who_leaves_takes_nothing_back(shelter: Shelter) -> None:
    async with shelter.desk.queue(durability="replicated") as queue:
        await queue.add("warm", 1)
        shelter.stall("replicated")
        adding = [asyncio.ensure_future(queue.add("n", n)) for n in range(3)]
        await eventually(lambda: shelter.count() == 2)
        for task in adding[:2]:
            task.cancel()
        shelter.mend("replicated")
        assert isinstance(await adding[2], Job)
    assert all(task.cancelled() for task in adding[:2])
    assert shelter.count() == 3  # the first was on its way, the second was not sent any more


# -- servers that cannot confirm -------------------------------------------------------------------


async def test_without_an_append_only_file_nothing_is_sent(desk: Desk) -> None:
    async with desk.queue(**SOON) as queue:
        for _ in range(2):
            with pytest.raises(StoreError, match="set appendonly yes, or use durability='memory'"):
                await queue.add("n", 1, durability="local")
        assert not desk.redis.exists(desk.keys.stream)
        await queue.add("n", 1)
        error = await unconfirmed(queue, durability="replicated")
        assert "0 of 1 replicas" in str(error)
    assert desk.waiting() == 2


async def test_without_the_command_nothing_is_sent(
    dialect_server: DialectServer, queue_name: str
) -> None:
    hidden = {"rename-command": ("WAITAOF", "")}
    with Server(dialect_server.server.binary, appendonly=True, config=hidden) as old:
        server = DialectServer(dialect_server.name, old, dialect_server.forced_dialect)
        desk = Desk(server, queue_name)
        async with desk.queue() as queue:
            with pytest.raises(StoreError, match="it has no WAITAOF"):
                await queue.add("n", 1, durability="local")
        assert not desk.redis.exists(desk.keys.stream)
        server.close()


async def test_a_file_that_is_switched_off_later_leaves_it_unconfirmed(own_desk: Desk) -> None:
    async with own_desk.queue(durability="local", **SOON) as queue:
        await queue.add("warm", 1)
        own_desk.redis.config_set("appendonly", "no")
        error = await unconfirmed(queue)
        assert error.accepted is True
        assert "appendonly is disabled" in str(error)
        own_desk.redis.config_set("appendonly", "yes")
        await eventually(lambda: not own_desk.redis.info("persistence")["aof_rewrite_in_progress"])
        await queue.add("n", {"n": 1}, job_id=error.job_id)
    assert own_desk.waiting() == 2


async def test_a_server_that_answers_before_it_has_synced_is_refused(own_desk: Desk) -> None:
    own_desk.redis.config_set("appendfsync", "everysec")
    blind = "ACL SETUSER blind on nopass ~* &* +@all -config"
    own_desk.redis.execute_command(*blind.split())
    url = own_desk.server.url.replace("redis://", "redis://blind:x@")
    async with own_desk.queue() as queue, own_desk.queue(redis_url=url) as other:
        if own_desk.server.name != "valkey":
            await queue.add("n", 1, durability="local")
            await other.add("n", 1, durability="local")
            return
        with pytest.raises(StoreError, match="here it is everysec; set appendfsync always"):
            await queue.add("n", 1, durability="local")
        with pytest.raises(StoreError, match="here it is unknown"):
            await other.add("n", 1, durability="local")
        assert not own_desk.redis.exists(own_desk.keys.stream)
        own_desk.redis.config_set("appendfsync", "always")
        await queue.add("n", 1, durability="local")


# -- rights, and secrets ---------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["-wait -waitaof", "resetkeys ~{*}:stream ~{*}:idmp:*"])
@pytest.mark.parametrize("level", DURABLE)
async def test_a_missing_right_leaves_it_unconfirmed_and_tells_no_secret(
    shelter: Shelter, level: Durability, missing: str
) -> None:
    rule = f"ACL SETUSER app on >{SECRET} ~* &* +@all {missing}"
    shelter.desk.redis.execute_command(*rule.split())
    url = shelter.desk.server.url.replace("redis://", f"redis://app:{SECRET}@")
    async with shelter.desk.queue(redis_url=url, durability=level, **SOON) as queue:
        error = await unconfirmed(queue)
        assert error.accepted is True
        assert "NOPERM" in str(error)
        with pytest.raises(UnconfirmedError) as caught:
            await queue.add_bulk([{"data": 1}, {"data": 2}])
        for each in (error, caught.value, *caught.value.outcomes):
            assert SECRET not in "".join(traceback.format_exception(each)) + repr(vars(each))
    assert shelter.count() == 3


async def test_who_may_not_ask_is_told_so_before_anything_is_sent(own_desk: Desk) -> None:
    rule = f"ACL SETUSER app on >{SECRET} ~* &* +@all -command|info"
    own_desk.redis.execute_command(*rule.split())
    url = own_desk.server.url.replace("redis://", f"redis://app:{SECRET}@")
    forced = own_desk.server.forced_dialect or (
        "native" if own_desk.server.name == "redis-native" else "portable"
    )
    queue = Queue(own_desk.name, redis_url=url, dialect=forced, durability="local")
    with pytest.raises(AccessError, match=r"command\|info") as caught:
        await queue.add("n", 1)
    await queue.close()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert not own_desk.redis.exists(own_desk.keys.stream)
