"""The standalone Promoter: one leads, another takes over, and it tells what it moved."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chasquimq import InMemorySink, StoreUnavailableError, wire
from chasquimq.address import read_url
from chasquimq.engine.writer import LinkWriter
from chasquimq.job import Envelope
from chasquimq.native import Promoter
from chasquimq.store import Dialer, Store
from chasquimq.store.resp import pack
from tests.chaos.kit.fleet import Process, environment
from tests.chaos.kit.wait import eventually as wait_until
from tests.engine.desk import Desk, eventually

PROGRAM = """
import asyncio, json, sys
from chasquimq.native import Promoter
from tests.chaos.kit.fleet import obey_parent

obey_parent()
print("ready", flush=True)
asyncio.run(Promoter(**json.loads(sys.argv[1])).run())
"""


def promoter(desk: Desk, **options: Any) -> Promoter:
    return Promoter(desk.server.url, desk.name, dialect=desk.server.forced_dialect, **options)


@asynccontextmanager
async def promoting(desk: Desk, **options: Any) -> AsyncIterator[Promoter]:
    """A promoter that runs for the block, and must end when it is told to."""
    door = promoter(desk, **options)
    async with asyncio.TaskGroup() as group:
        group.create_task(door.run())
        try:
            yield door
        finally:
            door.shutdown()


def holder(desk: Desk) -> bytes | None:
    return desk.redis.get(desk.keys.promoter_lock)  # type: ignore[return-value]


def delay(desk: Desk, job_id: str, name: str = "", due: float = 1.0) -> None:
    """A delayed job as another program would write it, without a wake-up."""
    body = wire.pack_envelope(Envelope(job_id, b"\xc1", 1_700_000_000_000))
    desk.redis.zadd(desk.keys.delayed, {wire.join_member(name.encode(), body): due})


async def test_due_jobs_come_into_the_stream_and_are_told_of(desk: Desk) -> None:
    delay(desk, "one")
    delay(desk, "two", "ñ", 2)
    delay(desk, "far", due=2e12)
    async with promoting(desk):
        await eventually(lambda: desk.waiting() == 2)
        async with desk.queue() as queue:
            await queue.add("now", 1, delay_ms=5, job_id="three")
        await eventually(lambda: desk.waiting() == 3)
    assert [envelope.id for envelope in desk.envelopes()] == ["one", "two", "three"]
    told = [(e.job_id, e.job_name) for e in desk.events() if e.name == "waiting"]
    assert told == [("one", ""), ("two", "ñ"), ("three", "now")]
    assert desk.delayed() == 1


async def test_events_can_be_off_and_are_capped(desk: Desk) -> None:
    for number in range(2_500):
        delay(desk, f"j-{number}", due=number)
    sink = InMemorySink()
    async with promoting(desk, events_enabled=False, promote_batch=1_000, metrics=[sink]):
        await eventually(lambda: desk.waiting() == 2_500)
    assert desk.events() == []
    assert sink.rollup().worker.promoted == 2_500
    for number in range(2_500):
        delay(desk, f"k-{number}", due=number)
    async with promoting(desk, events_max_stream_len=100):
        await eventually(lambda: desk.delayed() == 0)
    assert 100 <= desk.redis.xlen(desk.keys.events) <= 1_200  # trimmed once per thousand


async def test_one_leads_and_lets_go_when_it_is_told_to_stop(desk: Desk) -> None:
    async with promoting(desk) as first:
        await eventually(lambda: holder(desk))
        name = holder(desk)
        assert name is not None and name.startswith(b"p-") and len(name) == 38
        async with promoting(desk, holder_id="other", poll_interval_ms=20):
            delay(desk, "due")
            await eventually(lambda: desk.waiting() == 1)
            assert holder(desk) == name
            first.shutdown()
            await eventually(lambda: holder(desk) == b"other")
            delay(desk, "due-2")
            await eventually(lambda: desk.waiting() == 2)
    assert holder(desk) is None


async def test_another_takes_over_from_one_that_was_killed(desk: Desk, tmp_path: Path) -> None:
    orders = {"redis_url": desk.server.url, "queue_name": desk.name, "holder_id": "victim"}
    orders |= {"dialect": desk.server.forced_dialect, "lock_ttl_secs": 1}
    command = [sys.executable, "-c", PROGRAM, json.dumps(orders)]
    victim = Process(command, tmp_path / "stderr", environment(ours=True))
    try:
        victim.wait_ready()
        await eventually(lambda: holder(desk) == b"victim")
        async with promoting(desk, holder_id="heir", lock_ttl_secs=1, poll_interval_ms=50):
            victim.kill()
            delay(desk, "orphan")
            await eventually(lambda: holder(desk) == b"heir")
            await eventually(lambda: desk.waiting() == 1)
    finally:
        victim.kill()
    assert [envelope.id for envelope in desk.envelopes()] == ["orphan"]


async def test_a_stream_that_it_makes_has_our_settings(desk: Desk) -> None:
    """All delayed jobs may be another program's, which makes no stream before it adds to it."""
    async with promoting(desk):
        await eventually(lambda: holder(desk))
    assert desk.redis.type(desk.keys.stream) == b"stream"
    if desk.server.name == "redis-native":
        assert desk.redis.xinfo_stream(desk.keys.stream)["idmp-maxsize"] == 10_000


