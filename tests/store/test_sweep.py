"""Sweeping up behind dead consumers: what is removed, and above all what is not."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from chasquimq.errors import StoreError, StoreUnavailableError
from chasquimq.store import Jobs
from chasquimq.store.jobs import FIRST, Sweep
from tests.store.faulty import break_off, places, wipe
from tests.store.shelf import GROUP, Shelf, claim, envelope

SHORT = 20  # ms of silence that tests can wait for
LONG = 3_600_000  # and ms that they cannot


def idle(shelf: Shelf) -> dict[str, int]:
    rows = shelf.redis.xinfo_consumers(shelf.keys.stream, GROUP)
    return {row["name"].decode(): row["idle"] for row in rows}


async def silence(shelf: Shelf, ms: int = SHORT) -> None:
    """Wait until every consumer has been silent for so long, and all that they hold has rested."""
    while min([*idle(shelf).values(), *map(shelf.idle_ms, shelf.pending())]) <= ms:
        await asyncio.sleep(0.005)


async def leader(shelf: Shelf) -> Jobs:
    jobs = await shelf.join()
    shelf.redis.set(shelf.keys.promoter_lock, jobs.consumer)
    return jobs


def names(shelf: Shelf, *consumers: str) -> None:
    for consumer in consumers:
        shelf.redis.xgroup_createconsumer(shelf.keys.stream, GROUP, consumer)


# -- entries without a body ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["xdel", "xtrim"])
async def test_entries_without_a_body_are_removed_and_all_others_stay_as_they_are(
    shelf: Shelf, how: str
) -> None:
    jobs = await leader(shelf)
    ids = shelf.deliver(b"a", b"b", b"c", b"d", consumer="dead", times=2)
    if how == "xdel":
        shelf.redis.xdel(shelf.keys.stream, ids[0], ids[2])
        ghosts, living = [ids[0], ids[2]], [ids[1], ids[3]]
    else:
        shelf.redis.xtrim(shelf.keys.stream, maxlen=2, approximate=False)
        ghosts, living = ids[:2], ids[2:]
    await silence(shelf)
    assert await jobs.sweep(SHORT, LONG) == Sweep(True, ghosts=len(ghosts))
    assert shelf.pending() == dict.fromkeys(living, ("dead", 2))
    assert [one for one, _ in shelf.entries()] == living
    assert all(shelf.idle_ms(one) >= SHORT for one in living)


async def test_an_entry_without_a_body_is_left_alone_before_its_time(shelf: Shelf) -> None:
    jobs = await leader(shelf)
    (entry_id,) = shelf.deliver(b"a", consumer="dead")
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    await silence(shelf)
    assert await jobs.sweep(LONG, LONG) == Sweep(True)
    assert shelf.pending() == {entry_id: ("dead", 1)}


@pytest.mark.parametrize("who", ["alive", "me"])
async def test_what_a_living_consumer_holds_is_its_own_however_long_it_takes(
    shelf: Shelf, who: str
) -> None:
    """It runs a job that somebody trimmed; a retry or burial can still move it from memory."""
    jobs = await leader(shelf)
    (entry_id,) = shelf.deliver(b"a", consumer=who)
    shelf.redis.xclaim(shelf.keys.stream, GROUP, who, 0, [entry_id], idle=2 * LONG, justid=True)
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    assert shelf.idle_ms(entry_id) > LONG > idle(shelf)[who]
    assert await jobs.sweep(LONG, LONG) == Sweep(True)
    assert shelf.pending() == {entry_id: (who, 1)}


async def test_our_own_entries_are_never_swept(shelf: Shelf) -> None:
    jobs = await leader(shelf)
    (entry_id,) = shelf.deliver(b"a")
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    await silence(shelf)
    assert await jobs.sweep(SHORT, SHORT) == Sweep(True)
    assert shelf.pending() == {entry_id: ("me", 1)}


async def test_a_long_list_of_living_entries_hides_none_without_a_body(shelf: Shelf) -> None:
    jobs = await leader(shelf)
    ids = shelf.deliver(*[b"%d" % n for n in range(5)], consumer="dead")
    shelf.redis.xdel(shelf.keys.stream, ids[4])
    await silence(shelf)
    swept, after = [], FIRST
    for _ in range(4):
        done = await jobs.sweep(SHORT, LONG, after, look_at=2)
        swept.append((done.ghosts, done.more))
        after = done.after
    assert swept == [(0, True), (0, True), (1, False), (0, True)]  # and from the beginning again
    assert list(shelf.pending()) == ids[:4]


async def test_large_bodies_are_not_looked_at_all_in_one_go(shelf: Shelf) -> None:
    jobs = await leader(shelf)
    ids = shelf.deliver(*[bytes(1_000_000)] * 6, b"last", consumer="dead")
    shelf.redis.xdel(shelf.keys.stream, ids[6])
    await silence(shelf)
    first = await jobs.sweep(SHORT, LONG)
    assert first == Sweep(True, after=ids[3], more=True)
    assert await jobs.sweep(SHORT, LONG, first.after) == Sweep(True, ghosts=1)


async def test_a_sweep_that_breaks_off_anywhere_loses_nothing(shelf: Shelf) -> None:
    for nth in count(1):
        wipe(shelf)
        jobs = await leader(shelf)
        ids = shelf.deliver(envelope("a"), b"ghost", envelope("b"), consumer="dead")
        shelf.redis.xdel(shelf.keys.stream, ids[1])
        names(shelf, "gone")
        await silence(shelf, 3)
        if not await break_off(shelf, nth, lambda link: shelf.jobs(link=link).sweep(3, 3)):
            break
        assert places(shelf) == {"a": ["pending"], "b": ["pending"]}
        await jobs.sweep(3, 3)
        assert shelf.pending() == {ids[0]: ("dead", 1), ids[2]: ("dead", 1)}
        assert list(idle(shelf)) == ["dead"]
    assert nth > 8


# -- names -----------------------------------------------------------------------------------------


async def test_names_of_silent_consumers_are_removed_unless_they_hold_something(
    shelf: Shelf,
) -> None:
    jobs = await leader(shelf)
    ids = shelf.deliver(b"a", consumer="holds")
    names(shelf, "gone", "me", "too")
    started = shelf.keys.started.decode()
    shelf.redis.hset(started, mapping={"gone": "first 1", "me": "first 2", "holds": "first 3"})
    await silence(shelf)
    assert await jobs.sweep(LONG, SHORT) == Sweep(True, consumers=2)
    assert sorted(idle(shelf)) == ["holds", "me"]
    assert sorted(shelf.redis.hkeys(started)) == [b"holds", b"me"]
    # Under a name that had been removed it could never be delivered again.
    assert shelf.pending() == {ids[0]: ("holds", 1)}
    assert [row[0] for row in await claim(jobs, SHORT, 10)] == ids


async def test_names_stay_before_their_time(shelf: Shelf) -> None:
    jobs = await leader(shelf)
    names(shelf, "resting")
    await silence(shelf)
    assert await jobs.sweep(SHORT, LONG) == Sweep(True)
    assert list(idle(shelf)) == ["resting"]


async def test_a_name_goes_once_what_it_held_without_a_body_has_gone(shelf: Shelf) -> None:
    jobs = await leader(shelf)
    (entry_id,) = shelf.deliver(b"a", consumer="dead")
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    await silence(shelf)
    assert await jobs.sweep(SHORT, SHORT) == Sweep(True, ghosts=1)
    assert await jobs.sweep(SHORT, SHORT) == Sweep(True, consumers=1)
    assert shelf.pending() == {} and idle(shelf) == {}


async def test_only_so_many_names_are_removed_at_once(shelf: Shelf) -> None:
    jobs = await leader(shelf)
    names(shelf, *"abcde")
    await silence(shelf)
    swept = [await jobs.sweep(LONG, SHORT, names=2) for _ in range(3)]
    assert [(done.consumers, done.more) for done in swept] == [(2, True), (2, True), (1, False)]
    assert idle(shelf) == {}


async def test_a_reader_whose_name_was_removed_while_it_waited_misses_nothing(
    shelf: Shelf,
) -> None:
    """A server may take for silent who only waits: Redis 7.0 does."""
    jobs, other = await leader(shelf), await shelf.new_link()
    waiting = shelf.jobs("waiting")
    names(shelf, "waiting")
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(shelf.send(waiting.read(10, 20_000), other))
        while b"blocked_clients:0" in await shelf.link.ask("INFO", "clients"):
            await asyncio.sleep(0.005)
        await silence(shelf, 2)
        assert (await jobs.sweep(LONG, 1)).consumers == 1
        assert idle(shelf) == {}
        (entry_id,) = shelf.put(b"a")
        async with asyncio.timeout(10):
            rows = (await reading)[0][1]
    assert [row[0] for row in rows] == [entry_id]
    assert shelf.pending() == {entry_id: ("waiting", 1)}


# -- who may ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("holder", [None, "another", "me too", ""])
async def test_only_the_holder_of_the_lock_sweeps(shelf: Shelf, holder: str | None) -> None:
    jobs = await shelf.join()
    if holder is not None:
        shelf.redis.set(shelf.keys.promoter_lock, holder)
    (entry_id,) = shelf.deliver(b"a", consumer="dead")
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    names(shelf, "gone")
    await silence(shelf)
    assert await jobs.sweep(SHORT, SHORT) == Sweep(leads=False)
    assert shelf.pending() == {entry_id: ("dead", 1)}
    assert sorted(idle(shelf)) == ["dead", "gone"]


async def test_of_two_only_the_leader_sweeps(shelf: Shelf) -> None:
    jobs, other = await leader(shelf), shelf.jobs("other")
    names(shelf, "gone")
    await silence(shelf)
    assert [(await one.sweep(LONG, SHORT)).leads for one in (other, jobs)] == [False, True]
    shelf.redis.set(shelf.keys.promoter_lock, "other")
    assert [(await one.sweep(LONG, SHORT)).leads for one in (other, jobs)] == [True, False]


async def test_sweeping_where_there_is_nothing_says_so(shelf: Shelf) -> None:
    jobs = shelf.jobs()
    shelf.redis.set(shelf.keys.promoter_lock, "me")
    with pytest.raises(StoreError, match="no such key"):
        await jobs.sweep(SHORT, SHORT)
    shelf.redis.xadd(shelf.keys.stream, {"d": "a"})
    with pytest.raises(StoreUnavailableError, match="NOGROUP"):
        await jobs.sweep(SHORT, SHORT)


async def test_a_server_without_memory_can_be_swept(own_shelf: Shelf) -> None:
    jobs = await leader(own_shelf)
    (entry_id,) = own_shelf.deliver(b"a", consumer="dead")
    own_shelf.redis.xdel(own_shelf.keys.stream, entry_id)
    names(own_shelf, "gone")
    await silence(own_shelf)
    own_shelf.redis.config_set("maxmemory", 1)
    assert await jobs.sweep(SHORT, SHORT) == Sweep(True, ghosts=1, consumers=1)
    assert await jobs.leave()
