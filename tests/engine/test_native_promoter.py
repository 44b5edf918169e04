"""The standalone Promoter: what it moves and tells of. How it leads: test_native_leaders."""

from __future__ import annotations

import asyncio

from chasquimq import InMemorySink
from chasquimq.address import read_url
from chasquimq.engine.writer import LinkWriter
from chasquimq.store import Dialer, Store
from chasquimq.store.resp import pack
from tests.engine.desk import Desk, eventually
from tests.engine.roles import Promoting


async def test_due_jobs_come_into_the_stream_and_are_told_of(desk: Desk) -> None:
    Promoting(desk).delay("one")
    Promoting(desk).delay("two", "ñ", 2)
    Promoting(desk).delay("far", due=2e12)
    async with Promoting(desk).leading():
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
        Promoting(desk).delay(f"j-{number}", due=number)
    sink = InMemorySink()
    async with Promoting(desk).leading(events_enabled=False, promote_batch=1_000, metrics=[sink]):
        await eventually(lambda: desk.waiting() == 2_500)
    assert desk.events() == []
    assert sink.rollup().worker.promoted == 2_500
    for number in range(2_500):
        Promoting(desk).delay(f"k-{number}", due=number)
    async with Promoting(desk).leading(events_max_stream_len=100):
        await eventually(lambda: desk.delayed() == 0)
    assert 100 <= desk.redis.xlen(desk.keys.events) <= 1_200  # trimmed once per thousand


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
