"""Holding deliveries: renewing them, giving them back, leaving the group."""

from __future__ import annotations

import asyncio
import time

import pytest

from chasquimq.errors import StoreUnavailableError
from tests.store.shelf import GROUP, Shelf


def consumers(shelf: Shelf) -> list[str]:
    return [row["name"].decode() for row in shelf.redis.xinfo_consumers(shelf.keys.stream, GROUP)]


# -- renew ---------------------------------------------------------------------------------------


async def test_renewing_resets_the_clock_and_leaves_the_count(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a", times=3)
    await asyncio.sleep(0.06)
    assert shelf.idle_ms(entry_id) >= 60
    assert await jobs.renew(shelf.link, [entry_id]) == []
    assert shelf.idle_ms(entry_id) < 50
    assert shelf.pending() == {entry_id: ("me", 3)}


async def test_renewing_tells_what_was_lost_and_does_not_steal_it_back(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"claimed", b"acked", b"deleted", b"mine")
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "thief", 0, [ids[0]])
    shelf.redis.xack(shelf.keys.stream, GROUP, ids[1])
    shelf.redis.xack(shelf.keys.stream, GROUP, ids[2])
    shelf.redis.xdel(shelf.keys.stream, ids[2])
    assert await jobs.renew(shelf.link, ids) == ids[:3]
    assert shelf.pending() == {ids[0]: ("thief", 2), ids[3]: ("me", 1)}


async def test_renewing_touches_nothing_that_was_not_named(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b")
    await asyncio.sleep(0.06)
    await jobs.renew(shelf.link, ids[:1])
    assert shelf.idle_ms(ids[0]) < 50 <= shelf.idle_ms(ids[1])


async def test_renewing_nothing_is_a_sign_of_life(shelf: Shelf) -> None:
    jobs = await shelf.join()
    assert await jobs.renew(shelf.link, []) == []


async def test_two_thousand_are_renewed_at_once(shelf: Shelf) -> None:
    jobs = await shelf.join()
    with shelf.redis.pipeline(transaction=False) as pipe:
        for _ in range(2_000):
            pipe.xadd(shelf.keys.stream, {"d": "x"})
        ids = pipe.execute()
    shelf.redis.xreadgroup(GROUP, "me", {shelf.keys.stream: ">"})
    assert await jobs.renew(shelf.link, ids) == []


async def test_renewing_without_a_group_says_that_it_is_gone(shelf: Shelf) -> None:
    with pytest.raises(StoreUnavailableError, match="NOGROUP"):
        await shelf.jobs().renew(shelf.link, [b"1-1"])


# -- give back -----------------------------------------------------------------------------------


async def test_what_nobody_ran_wakes_a_blocked_reader_at_once(shelf: Shelf) -> None:
    jobs, other = await shelf.join(), await shelf.new_link()
    ids = shelf.deliver(b"a", b"b")
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(shelf.send(shelf.jobs("next").read(10, 20_000), other))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        assert await jobs.give_back([[ids[0], [b"d", b"a"]], [ids[1], [b"d", b"b"], 0, 0]]) == 2
    assert time.monotonic() - began < 5
    rows = reading.result()[0][1]
    rest = (await shelf.send(shelf.jobs("next").read(10, 1)) or [[b"", []]])[0][1]
    assert [fields for _, fields in [*rows, *rest]] == [[b"d", b"a"], [b"d", b"b"]]


async def test_giving_back_what_nobody_ran_charges_nobody(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    await jobs.give_back([[entry_id, [b"d", b"a"]]])
    assert shelf.pending() == {}
    ((copy_id, fields),) = shelf.entries()
    assert copy_id > entry_id and fields == {b"d": b"a"}
    await shelf.send(shelf.jobs("next").read(1, 1_000))
    assert shelf.pending() == {copy_id: ("next", 1)}  # as a first delivery


async def test_a_copy_keeps_every_field_in_order(shelf: Shelf) -> None:
    jobs = await shelf.join()
    fields = {b"d": b"a\0", b"n": b"send", b"extra": b"\xff", b"trace": b""}
    entry_id = shelf.redis.xadd(shelf.keys.stream, fields)
    shelf.redis.xreadgroup(GROUP, "me", {shelf.keys.stream: ">"})
    await jobs.give_back([[entry_id, []]])
    assert [list(found.items()) for _, found in shelf.entries()] == [list(fields.items())]


@pytest.mark.parametrize("before", [1, 2, 7])
async def test_a_suspect_given_back_keeps_its_count_and_can_be_claimed_at_once(
    shelf: Shelf, before: int
) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a", consumer="ghost", times=before)
    await asyncio.sleep(0.005)
    (row,) = await jobs.claim(1, 1)
    assert row[3] == before
    assert await jobs.give_back([row]) == 1
    ((found, fields, idle, count),) = await shelf.jobs("next").claim(3_600_000, 1)
    assert (found, fields, count) == (entry_id, [b"d", b"a"], before)
    assert idle >= 3_600_000


async def test_what_is_no_longer_ours_is_not_given_back(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"claimed", b"acked", b"suspect")
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "thief", 0, [ids[0], ids[2]])
    shelf.redis.xack(shelf.keys.stream, GROUP, ids[1])
    rows = [[ids[0], [], 0, 0], [ids[1], [], 0, 0], [ids[2], [], 0, 1]]
    assert await jobs.give_back(rows) == 0
    assert shelf.pending() == {ids[0]: ("thief", 2), ids[2]: ("thief", 2)}
    assert [found for found, _ in shelf.entries()] == ids


async def test_an_entry_whose_body_is_gone_brings_no_copy(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    await jobs.give_back([[entry_id, []]])
    assert shelf.entries() == []


async def test_giving_back_nothing_asks_nobody(shelf: Shelf) -> None:
    assert await shelf.jobs().give_back([]) == 0
    assert shelf.redis.exists(shelf.keys.stream) == 0


# -- leave ---------------------------------------------------------------------------------------


async def test_a_consumer_leaves_when_nothing_is_pending_under_its_name(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    shelf.deliver(b"b", consumer="other")
    assert not await jobs.leave()
    assert consumers(shelf) == ["me", "other"]
    shelf.redis.xack(shelf.keys.stream, GROUP, entry_id)
    assert await jobs.leave()
    assert consumers(shelf) == ["other"]


async def test_nothing_is_lost_when_a_consumer_that_holds_something_tries_to_leave(
    shelf: Shelf,
) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    await jobs.leave()
    await asyncio.sleep(0.005)
    assert [row[0] for row in await shelf.jobs("next").claim(1, 1)] == [entry_id]


async def test_leaving_twice_is_no_error(shelf: Shelf) -> None:
    jobs = await shelf.join()
    assert await jobs.leave() and await jobs.leave()
