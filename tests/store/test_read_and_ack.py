"""Reading, acking, claiming and adopting: the same rows and counts in both dialects."""

from __future__ import annotations

import asyncio
import time

import pytest

from chasquimq.errors import StoreUnavailableError
from tests.store.shelf import GROUP, Shelf, claim

# -- read ----------------------------------------------------------------------------------------


async def test_a_read_brings_ids_and_flat_fields_in_order(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = [*shelf.put(b"a", name=b"send"), *shelf.put(b"b", b"c")]
    ((key, rows),) = await shelf.send(jobs.read(2, 1_000))
    assert key == shelf.keys.stream
    assert rows == [[ids[0], [b"d", b"a", b"n", b"send"]], [ids[1], [b"d", b"b"]]]
    assert shelf.pending() == {ids[0]: ("me", 1), ids[1]: ("me", 1)}


async def test_a_read_with_nothing_there_waits_and_brings_nothing(shelf: Shelf) -> None:
    jobs = await shelf.join()
    began = time.monotonic()
    assert await shelf.send(jobs.read(10, 60)) is None
    assert time.monotonic() - began >= 0.055


async def test_a_blocked_read_wakes_for_a_new_entry(shelf: Shelf) -> None:
    jobs, other = await shelf.join(), await shelf.new_link()
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(shelf.send(jobs.read(10, 10_000), other))
        await asyncio.sleep(0.05)
        (entry_id,) = shelf.put(b"a")
    assert reading.result()[0][1] == [[entry_id, [b"d", b"a"]]]


async def test_a_blocked_read_can_be_ended_from_another_connection(shelf: Shelf) -> None:
    jobs, other = await shelf.join(), await shelf.new_link()
    client_id = await other.ask("CLIENT", "ID")
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(shelf.send(jobs.read(10, 30_000), other))
        await asyncio.sleep(0.05)
        await jobs.unblock(client_id)
    assert reading.result() is None


async def test_reading_without_a_group_says_that_it_is_gone(shelf: Shelf) -> None:
    with pytest.raises(StoreUnavailableError, match="NOGROUP"):
        await shelf.send(shelf.jobs().read(10, 1))


# -- ack -----------------------------------------------------------------------------------------


async def test_an_ack_removes_the_entry_and_a_second_one_is_stale(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    ack = jobs.dialect.ack([entry_id])
    assert jobs.dialect.acked(await shelf.send(ack)) == 1
    assert shelf.entries() == [] and shelf.pending() == {}
    assert jobs.dialect.acked(await shelf.send(ack)) == 0


async def test_an_ack_counts_what_was_still_pending(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b", b"c")
    shelf.redis.xack(shelf.keys.stream, GROUP, ids[1])
    assert jobs.dialect.acked(await shelf.send(jobs.dialect.ack([*ids, b"1-1"]))) == 2


@pytest.mark.parametrize("count", [1_000, 1_001, 12_000])
async def test_a_thousand_acks_that_an_outage_held_back_go_out_at_once(
    shelf: Shelf, count: int
) -> None:
    jobs = await shelf.join()
    with shelf.redis.pipeline(transaction=False) as pipe:
        for _ in range(count):
            pipe.xadd(shelf.keys.stream, {"d": "x"})
        ids = pipe.execute()
    shelf.redis.xreadgroup(GROUP, "me", {shelf.keys.stream: ">"})
    assert jobs.dialect.acked(await shelf.send(jobs.dialect.ack(ids))) == count
    assert shelf.entries() == [] and shelf.pending() == {}


async def test_an_ack_of_a_stream_that_is_gone_is_stale(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    shelf.redis.delete(shelf.keys.stream)
    assert jobs.dialect.acked(await shelf.send(jobs.dialect.ack([entry_id]))) == 0


# -- claim ---------------------------------------------------------------------------------------


async def test_a_claim_takes_over_what_another_left_and_says_how_often_it_was_delivered(
    shelf: Shelf,
) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b", consumer="ghost")
    await asyncio.sleep(0.03)
    rows = await claim(jobs, 20, 10)
    assert [[*row[:2], row[3]] for row in rows] == [
        [ids[0], [b"d", b"a"], 1],
        [ids[1], [b"d", b"b"], 1],
    ]
    assert all(type(row[2]) is int and 20 <= row[2] < 5_000 for row in rows)
    assert shelf.pending() == {ids[0]: ("me", 2), ids[1]: ("me", 2)}


async def test_each_claim_counts_one_delivery_more(shelf: Shelf) -> None:
    await shelf.join()
    (entry_id,) = shelf.deliver(b"a", consumer="ghost")
    counts = []
    for consumer in ("b", "c", "c", "me"):
        await asyncio.sleep(0.005)
        ((found, _, _, before),) = await claim(shelf.jobs(consumer), 1, 10)
        assert found == entry_id
        counts.append(before)
        assert shelf.pending() == {entry_id: (consumer, before + 1)}
    assert counts == [1, 2, 3, 4]


async def test_a_claim_leaves_what_is_not_idle_enough(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a", consumer="alive")
    assert await claim(jobs, 60_000, 10) == []
    assert shelf.pending() == {entry_id: ("alive", 1)}


async def test_a_claim_takes_the_oldest_and_not_more_than_asked(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(*[b"%d" % n for n in range(5)], consumer="ghost")
    await asyncio.sleep(0.005)
    assert [row[0] for row in await claim(jobs, 1, 2)] == ids[:2]
    assert [owner for owner, _ in shelf.pending().values()] == ["me"] * 2 + ["ghost"] * 3


async def test_a_claim_brings_no_new_entries(shelf: Shelf) -> None:
    jobs = await shelf.join()
    shelf.put(b"new")
    assert await claim(jobs, 1, 10) == []
    assert shelf.pending() == {}


async def test_a_claim_that_comes_too_late_takes_nothing(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a", consumer="ghost")
    await asyncio.sleep(0.005)
    now_ms = await jobs.clock_ms()
    assert await claim(jobs, 1, 10, now_ms - 1) == []
    assert shelf.pending() == {entry_id: ("ghost", 1)}
    assert [row[0] for row in await claim(jobs, 1, 10, now_ms + 60_000)] == [entry_id]


async def test_a_claim_passes_over_entries_whose_body_is_gone(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b", consumer="ghost")
    shelf.redis.xdel(shelf.keys.stream, ids[0])
    await asyncio.sleep(0.005)
    assert [row[0] for row in await claim(jobs, 1, 10)] == [ids[1]]


async def test_a_claim_leaves_what_has_no_body_to_its_holder_and_finds_what_lies_behind(
    shelf: Shelf,
) -> None:
    """The holder may be alive and have the job in memory: its retry must still be able to move
    it. If it is dead, the janitor comes."""
    jobs = await shelf.join()
    bare = shelf.deliver(*[b"x"] * 250, consumer="holder")
    shelf.redis.xdel(shelf.keys.stream, *bare)
    ids = shelf.deliver(b"a", b"b", consumer="dead")
    await asyncio.sleep(0.005)
    assert [row[0] for row in await claim(jobs, 1, 1)] == ids[:1]
    assert [shelf.pending()[one] for one in bare] == [("holder", 1)] * 250


async def test_a_claim_with_nothing_to_take_answers_at_once(shelf: Shelf) -> None:
    jobs = await shelf.join()
    began = time.monotonic()
    assert await claim(jobs, 1, 10) == []
    assert time.monotonic() - began < 1


async def test_claiming_without_a_group_says_that_it_is_gone(shelf: Shelf) -> None:
    with pytest.raises(StoreUnavailableError, match="NOGROUP"):
        await claim(shelf.jobs(), 1, 10)


# -- adopt ---------------------------------------------------------------------------------------


async def test_what_a_lost_reply_had_brought_is_listed_as_it_was_delivered(shelf: Shelf) -> None:
    jobs = await shelf.join()
    fresh = shelf.deliver(b"a", b"b")
    suspect = shelf.deliver(b"c", times=3)
    shelf.deliver(b"d", consumer="other")
    rows = await jobs.adopt(10)
    # The count is that before the delivery whose reply was lost: what a read or a claim tells.
    assert rows == [
        [fresh[0], [b"d", b"a"], 0, 0],
        [fresh[1], [b"d", b"b"], 0, 0],
        [suspect[0], [b"d", b"c"], 0, 2],
    ]


async def test_adopting_resets_the_clock_and_charges_nobody(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    await asyncio.sleep(0.06)
    await jobs.adopt(10)
    assert shelf.idle_ms(entry_id) < 50
    assert shelf.pending() == {entry_id: ("me", 1)}


async def test_adopting_lists_no_more_than_asked_and_nothing_without_a_body(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b", b"c")
    shelf.redis.xdel(shelf.keys.stream, ids[0])
    assert [row[0] for row in await jobs.adopt(1)] == [ids[1]]
    assert [row[0] for row in await jobs.adopt(10)] == ids[1:]
