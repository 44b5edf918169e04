"""What silent consumers left: it is listed, and what they had only read ahead is put back."""

from __future__ import annotations

import pytest

from chasquimq import wire
from chasquimq.store.jobs import FIRST
from tests.store.shelf import GROUP, Shelf

LATEST = b"18446744073709551615-18446744073709551615"  # the last id that a stream can have


def age(shelf: Shelf, ids: list[bytes], consumer: str = "dead", idle_ms: int = 60_000) -> None:
    """Have them look idle, without a delivery more."""
    shelf.redis.xclaim(shelf.keys.stream, GROUP, consumer, 0, ids, idle=idle_ms, justid=True)


def left_by(shelf: Shelf, consumer: str, *bodies: bytes, times: int = 1) -> list[bytes]:
    ids = shelf.deliver(*bodies, consumer=consumer, times=times)
    age(shelf, ids, consumer)
    return ids


async def test_what_is_idle_long_enough_is_listed_and_left_as_it_is(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = left_by(shelf, "dead", b"a", b"b", times=2)
    young = shelf.deliver(b"c", consumer="alive")
    before = shelf.pending()
    page = await jobs.abandoned(30_000)
    assert [(row[0], row[1], row[3]) for row in page.rows] == [(one, b"dead", 2) for one in ids]
    assert all(row[2] >= 60_000 for row in page.rows)
    assert (page.after, page.records) == (FIRST, {})
    assert shelf.pending() == before and young[0] in before


async def test_pages_go_on_behind_entries_without_a_body(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = left_by(shelf, "dead", *[b"%d" % n for n in range(7)])
    shelf.redis.xdel(shelf.keys.stream, *ids[:4])
    after, found, pages = FIRST, list[bytes](), 0
    while True:
        page = await jobs.abandoned(30_000, after, count=2)
        found += [row[0] for row in page.rows]
        pages, after = pages + 1, page.after
        if after == FIRST:
            break
    assert found == ids[4:] and pages == 4


async def test_large_bodies_come_page_by_page(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = left_by(shelf, "dead", *[b"x" * 1_500_000] * 5)
    first = await jobs.abandoned(30_000)
    assert [row[0] for row in first.rows] == ids[:3] and first.after == ids[2]
    second = await jobs.abandoned(30_000, first.after)
    assert [row[0] for row in second.rows] == ids[3:] and second.after == FIRST


async def test_the_last_id_that_there_can_be_ends_the_pages(shelf: Shelf) -> None:
    jobs = await shelf.join()
    shelf.redis.xadd(shelf.keys.stream, {"d": "a"}, id=LATEST.decode())
    shelf.redis.xreadgroup(GROUP, "dead", {shelf.keys.stream: ">"})
    age(shelf, [LATEST])
    page = await jobs.abandoned(30_000, count=1)
    assert ([row[0] for row in page.rows], page.after) == ([LATEST], FIRST)
    assert [row[0] for row in await jobs.claim([LATEST], 30_000)] == [LATEST]


async def test_one_consumer_is_asked_for_with_what_has_lost_its_body(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b")
    left_by(shelf, "dead", b"c")
    shelf.redis.xdel(shelf.keys.stream, ids[0])
    page = await jobs.abandoned(0, consumer="me")
    assert [(row[0], row[3]) for row in page.rows] == [(ids[0], -1), (ids[1], 1)]
    await jobs.forget([ids[0]])
    assert ids[0] not in shelf.pending()
    until = await jobs.abandoned(0, consumer="me", until=ids[0])
    assert until.rows == []


async def test_the_record_of_a_silent_consumer_comes_along(shelf: Shelf) -> None:
    jobs = await shelf.join()
    left_by(shelf, "dead", b"a")
    shelf.redis.hset(shelf.keys.started.decode(), mapping={"dead": "first 5", "other": "first 6"})
    assert (await jobs.abandoned(30_000)).records == {b"dead": b"first 5"}


@pytest.mark.parametrize("held", [1, 3, 5])
async def test_the_last_that_may_have_been_started_is_written_down_once(
    shelf: Shelf, held: int
) -> None:
    jobs = await shelf.join()
    ids = left_by(shelf, "dead", *[b"%d" % n for n in range(held)])
    left_by(shelf, "other", b"z")
    record = b"first 2+1 1-1=20"
    started = wire.unpack_started(record)
    assert started is not None
    shelf.redis.hset(shelf.keys.started.decode(), "dead", record)
    likely, possible = ids[min(held, 2) - 1], ids[min(held, 3) - 1]
    assert await jobs.started_upto(b"dead", record, started) == (likely, possible)
    told = shelf.redis.hget(shelf.keys.started.decode(), "dead")
    assert told == b"upto " + likely + b" " + possible + b" 1-1=20"
    # Somebody else, who saw the first record, and one who lives after all.
    assert await jobs.started_upto(b"dead", record, started) is None
    assert shelf.redis.hget(shelf.keys.started.decode(), "dead") == told


async def test_of_a_consumer_that_holds_nothing_there_is_no_last(shelf: Shelf) -> None:
    jobs = await shelf.join()
    shelf.redis.hset(shelf.keys.started.decode(), "dead", "first 3+0")
    started = wire.Started(3, 0, None, {})
    assert await jobs.started_upto(b"dead", b"first 3+0", started) is None


async def test_what_was_read_ahead_is_put_back_whole_and_uncharged(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = left_by(shelf, "dead", b"a", b"b", b"c")
    assert await jobs.requeue(ids[1:], b"dead", 30_000) == ids[1:]
    assert shelf.pending() == {ids[0]: ("dead", 1)}
    entries = shelf.redis.xrange(shelf.keys.stream)
    assert [fields for _, fields in entries] == [{b"d": b"a"}, {b"d": b"b"}, {b"d": b"c"}]
    assert entries[0][0] == ids[0]
    shelf.redis.xreadgroup(GROUP, "next", {shelf.keys.stream: ">"})
    assert [shelf.pending()[one] for one, _ in entries[1:]] == [("next", 1)] * 2


async def test_what_lives_or_was_started_or_is_gone_is_not_put_back(shelf: Shelf) -> None:
    jobs = await shelf.join()
    young = shelf.deliver(b"young", consumer="dead")
    twice = left_by(shelf, "dead", b"twice", times=2)
    others = left_by(shelf, "other", b"other")
    bare = left_by(shelf, "dead", b"bare")
    shelf.redis.xdel(shelf.keys.stream, *bare)
    before = shelf.pending()
    assert await jobs.requeue([*young, *twice, *others, *bare, b"1-1"], b"dead", 30_000) == []
    assert shelf.pending() == before


async def test_what_comes_too_late_puts_nothing_back(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = left_by(shelf, "dead", b"a")
    assert await jobs.requeue(ids, b"dead", 30_000, await jobs.clock_ms() - 1) == []
    assert shelf.pending() == {ids[0]: ("dead", 1)}


async def test_a_renewal_writes_down_what_was_started(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a")
    assert await jobs.renew(shelf.link, ids, started=b"first 9") == []
    assert shelf.redis.hgetall(shelf.keys.started.decode()) == {b"me": b"first 9"}
    assert await jobs.renew(shelf.link, ids) == []
    assert shelf.redis.hgetall(shelf.keys.started.decode()) == {b"me": b"first 9"}


async def test_a_renewal_holds_also_where_its_record_cannot_be_written(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a")
    age(shelf, ids, "me")
    shelf.redis.set(shelf.keys.started.decode(), "something else")
    assert await jobs.renew(shelf.link, ids, started=b"first 9") == []
    assert shelf.idle_ms(ids[0]) < 60_000
    age(shelf, ids, "dead")
    assert (await jobs.abandoned(30_000)).records == {}


async def test_a_claim_leaves_what_has_lost_its_body_to_its_holder(shelf: Shelf) -> None:
    jobs = await shelf.join()
    bare, whole = left_by(shelf, "dead", b"a", b"b")
    shelf.redis.xdel(shelf.keys.stream, bare)
    assert [row[0] for row in await jobs.claim([bare, whole], 30_000)] == [whole]
    assert shelf.pending() == {bare: ("dead", 1), whole: ("me", 2)}


async def test_an_entry_too_large_for_a_copy_is_left_for_a_claim(shelf: Shelf) -> None:
    jobs = await shelf.join()
    fields = {f"field-{n}": "x" for n in range(4_000)}
    large = shelf.redis.xadd(shelf.keys.stream, fields)
    shelf.redis.xreadgroup(GROUP, "dead", {shelf.keys.stream: ">"})
    age(shelf, [large])
    assert await jobs.requeue([large], b"dead", 30_000) == []
    [[entry_id, found, _, _]] = await jobs.claim([large], 30_000)
    assert (entry_id, len(found)) == (large, 8_000)
