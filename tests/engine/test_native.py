"""The native Producer: what it sends is what Redis holds, byte for byte."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chasquimq import (
    QueueFullError,
    ShutdownError,
    StoreUnavailableError,
    UnconfirmedError,
    wire,
)
from chasquimq.address import read_url
from chasquimq.config import ProducerOptions
from chasquimq.engine.clock import now_ms
from chasquimq.engine.order import Order
from chasquimq.engine.session import Session, raise_for
from chasquimq.job import BackoffSpec, Envelope, RetryOverride
from chasquimq.native import Producer
from chasquimq.store import Dialer, Store
from tests.engine.desk import Desk, eventually

HOUR_MS = 3_600_000


def producer(desk: Desk, **options: Any) -> Producer:
    return Producer(desk.server.url, desk.name, dialect=desk.server.forced_dialect, **options)


def rows(desk: Desk) -> list[tuple[str, bytes, RetryOverride | None]]:
    """Name, payload and override of all that waits, in order; each fresh, each with its id."""
    entries = [fields for _, fields in desk.redis.xrange(desk.keys.stream)]
    found = [(row.get(b"n", b"").decode(), wire.unpack_envelope(row[b"d"])) for row in entries]
    assert all(envelope.attempt == 0 for _, envelope in found)
    return [(name, envelope.payload, envelope.retry) for name, envelope in found]


def members(desk: Desk) -> dict[str, tuple[bytes, bytes, int]]:
    """By id: name, payload and due time of all that is delayed."""
    found = {}
    for member, due in desk.redis.zrange(desk.keys.delayed, 0, -1, withscores=True):
        name, body = wire.split_member(member)
        envelope = wire.unpack_envelope(body)
        found[envelope.id] = (name, envelope.payload, int(due))
    return found


def redis_ms(desk: Desk) -> int:
    seconds, micros = desk.redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


# -- one job ---------------------------------------------------------------------------------------


async def test_bytes_go_in_as_they_are(desk: Desk) -> None:
    door = producer(desk)
    before = now_ms()
    ids = [await door.add(payload) for payload in (b"", b"\xc1raw", b"z" * 70_000)]
    after = now_ms()
    await door.shutdown()
    assert [fields.keys() for _, fields in desk.redis.xrange(desk.keys.stream)] == [{b"d"}] * 3
    assert rows(desk) == [("", b"", None), ("", b"\xc1raw", None), ("", b"z" * 70_000, None)]
    assert [envelope.id for envelope in desk.envelopes()] == ids
    assert all(before <= envelope.created_at_ms <= after for envelope in desk.envelopes())


async def test_options_travel_with_the_job(desk: Desk) -> None:
    door = producer(desk)
    spec = {"kind": "exponential", "delay_ms": 5, "multiplier": 3, "jitter_ms": 0}
    assert await door.add_with_options(b"1", {"id": "mine", "name": "ñ"}) == "mine"
    await door.add_with_options(b"2", {"retry": {"max_attempts": 3, "backoff": spec}})
    await door.add_with_options(b"3", {"id": None, "name": None, "retry": {}})
    await door.add_with_options(b"4", {})
    await door.shutdown()
    assert rows(desk) == [
        ("ñ", b"1", None),
        ("", b"2", RetryOverride(3, BackoffSpec("exponential", 5, None, 3.0, 0))),
        ("", b"3", RetryOverride()),
        ("", b"4", None),
    ]


async def test_an_id_comes_in_once_per_producer(desk: Desk) -> None:
    one, other = producer(desk), producer(desk)
    for _ in range(3):
        assert await one.add_with_options(b"x", {"id": "mine"}) == "mine"
    assert await other.add_with_options(b"y", {"id": "mine"}) == "mine"
    await one.shutdown()
    await other.shutdown()
    assert rows(desk) == [("", b"x", None), ("", b"y", None)]


async def test_a_delayed_job_is_due_by_the_servers_clock(desk: Desk) -> None:
    door = producer(desk)
    before = redis_ms(desk)
    ids = [
        await door.add_in(HOUR_MS, b"in"),
        await door.add_in_with_options(HOUR_MS, b"in-2", {"id": "in-2", "name": "later"}),
    ]
    after = redis_ms(desk)
    at = now_ms() + HOUR_MS
    ids += [
        await door.add_at(at, b"at"),
        await door.add_at_with_options(at + 1, b"at-2", {"id": "at-2", "name": "later"}),
    ]
    await door.shutdown()
    found = members(desk)
    assert set(found) == set(ids)
    assert [found[job_id][:2] for job_id in ids] == [
        (b"", b"in"),
        (b"later", b"in-2"),
        (b"", b"at"),
        (b"later", b"at-2"),
    ]
    assert all(before <= found[job_id][2] - HOUR_MS <= after for job_id in ids[:2])
    assert [found[job_id][2] for job_id in ids[2:]] == [at, at + 1]
    assert desk.waiting() == 0


async def test_what_is_due_already_runs_at_once(desk: Desk) -> None:
    door = producer(desk)
    await door.add_in(0, b"0")
    await door.add_at(0, b"1970")
    await door.add_at_with_options(now_ms() - 1, b"past", {"name": "n"})
    await door.add_in_bulk(0, [b"bulk"])
    await door.add_in_bulk_with_ids(0, [("i", b"bulk-id"), ("i", b"again")])
    await door.shutdown()
    payloads = [b"0", b"1970", b"past", b"bulk", b"bulk-id"]
    assert [payload for _, payload, _ in rows(desk)] == payloads
    assert desk.delayed() == 0


# -- many ------------------------------------------------------------------------------------------


async def test_a_bulk_keeps_its_order(desk: Desk) -> None:
    door = producer(desk)
    payloads = [b"%d" % number for number in range(1_000)]
    ids = await door.add_bulk(payloads)
    await door.shutdown()
    assert [envelope.payload for envelope in desk.envelopes()] == payloads
    assert [envelope.id for envelope in desk.envelopes()] == ids
    assert len(set(ids)) == 1_000


async def test_bulks_share_options_or_have_their_own_names(desk: Desk) -> None:
    door = producer(desk)
    await door.add_bulk_with_options([b"1", b"2"], {"name": "n", "retry": {"max_attempts": 2}})
    assert await door.add_bulk_with_options([b"3"], {"id": "the-one"}) == ["the-one"]
    await door.add_bulk_named([("a", b"4"), ("", b"5"), ("ñ", b"6")])
    await door.shutdown()
    twice = RetryOverride(2)
    assert rows(desk) == [
        ("n", b"1", twice),
        ("n", b"2", twice),
        ("", b"3", None),
        ("a", b"4", None),
        ("", b"5", None),
        ("ñ", b"6", None),
    ]


async def test_a_delayed_bulk_has_one_delay(desk: Desk) -> None:
    door = producer(desk)
    ids = await door.add_in_bulk(HOUR_MS, [b"a", b"b"])
    await door.shutdown()
    found = members(desk)
    assert [found[job_id][:2] for job_id in ids] == [(b"", b"a"), (b"", b"b")]
    assert not desk.redis.keys(desk.keys.dlid("*"))
    assert sorted(desk.redis.keys(desk.keys.didx("*"))) == sorted(map(desk.keys.didx, ids))


async def test_a_delayed_bulk_with_ids_comes_in_once_per_id(desk: Desk) -> None:
    one, other = producer(desk), producer(desk)
    first = await one.add_in_bulk_with_ids(60_500, [("a", b"1"), ("b", b"2"), ("a", b"3")])
    again = await other.add_in_bulk_with_ids(60_500, [("c", b"5"), ("b", b"4")])
    await one.shutdown()
    await other.shutdown()
    assert (first, again) == (["a", "b", "a"], ["c", "b"])
    found = members(desk)
    assert {job_id: row[1] for job_id, row in found.items()} == {"a": b"1", "b": b"2", "c": b"5"}
    assert 3_600 < desk.redis.ttl(desk.keys.dlid("a")) <= 3_660


async def test_a_bulk_that_does_not_fit_is_refused_whole(desk: Desk) -> None:
    door = producer(desk, max_stream_len=3)
    await door.add_bulk([b"1", b"2"])
    with pytest.raises(QueueFullError) as caught:
        await door.add_bulk([b"3", b"4"])
    assert caught.value.outcomes == [caught.value] * 2
    await door.add(b"5")
    with pytest.raises(QueueFullError, match="holds 3 jobs of at most 3"):
        await door.add(b"6")
    await door.shutdown()
    assert [payload for _, payload, _ in rows(desk)] == [b"1", b"2", b"5"]


async def test_a_bulk_that_came_in_by_halves_is_told_by_ids() -> None:
    order = Order(3, asyncio.get_running_loop().create_future())
    order.settle(2)
    order.fail(1, UnconfirmedError("the answer was lost"))
    with pytest.raises(UnconfirmedError, match="1 of 3 jobs were not confirmed") as caught:
        raise_for(order, ["a", "b", "c"])
    assert caught.value.outcomes == ["a", order.errors[1], "c"]


# -- what was added --------------------------------------------------------------------------------


async def test_cancelling_answers_in_order(own_desk: Desk) -> None:
    """Many, over a server that has forgotten all scripts."""
    desk = own_desk
    door = producer(desk)
    numbers = range(1_200)
    await door.add_in_bulk_with_ids(HOUR_MS, [(f"j-{n}", b"") for n in numbers if n % 3])
    desk.redis.script_flush()
    assert await door.cancel_delayed_bulk([f"j-{n}" for n in numbers]) == [
        n % 3 != 0 for n in numbers
    ]
    assert desk.delayed() == 0
    await door.shutdown()


async def test_an_id_can_be_cancelled_once_and_is_free_again(desk: Desk) -> None:
    door = producer(desk)
    long_id = "x" * 5_000  # as another program may have given it
    member = wire.join_member(b"", wire.pack_envelope(Envelope(long_id, b"", 1)))
    desk.redis.zadd(desk.keys.delayed, {member: 2e12})
    desk.redis.set(desk.keys.didx(long_id), member)
    for _ in range(2):
        await door.add_in_with_options(HOUR_MS, b"1", {"id": "a"})
        assert await door.cancel_delayed_bulk(("nobody", "", "a", "a")) == [
            False,
            False,
            True,
            False,
        ]
    await door.add_in_with_options(HOUR_MS, b"1", {"id": "a"})
    assert [await door.cancel_delayed("a"), await door.cancel_delayed("a")] == [True, False]
    assert await door.cancel_delayed(long_id) is True
    await door.shutdown()
    assert desk.delayed() == 0


async def test_dead_jobs_are_shown_and_brought_back(desk: Desk) -> None:
    envelope = Envelope("dead", b"\xc1", 1, attempt=3)
    fields = {"d": wire.pack_envelope(envelope), "n": "n", "source_id": "1-1", "reason": "why"}
    desk.redis.xadd(desk.keys.dlq, fields)
    door = producer(desk)
    [row] = await door.peek_dlq(5)
    assert (row["name"], row["reason"], row["source_id"]) == ("n", "why", "1-1")
    assert wire.unpack_envelope(row["payload"]) == envelope
    assert await door.peek_dlq(0) == []
    assert await door.replay_dlq(5) == 1
    assert await door.replay_dlq(5) == 0
    await door.shutdown()
    assert rows(desk) == [("n", b"\xc1", None)]


async def test_results_are_bytes(desk: Desk) -> None:
    stored = {"empty": b"", "raw": b"\xc1", "x" * 2_000: b"long id"}
    for job_id, value in stored.items():
        desk.redis.set(desk.keys.result(job_id), value)
    door = producer(desk)
    assert await door.get_result("raw") == b"\xc1"
    assert await door.get_result("unknown") is None
    ids = ["unknown", *stored, "raw", ""]
    assert await door.get_result_bulk(ids) == [None, *stored.values(), b"\xc1", None]
    await door.shutdown()


# -- its life --------------------------------------------------------------------------------------


async def test_the_first_use_says_that_nobody_is_there() -> None:
    with pytest.raises(StoreUnavailableError, match="cannot reach Redis"):
        await Producer("redis://127.0.0.1:1", "q").add(b"x")


async def test_shutdown_waits_for_what_is_on_its_way_and_is_final(desk: Desk) -> None:
    door = producer(desk)
    await door.add(b"first")
    async with asyncio.TaskGroup() as group:
        adds = [group.create_task(door.add(b"x")) for _ in range(200)]
        await asyncio.sleep(0)  # all have been sent
        await door.shutdown()
    assert {envelope.id for envelope in desk.envelopes()} >= {add.result() for add in adds}
    assert desk.waiting() == 201
    await door.shutdown()
    for call in (
        lambda: door.add(b"x"),
        lambda: door.add_bulk([b"x"]),
        lambda: door.add_bulk([]),
        lambda: door.add_in(5, b"x"),
        lambda: door.cancel_delayed("x"),
        lambda: door.peek_dlq(1),
        lambda: door.replay_dlq(1),
        lambda: door.get_result("x"),
    ):
        with pytest.raises(ShutdownError, match="CMQ-005: this Producer was shut down"):
            await call()
    assert desk.waiting() == 201


async def test_a_session_that_was_closed_opens_nothing(desk: Desk) -> None:
    store = Store(desk.keys, Dialer(read_url(desk.server.url)), desk.server.forced_dialect)
    session = Session(asyncio.get_running_loop(), store, ProducerOptions())
    await session.close()
    for call in (session.store, session.producer):
        with pytest.raises(ShutdownError, match="was closed while it was being opened"):
            await call()
    assert store.link.pipe is None


def test_another_event_loop_has_connections_of_its_own(desk: Desk) -> None:
    door = producer(desk)

    async def add() -> None:
        await door.add_with_options(b"x", {"id": "the-same"})
        await door.add(b"y")

    asyncio.run(add())
    asyncio.run(add())
    assert [payload for _, payload, _ in rows(desk)] == [b"x", b"y", b"y"]


async def test_an_add_waits_out_a_restart_of_the_server(own_desk: Desk) -> None:
    desk = own_desk
    door = producer(desk)
    await door.add(b"before")
    desk.server.server.kill()
    await eventually(lambda: _is_down(door))
    adding = asyncio.ensure_future(door.add_with_options(b"after", {"id": "after"}))
    desk.server.server.start()
    assert await asyncio.wait_for(adding, 20) == "after"
    await door.shutdown()
    assert [payload for _, payload, _ in rows(desk)] == [b"before", b"after"]


def _is_down(door: Producer) -> bool:
    session = door._sessions.known()
    assert session is not None and session.live is not None
    return session.live.link.pipe is None


async def test_many_at_once_share_connections(desk: Desk) -> None:
    door = producer(desk, pool_size=64)
    await door.add(b"x")
    client: Any = desk.redis
    before = len(client.client_list())
    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(door.add(b"x"))
    assert len(client.client_list()) <= before
    await door.shutdown()
    assert desk.waiting() == 101