async def test_a_restart_of_the_server_is_waited_out(own_desk: Desk) -> None:
    desk, sink = own_desk, InMemorySink()
    async with promoting(desk, lock_ttl_secs=1, poll_interval_ms=50, metrics=sink):
        await eventually(lambda: holder(desk))
        desk.server.server.kill()
        desk.server.server.start()
        delay(desk, "after")
        await eventually(lambda: desk.waiting() == 1)
        await eventually(lambda: [e.job_id for e in desk.events()] == ["after"])
    assert sink.rollup().worker.reconnects >= 1


async def test_it_gives_up_when_it_was_told_when(own_desk: Desk) -> None:
    desk = own_desk
    door = promoter(desk, reconnect_max_attempts=2, poll_interval_ms=50)
    running = asyncio.ensure_future(door.run())
    await eventually(lambda: holder(desk))
    desk.server.server.kill()
    with pytest.raises(StoreUnavailableError, match=r"gave up on .* after 2 tries"):
        await asyncio.wait_for(running, 20)
    desk.server.server.start()
    running = asyncio.ensure_future(door.run())  # and may be asked again
    await eventually(lambda: holder(desk))
    door.shutdown()
    await running


async def test_the_first_connection_must_succeed() -> None:
    with pytest.raises(StoreUnavailableError, match="cannot reach Redis"):
        await Promoter("redis://127.0.0.1:1", "q").run()


async def test_its_life(desk: Desk) -> None:
    door = promoter(desk)
    running = [asyncio.ensure_future(door.run()) for _ in range(2)]  # the second one waits, too
    await eventually(lambda: holder(desk))
    door.shutdown()
    async with asyncio.timeout(20):
        for run in running:
            await run
        await door.run()  # after shutdown: nothing
    assert holder(desk) is None
    never = promoter(desk)
    never.shutdown()
    await never.run()
    assert holder(desk) is None


def test_it_can_be_stopped_from_another_thread(desk: Desk) -> None:
    door = promoter(desk)
    # A loop in debug mode refuses what is not safe from outside.
    run = partial(asyncio.run, door.run(), debug=True)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(lambda: holder(desk))
    door.shutdown()
    thread.join(20)
    assert not thread.is_alive()
    assert holder(desk) is None


async def test_a_cancelled_one_lets_go_too(desk: Desk) -> None:
    running = asyncio.ensure_future(promoter(desk).run())
    await eventually(lambda: holder(desk))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert holder(desk) is None


# -- its events ------------------------------------------------------------------------------------


async def writer(desk: Desk, max_waiting: int) -> tuple[LinkWriter, list[int]]:
    store = Store(desk.keys, Dialer(read_url(desk.server.url)), desk.server.forced_dialect)
    made, dropped = LinkWriter(store.new_link(), max_waiting), []
    made.on_dropped = dropped.append
    await made.link.open()
    return made, dropped


def row(desk: Desk, number: int) -> bytes:
    return pack("XADD", desk.keys.events, "*", "e", number)


async def test_events_are_dropped_while_the_server_does_not_answer(own_desk: Desk) -> None:
    desk = own_desk
    made, dropped = await writer(desk, 10)
    desk.server.server.pause()
    try:
        for number in range(8):
            made.event(row(desk, number))
        await asyncio.sleep(0)
        for number in range(8, 20):
            made.event_before(row(desk, number))
        await asyncio.sleep(0)
        assert (made.dropped, dropped) == (10, [10])
    finally:
        desk.server.server.resume()
    await made.close()
    found = [int(fields[b"e"]) for _, fields in desk.redis.xrange(desk.keys.events)]
    assert found == list(range(10)), "in order, and those that waited are not lost at a close"


async def test_what_waits_is_written_before_the_end(desk: Desk) -> None:
    made, dropped = await writer(desk, 10)
    made.event(row(desk, 7))
    await made.close()
    assert [fields for _, fields in desk.redis.xrange(desk.keys.events)] == [{b"e": b"7"}]
    assert dropped == []


async def test_events_are_dropped_while_the_connection_is_down(own_desk: Desk) -> None:
    desk = own_desk
    made, dropped = await writer(desk, 10)
    desk.server.server.kill()
    await eventually(lambda: made.link.pipe is None)
    made.event(row(desk, 1))
    await asyncio.sleep(0)
    assert (made.dropped, dropped) == (1, [1])
    desk.server.server.start()
    await eventually(lambda: made.link.pipe is not None)
    desk.redis.set(desk.keys.events, "no stream")
    made.event(row(desk, 2))
    await eventually(lambda: made.dropped == 2)  # refused, which nobody else needs to know
    await made.close()
