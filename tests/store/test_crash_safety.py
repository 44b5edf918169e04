"""Whatever breaks half-way, no job is lost.

A move writes its destination first and acks last, because Lua has no rollback. Each script is
broken off at each of its commands in turn, and each move meets a destination that refuses it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, NamedTuple

import pytest

from chasquimq import wire
from chasquimq.errors import AccessError, QueueFullError, StoreError
from chasquimq.job import Due
from chasquimq.store import DeadLetters, Delayed, Holder, Kept, Notice, markers
from chasquimq.store.dead import revive
from tests.store.faulty import break_off, places, wipe
from tests.store.shelf import GROUP, Shelf, envelope, member

Act = Callable[[Any], Awaitable[Any]]  # does the move over the link it is given


class Move(NamedTuple):
    """A move of the jobs `a` and `b`."""

    prepare: Callable[[Shelf], Awaitable[Act]]
    commands: int  # how many its script calls
    source: str  # where both jobs are before
    target: str  # and after
    key: str = ""  # the destination


async def _retry(shelf: Shelf) -> Act:
    jobs = await shelf.join()
    ids = shelf.deliver(envelope("a"), envelope("b"))

    async def act(link: Any) -> None:
        for entry_id, job_id in zip(ids, "ab", strict=True):
            await shelf.send(jobs.retry(entry_id, 60_000, member(job_id)), link)

    return act


async def _bury(shelf: Shelf) -> Act:
    jobs = await shelf.join()
    ids = shelf.deliver(envelope("a"), envelope("b"))

    async def act(link: Any) -> None:
        for entry_id, job_id in zip(ids, "ab", strict=True):
            fields = wire.pack_dead(envelope(job_id), b"", entry_id, "unrecoverable")
            await shelf.send(jobs.bury(entry_id, fields, 0), link)

    return act


async def _finish(shelf: Shelf) -> Act:
    jobs = await shelf.join()
    ids = shelf.deliver(envelope("a"), envelope("b"))

    async def act(link: Any) -> None:
        for entry_id, job_id in zip(ids, "ab", strict=True):
            await shelf.send(jobs.finish([Kept(entry_id, job_id, b"\xc3")], 60), link)

    return act


async def _free(shelf: Shelf) -> Act:
    jobs = await shelf.join()
    ids = shelf.deliver(envelope("a"), envelope("b"))

    async def act(link: Any) -> None:
        for entry_id, job_id in zip(ids, "ab", strict=True):
            holder = Holder(job_id, 1_700_000_000_000)
            shelf.redis.set(shelf.keys.unique(job_id), "1700000000000 100 token")
            await shelf.send(jobs.free(entry_id, holder, b"\xc3", 60), link)

    return act


async def _give_back(shelf: Shelf) -> Act:
    await shelf.join()
    rows = [[entry_id, []] for entry_id in shelf.deliver(envelope("a"), envelope("b"))]
    return lambda link: shelf.jobs(link=link).give_back(rows)


async def _give_back_suspects(shelf: Shelf) -> Act:
    await shelf.join()
    rows = [
        [entry_id, [], 0, 2] for entry_id in shelf.deliver(envelope("a"), envelope("b"), times=3)
    ]
    return lambda link: shelf.jobs(link=link).give_back(rows)


async def _promote(shelf: Shelf) -> Act:
    for job_id in "ab":
        once = shelf.store.delayed.schedule_once(Due(1, True), member(job_id), job_id, 1)
        await shelf.send(once)
    return lambda link: _promotion(shelf, link)


async def _promotion(shelf: Shelf, link: Any) -> None:
    await Delayed(shelf.keys, link).promote("me", 5, 10)


async def _replay(shelf: Shelf) -> Act:
    for job_id, name in (("a", b""), ("b", b"send")):
        fields = wire.pack_dead(envelope(job_id), name, b"7-7", "unrecoverable")
        shelf.redis.xadd(shelf.keys.dlq, dict(zip(fields[::2], fields[1::2], strict=True)))
    return lambda link: _replay_all(shelf, link)


async def _replay_all(shelf: Shelf, link: Any) -> None:
    dead = DeadLetters(shelf.keys, link)
    await dead.replay([revive(row) for row in await dead.page()])


MOVES = {
    "retry": Move(_retry, 7, "pending", "delayed", "delayed"),
    "bury": Move(_bury, 6, "pending", "dead", "dlq"),
    "finish": Move(_finish, 4, "pending", "kept", "result"),
    "free": Move(_free, 6, "pending", "kept", "result"),
    "give_back": Move(_give_back, 10, "pending", "waiting", "stream"),
    "promote": Move(_promote, 12, "delayed", "waiting", "stream"),
    "replay": Move(_replay, 6, "dead", "waiting", "stream"),
}
ALLOWED = ("finish", "free")  # also without memory to spare
SUSPECTS = Move(_give_back_suspects, 6, "pending", "pending")
EVERY = pytest.mark.parametrize("verb", MOVES)


@EVERY
async def test_a_move_takes_the_jobs_to_exactly_one_place(shelf: Shelf, verb: str) -> None:
    move = MOVES[verb]
    act = await move.prepare(shelf)
    assert places(shelf) == {"a": [move.source], "b": [move.source]}
    await act(shelf.link)
    assert places(shelf) == {"a": [move.target], "b": [move.target]}


@pytest.mark.parametrize("verb", [*MOVES, "suspects"])
async def test_a_script_that_breaks_off_anywhere_loses_nothing(shelf: Shelf, verb: str) -> None:
    move = MOVES.get(verb, SUSPECTS)
    for nth in count(1):
        wipe(shelf)
        act = await move.prepare(shelf)
        if not await break_off(shelf, nth, act):
            break
        assert set(places(shelf)) == {"a", "b"}, f"lost at command {nth}"
        await act(shelf.link)  # whoever moved them tries again
        assert set(places(shelf)) == {"a", "b"}, f"lost after command {nth}"
    assert nth > move.commands


async def test_what_is_restored_from_memory_is_not_lost_by_a_script_that_breaks_off(
    shelf: Shelf,
) -> None:
    """Without its body a job is nowhere but with us, until it is back. One job: then the script
    that finds its body missing is shorter than the one that brings it back, which is broken off
    at its end, too."""
    for nth in count(1):
        wipe(shelf)
        jobs = await shelf.join()
        (entry_id,) = shelf.deliver(envelope("a"))
        rows = [[entry_id, [b"d", envelope("a")]]]
        shelf.redis.xdel(shelf.keys.stream, entry_id)
        if not await break_off(shelf, nth, lambda link, r=rows: shelf.jobs(link=link).give_back(r)):
            break
        await jobs.give_back(rows)  # whoever gave it back tries again
        assert set(places(shelf)) == {"a"}, f"lost at command {nth}"
        assert shelf.pending() == {}
    assert places(shelf) == {"a": ["waiting"]}
    assert nth > 3


async def test_poison_survives_a_promotion_that_breaks_off_anywhere(shelf: Shelf) -> None:
    for nth in count(1):
        wipe(shelf)
        shelf.redis.zadd(shelf.keys.delayed, {b"\x05abc": 1, member("a"): 2})
        if not await break_off(shelf, nth, lambda link: _promotion(shelf, link)):
            break
        for _ in range(2):
            assert set(places(shelf)) == {repr(b"\x05abc"), "a"}, f"lost at command {nth}"
            await _promotion(shelf, shelf.link)
    assert nth > 10


def _schedule(shelf: Shelf) -> bytes:
    return shelf.store.delayed.schedule(Due(60_000), member("a"), "a", 60_000)


def _schedule_once(shelf: Shelf) -> bytes:
    return shelf.store.delayed.schedule_once(Due(60_000), member("a"), "a", 60_000)


def _schedule_told(shelf: Shelf) -> bytes:
    notice = Notice(1_000, b"a", b"")
    return shelf.store.delayed.schedule_once(Due(60_000), member("a"), "a", 60_000, notice)


def _add_once(shelf: Shelf) -> bytes:
    return shelf.dialect(producer_id=b"p").add_own(b"a", [b"d", envelope("a")], 900)


def _add_unique(shelf: Shelf) -> bytes:
    mark = markers.until_done(shelf.keys, "a", 1_700_000_000_000, 100, "token")
    return markers.add(shelf.keys, mark, wire.join_entry(envelope("a"), b"", mark.hint), 0)


def _schedule_unique(shelf: Shelf) -> bytes:
    mark = markers.until_done(shelf.keys, "a", 1_700_000_000_000, 100, "token")
    due, wait_ms = Due(60_000), 60_000
    return shelf.store.delayed.schedule_once(due, member("a"), "a", wait_ms, None, mark)


ADDS = {
    "add_unique": _add_unique,
    "schedule_unique": _schedule_unique,
    "schedule": _schedule,
    "schedule_once": _schedule_once,
    "schedule_told": _schedule_told,
    "add_once": _add_once,
}


@pytest.mark.parametrize("verb", ADDS)
async def test_an_add_that_breaks_off_can_be_sent_again_and_is_in_then(
    shelf: Shelf, verb: str
) -> None:
    """A marker without its job would refuse every further try: that is a lost job."""
    for nth in count(1):
        wipe(shelf)
        if not await break_off(shelf, nth, lambda link: shelf.send(ADDS[verb](shelf), link)):
            break
        await shelf.send(ADDS[verb](shelf))
        assert set(places(shelf)) == {"a"}, f"lost at command {nth}"
    assert len(places(shelf)["a"]) == 1
    assert nth > 3


# -- destinations that refuse ----------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["retry", "bury", "promote", "replay"])
async def test_a_destination_of_another_type_refuses_and_the_jobs_stay(
    shelf: Shelf, verb: str
) -> None:
    move = MOVES[verb]
    act = await move.prepare(shelf)
    key = getattr(shelf.keys, move.key)
    shelf.redis.delete(key)
    shelf.redis.set(key, "in the way")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await act(shelf.link)
    assert places(shelf) == {"a": [move.source], "b": [move.source]}
    shelf.redis.delete(key)
    await act(shelf.link)
    assert places(shelf) == {"a": [move.target], "b": [move.target]}


@pytest.mark.parametrize("verb", [verb for verb in MOVES if verb not in ALLOWED])
async def test_a_server_without_memory_refuses_and_the_jobs_stay(
    own_shelf: Shelf, verb: str
) -> None:
    move = MOVES[verb]
    act = await move.prepare(own_shelf)
    own_shelf.redis.config_set("maxmemory", 1)
    with pytest.raises(QueueFullError, match="out of memory"):
        await act(own_shelf.link)
    assert places(own_shelf) == {"a": [move.source], "b": [move.source]}
    own_shelf.redis.config_set("maxmemory", 0)
    await act(own_shelf.link)
    assert places(own_shelf) == {"a": [move.target], "b": [move.target]}


async def test_a_server_without_memory_still_takes_what_was_done(own_shelf: Shelf) -> None:
    act = await _finish(own_shelf)
    own_shelf.redis.config_set("maxmemory", 1)
    await act(own_shelf.link)
    own_shelf.redis.config_set("maxmemory", 0)
    assert places(own_shelf) == {"a": ["kept"], "b": ["kept"]}
    assert own_shelf.entries() == [] and own_shelf.pending() == {}


async def test_a_server_without_memory_still_takes_acks_reads_and_renewals(
    own_shelf: Shelf,
) -> None:
    jobs = await own_shelf.join()
    ids = own_shelf.deliver(b"a", b"b")
    own_shelf.put(b"c")
    own_shelf.redis.config_set("maxmemory", 1)
    assert await jobs.renew(own_shelf.link, ids) == []
    assert jobs.dialect.acked(await own_shelf.send(jobs.dialect.ack(ids[:1]))) == 1
    assert len((await own_shelf.send(jobs.read(10, 1_000)))[0][1]) == 1


@pytest.mark.parametrize("verb", ADDS)
async def test_a_server_without_memory_refuses_an_add_and_keeps_no_marker(
    own_shelf: Shelf, verb: str
) -> None:
    own_shelf.redis.config_set("maxmemory", 1)
    with pytest.raises(QueueFullError, match="CMQ-030"):
        await own_shelf.send(ADDS[verb](own_shelf))
    own_shelf.redis.config_set("maxmemory", 0)
    assert places(own_shelf) == {}
    await own_shelf.send(ADDS[verb](own_shelf))
    assert places(own_shelf)["a"] in (["delayed"], ["waiting"])


@pytest.mark.parametrize(
    ("verb", "denied"),
    [
        *((verb, "key") for verb in MOVES),
        *((verb, "-xadd") for verb in MOVES if verb not in ("retry", *ALLOWED)),
        ("retry", "-zadd"),
        *((verb, "-set") for verb in ALLOWED),
    ],
)
async def test_a_destination_that_we_may_not_write_refuses_and_the_jobs_stay(
    shelf: Shelf, new_user: Callable[..., str], verb: str, denied: str
) -> None:
    move = MOVES[verb]
    act = await move.prepare(shelf)
    tag = shelf.keys.tag.decode()
    others = [name for name in ("stream", "delayed", "dlq") if name != move.key]
    if denied == "key":
        rules = ["+@all", f"~{tag}promoter:lock", f"~{tag}d?*:*", *(f"~{tag}{o}" for o in others)]
    else:
        rules = ["+@all", "~*", denied]
    narrow = await shelf.new_link(new_user(*rules))
    with pytest.raises(AccessError, match=r"ACL failure|NOPERM|user executing the script"):
        await act(narrow)
    assert places(shelf) == {"a": [move.source], "b": [move.source]}
    await act(shelf.link)
    assert places(shelf) == {"a": [move.target], "b": [move.target]}


@pytest.mark.parametrize("verb", ["retry", "bury", "finish", "free", "give_back"])
async def test_what_another_consumer_claimed_stays_where_that_one_has_it(
    shelf: Shelf, verb: str
) -> None:
    act = await MOVES[verb].prepare(shelf)
    ids = list(shelf.pending())
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "thief", 0, ids)
    await act(shelf.link)
    assert places(shelf) == {"a": ["pending"], "b": ["pending"]}
    assert {owner for owner, _ in shelf.pending().values()} == {"thief"}
