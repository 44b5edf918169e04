"""Promotion: what is due moves, what cannot be read is set aside, one holder at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.job import Due
from chasquimq.store import Promotion
from tests.store.shelf import Shelf, envelope, member

PAST = Due(1, absolute=True)
on_a_shared_server = settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


async def schedule(shelf: Shelf, due: Due, *members: bytes) -> None:
    for one in members:
        job_id = wire.unpack_envelope(wire.split_member(one)[1]).id
        await shelf.send(shelf.store.delayed.schedule(due, one, job_id, 1))


async def promote(shelf: Shelf, holder: str = "me", batch: int = 256) -> Promotion:
    return await shelf.store.delayed.promote(holder, 5, batch)


# -- what moves ----------------------------------------------------------------------------------


async def test_what_is_due_moves_to_the_stream_in_order(shelf: Shelf) -> None:
    await schedule(shelf, Due(3, absolute=True), member("c", b"send"))
    await schedule(shelf, Due(1, absolute=True), member("a"))
    await schedule(shelf, Due(2, absolute=True), member("b", b"send"))
    done = await promote(shelf)
    assert done == Promotion(True, None, 0, 0, 0, (("a", ""), ("b", "send"), ("c", "send")))
    assert [list(fields.items()) for _, fields in shelf.entries()] == [
        [(b"d", envelope("a"))],
        [(b"d", envelope("b")), (b"n", b"send")],
        [(b"d", envelope("c")), (b"n", b"send")],
    ]
    assert shelf.delayed() == {}


async def test_what_is_not_due_stays_and_tells_how_long_to_wait(shelf: Shelf) -> None:
    await schedule(shelf, Due(60_000), member("later"))
    done = await promote(shelf)
    assert done.moved == () and done.depth == 1 and done.lag_ms == 0
    assert done.wait_ms is not None and 55_000 < done.wait_ms <= 60_000
    assert shelf.entries() == []


async def test_a_job_moves_when_its_time_has_come_and_not_before(shelf: Shelf) -> None:
    await schedule(shelf, Due(80), member("soon"))
    (due_ms,) = shelf.delayed().values()
    while not (done := await promote(shelf)).moved:
        assert done.wait_ms is not None
        await asyncio.sleep(done.wait_ms / 1000 or 0.001)
    assert done.moved == (("soon", ""),)
    ((entry_id, _),) = shelf.entries()
    assert due_ms <= int(entry_id.split(b"-")[0]) < due_ms + 5_000


async def test_nothing_scheduled_means_nothing_to_wait_for(shelf: Shelf) -> None:
    assert await promote(shelf) == Promotion(leads=True)


async def test_a_batch_moves_no_more_than_asked_and_tells_what_is_left(shelf: Shelf) -> None:
    await schedule(shelf, PAST, *[member(f"{n}") for n in range(5)])
    done = await promote(shelf, batch=2)
    assert (len(done.moved), done.depth, done.wait_ms) == (2, 3, 0)
    assert abs(done.lag_ms - (shelf.now_ms() - 1)) < 5_000
    assert len((await promote(shelf, batch=10)).moved) == 3


async def test_the_largest_batch_moves_at_once(shelf: Shelf) -> None:
    shelf.redis.zadd(shelf.keys.delayed, {member(f"{n}", b"n"): 1 for n in range(1_000)})
    done = await promote(shelf, batch=1_000)
    assert len(done.moved) == len(shelf.entries()) == 1_000


@pytest.mark.parametrize(("score", "moves"), [("inf", 0), ("-inf", 1), ("1.5", 1), ("1e300", 0)])
async def test_a_score_that_others_wrote_does_no_harm(shelf: Shelf, score: str, moves: int) -> None:
    shelf.redis.zadd(shelf.keys.delayed, {member("odd"): score})
    await schedule(shelf, PAST, member("ours"))
    done = await promote(shelf)
    assert len(done.moved) == 1 + moves
    assert done.wait_ms is None if moves else done.wait_ms == 10**12


async def test_a_member_in_the_short_form_moves_as_well(shelf: Shelf) -> None:
    shelf.redis.zadd(shelf.keys.delayed, {b"\x04send" + envelope("a"): 1})
    assert (await promote(shelf)).moved == (("a", "send"),)
    assert [fields for _, fields in shelf.entries()] == [{b"d": envelope("a"), b"n": b"send"}]


@pytest.mark.parametrize("size", [1, 31, 32, 255, 256, 1_024])
async def test_the_side_index_is_removed_and_the_marker_stays(shelf: Shelf, size: int) -> None:
    job_id = "é" + "i" * (size - 2) if size > 1 else "i"
    once = shelf.store.delayed.schedule_once(PAST, member(job_id), job_id, 1)
    assert await shelf.send(once) == 1
    assert (await promote(shelf)).moved == ((job_id, ""),)
    assert shelf.redis.exists(shelf.keys.didx(job_id)) == 0
    assert shelf.redis.exists(shelf.keys.dlid(job_id)) == 1


async def test_a_side_index_that_may_not_be_removed_holds_up_no_job(
    shelf: Shelf, new_user: Callable[..., str]
) -> None:
    tag = shelf.keys.tag.decode()
    keys = [f"~{tag}{name}" for name in ("stream", "delayed", "dlq", "promoter:lock", "dlid:*")]
    await shelf.send(shelf.store.delayed.schedule_once(PAST, member("a"), "a", 1))
    narrow = shelf.new_store(new_user("+@all", "allchannels", *keys))
    await narrow.open()
    done = await narrow.delayed.promote("me", 5, 10)
    again = await narrow.delayed.promote("me", 5, 10)
    await narrow.close()
    assert done.moved == (("a", ""),) and again.moved == ()
    assert len(shelf.entries()) == 1


# -- what cannot be read -------------------------------------------------------------------------

POISON = [b"", b"\x01", b"\x05abc", b"\xff\xff\0\0", b"\x04\0\0\0send", b"\x09send" + b"\x94"]


async def test_poison_goes_to_the_dlq_with_its_bytes_and_promotion_goes_on(shelf: Shelf) -> None:
    shelf.redis.zadd(shelf.keys.delayed, dict.fromkeys(POISON, 1))
    await schedule(shelf, Due(2, absolute=True), member("healthy"))
    before = shelf.now_ms()
    done = await promote(shelf)
    assert (done.unreadable, done.moved) == (len(POISON), (("healthy", ""),))
    assert shelf.delayed() == {}
    assert [fields[b"d"] for fields in shelf.dead()] == sorted(POISON)
    for fields in shelf.dead():
        assert list(fields) == [b"d", b"source_id", b"reason", b"detail", b"failed_at_ms"]
        assert fields[b"reason"] == b"malformed"
        assert before <= int(fields[b"failed_at_ms"]) <= shelf.now_ms()
    entry = (await shelf.store.dead.page())[0].entry
    assert (entry.reason, entry.detail) == ("malformed", "unreadable delayed member")


ENVELOPES = st.builds(envelope, st.text(max_size=300), st.binary(max_size=20))
MEMBERS = st.one_of(
    st.binary(max_size=12),
    st.builds(wire.join_member, st.binary(max_size=300), ENVELOPES),
    st.builds(
        lambda name, body: bytes([len(name)]) + name + body, st.binary(max_size=9), ENVELOPES
    ),
    st.builds(
        lambda head, tail: bytes(head) + tail,
        st.lists(st.sampled_from([0, 1, 2, 4, 5, 0x94, 0xA1, 0xFF]), max_size=6),
        st.binary(max_size=8),
    ),
)


@on_a_shared_server
@given(members=st.lists(MEMBERS, min_size=1, max_size=20, unique=True))
async def test_the_script_reads_members_as_python_does(shelf: Shelf, members: list[bytes]) -> None:
    shelf.redis.delete(shelf.keys.stream, shelf.keys.dlq)
    shelf.redis.zadd(shelf.keys.delayed, dict.fromkeys(members, 1))
    readable, poison = [], []
    for one in sorted(members):
        try:
            name, body = wire.split_member(one)
            readable.append({b"d": body, **({b"n": name} if name else {})})
        except WireError:
            poison.append(one)
    done = await promote(shelf)
    assert [fields for _, fields in shelf.entries()] == readable
    assert [fields[b"d"] for fields in shelf.dead()] == poison
    assert (done.unreadable, len(done.moved), done.depth) == (len(poison), len(readable), 0)


@on_a_shared_server
@given(job_id=st.text(min_size=1, max_size=1_024), name=st.text(max_size=256))
async def test_the_script_finds_the_id_of_every_job(shelf: Shelf, job_id: str, name: str) -> None:
    shelf.redis.zadd(shelf.keys.delayed, {member(job_id, name.encode()): 1})
    shelf.redis.set(shelf.keys.didx(job_id), "x", ex=60)
    assert (await promote(shelf)).moved == ((job_id, name),)
    assert shelf.redis.exists(shelf.keys.didx(job_id)) == 0


# -- the lock ------------------------------------------------------------------------------------


async def test_one_holder_leads_and_the_other_moves_nothing(shelf: Shelf) -> None:
    assert (await promote(shelf, "a")).leads
    await schedule(shelf, PAST, member())
    assert await promote(shelf, "b") == Promotion(leads=False)
    assert list(shelf.delayed()) == [member()] and shelf.entries() == []
    assert (await promote(shelf, "a")).moved == (("job", ""),)


async def test_each_tick_renews_the_lock(shelf: Shelf) -> None:
    await promote(shelf, "a")
    assert shelf.redis.get(shelf.keys.promoter_lock) == b"a"
    shelf.redis.expire(shelf.keys.promoter_lock, 1)
    await promote(shelf, "a")
    assert 4 <= shelf.redis.ttl(shelf.keys.promoter_lock) <= 5
    await promote(shelf, "b")
    assert shelf.redis.get(shelf.keys.promoter_lock) == b"a"


async def test_a_released_or_expired_lock_is_free(shelf: Shelf) -> None:
    await promote(shelf, "a")
    await shelf.store.delayed.release("a")
    assert (await promote(shelf, "b")).leads
    shelf.redis.pexpire(shelf.keys.promoter_lock, 1)
    await asyncio.sleep(0.01)
    assert (await promote(shelf, "c")).leads


async def test_only_its_holder_releases_a_lock(shelf: Shelf) -> None:
    await promote(shelf, "a")
    await shelf.store.delayed.release("b")
    assert shelf.redis.get(shelf.keys.promoter_lock) == b"a"


async def test_releasing_a_lock_that_is_gone_is_no_error(shelf: Shelf) -> None:
    await shelf.store.delayed.release("a")


async def test_a_lock_of_the_reference_is_respected(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.promoter_lock, "c-9", ex=5)
    assert not (await promote(shelf)).leads
