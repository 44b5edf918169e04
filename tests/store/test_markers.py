"""Markers of unique jobs, at the level of the scripts that write and free them."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from chasquimq import wire
from chasquimq.job import Due, Envelope
from chasquimq.store import Holder, Jobs, Row, markers
from tests.store.faulty import break_off, places, wipe
from tests.store.shelf import GROUP, Shelf

CREATED_MS = 1_700_000_000_000


def add(shelf: Shelf, token: str, created_ms: int = CREATED_MS, *, delayed: bool = False) -> bytes:
    """The command that adds the job `a`, unique until done."""
    mark = markers.until_done(shelf.keys, "a", created_ms, 100, token)
    body = wire.pack_envelope(Envelope("a", b"\xc0", created_ms))
    if delayed:
        member, due = wire.join_member(b"", body), Due(1, absolute=True)
        return shelf.store.delayed.schedule_once(due, member, "a", 1, None, mark)
    return markers.add(shelf.keys, mark, wire.join_entry(body, b"", mark.hint), 0)


async def deliver(shelf: Shelf, jobs: Jobs) -> Row:
    [[_, [row]]] = await shelf.send(jobs.read(10, 100))
    return list(row)


def end(jobs: Jobs, how: str, entry_id: bytes, created_ms: int = CREATED_MS) -> bytes:
    holder = Holder("a", created_ms)
    if how == "free":
        return jobs.free(entry_id, holder)
    if how == "free with a result":
        return jobs.free(entry_id, holder, b"\xc3", 60)
    return jobs.bury(entry_id, [b"d", b"body"], 0, holder)


ENDS = pytest.mark.parametrize("how", ["free", "free with a result", "bury"])


@ENDS
@pytest.mark.parametrize("delayed", [False, True], ids=["immediate", "delayed"])
async def test_an_add_that_is_sent_again_after_its_job_is_done_adds_nothing(
    shelf: Shelf, how: str, delayed: bool
) -> None:
    jobs = await shelf.join()
    mine = add(shelf, "mine", delayed=delayed)
    for _ in range(2):  # the answer was lost, and it is still there
        assert await shelf.send(mine) == 1
    if delayed:
        await shelf.store.delayed.promote("me", 5, 10)
        assert await shelf.send(mine) == 1
    assert (len(shelf.entries()), len(shelf.delayed())) == (1, 0)
    entry_id, *_ = await deliver(shelf, jobs)
    assert await shelf.send(mine) == 1
    assert await shelf.send(end(jobs, how, entry_id)) == 1
    assert await shelf.send(mine) == 1
    assert (len(shelf.entries()), len(shelf.delayed())) == (0, 0)
    assert await shelf.send(add(shelf, "theirs", CREATED_MS + 5)) == 1
    # Now somebody else's job is live, and mine is long done: a duplicate, but never a second run.
    assert await shelf.send(mine) == 0
    assert (len(shelf.entries()), len(shelf.delayed())) == (1, 0)


@ENDS
async def test_only_the_holder_of_the_entry_frees_the_id(shelf: Shelf, how: str) -> None:
    jobs = await shelf.join()
    await shelf.send(add(shelf, "mine"))
    entry_id, *_ = await deliver(shelf, jobs)
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "heir", 0, [entry_id])
    assert await shelf.send(end(jobs, how, entry_id)) == 0
    assert await shelf.send(add(shelf, "theirs", CREATED_MS + 5)) == 0
    assert [len(shelf.entries()), len(shelf.dead())] == [1, 0]
    assert not shelf.redis.exists(shelf.keys.result("a"))
    assert await shelf.send(end(shelf.jobs("heir"), how, entry_id)) == 1
    assert await shelf.send(add(shelf, "theirs", CREATED_MS + 5)) == 1


@ENDS
async def test_the_id_is_freed_last(shelf: Shelf, how: str) -> None:
    """Broken off anywhere, the id is not free while its job may still run: two would have it."""
    for nth in count(1):
        wipe(shelf)
        jobs = await shelf.join()
        await shelf.send(add(shelf, "mine"))
        entry_id, *_ = await deliver(shelf, jobs)
        ending = end(jobs, how, entry_id)
        broken = await break_off(shelf, nth, lambda link, e=ending: shelf.send(e, link))
        is_free = shelf.redis.get(shelf.keys.unique("a")).startswith(b"-")
        runs_again = {"waiting", "pending"} & set().union(*places(shelf).values())
        assert not (is_free and runs_again), broken
        if broken is None:
            break
    assert is_free and nth > 3


@ENDS
async def test_a_marker_of_another_type_stays_and_its_job_ends_once(shelf: Shelf, how: str) -> None:
    jobs = await shelf.join()
    await shelf.send(add(shelf, "mine"))
    entry_id, *_ = await deliver(shelf, jobs)
    shelf.redis.delete(shelf.keys.unique("a"))
    shelf.redis.lpush(shelf.keys.unique("a"), "what is this?")
    assert [await shelf.send(end(jobs, how, entry_id)) for _ in range(2)] == [1, 0]
    assert shelf.entries() == []
    assert shelf.pending() == {}
    assert len(shelf.dead()) == (how == "bury")
    assert shelf.redis.lrange(shelf.keys.unique("a"), 0, -1) == [b"what is this?"]


@pytest.mark.parametrize(
    ("known", "answer"),
    [
        (b"1", 0),  # the reference's
        (b"1700000000000 100 theirs", 0),
        (b"-1700000000000 100 theirs", 1),
        (b"", 0),
        (b"something", 0),
    ],
)
async def test_a_marker_says_who_may_come_in(shelf: Shelf, known: bytes, answer: int) -> None:
    shelf.redis.set(shelf.keys.unique("a"), known)
    assert await shelf.send(add(shelf, "mine")) == answer
    assert len(shelf.entries()) == answer


async def test_the_hint_goes_with_the_job_wherever_it_goes(shelf: Shelf) -> None:
    """Added, given back, retried, promoted: whoever runs it at last knows that its id is unique."""
    jobs = await shelf.join()
    await shelf.send(add(shelf, "mine"))
    row = await deliver(shelf, jobs)
    assert wire.unique_hint(row[1]) == b"100"
    await jobs.give_back([row])
    row = await deliver(shelf, jobs)
    shelf.redis.xdel(shelf.keys.stream, row[0])
    await jobs.give_back([[row[0], row[1], 0, 2]])  # from memory, and one that was charged
    row = await deliver(shelf, jobs)
    assert wire.unique_hint(row[1]) == b"100"
    body = wire.pack_envelope(Envelope("a", b"\xc0", CREATED_MS, 1))
    holder = Holder("a", CREATED_MS)
    shelf.redis.expire(shelf.keys.unique("a"), 3)
    command = jobs.retry(row[0], 5_000, wire.join_member(b"send", body), holder)
    assert await shelf.send(command) == 1
    assert 100 < shelf.redis.ttl(shelf.keys.unique("a")) <= 105
    shelf.redis.zadd(shelf.keys.delayed, {wire.join_member(b"send", body): 1})
    await shelf.store.delayed.promote("me", 5, 10)
    row = await deliver(shelf, jobs)
    assert row[1] == [b"d", body, b"n", b"send", b"u", b"100"]


@pytest.mark.parametrize("marker", [None, b"-1700000000000 100 done", b"1"])
async def test_what_is_not_unique_is_promoted_as_before(shelf: Shelf, marker: bytes | None) -> None:
    if marker is not None:
        shelf.redis.set(shelf.keys.unique("a"), marker)
    body = wire.pack_envelope(Envelope("a", b"\xc0", CREATED_MS))
    for name in (b"", b"send"):
        shelf.redis.zadd(shelf.keys.delayed, {wire.join_member(name, body): 1})
    await shelf.store.delayed.promote("me", 5, 10)
    found: list[Any] = [fields for _, fields in shelf.entries()]
    assert found == [{b"d": body}, {b"d": body, b"n": b"send"}]


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ([b"d", b"x", b"n", b"", b"u", b"60"], b"60"),
        ([b"u", b"60", b"d", b"x", b"n", b""], b"60"),
        ([b"d", b"x", b"n", b"", b"u", b"-1"], b""),
        ([b"d", b"x", b"n", b"", b"u", b"0"], b""),
        ([b"d", b"x", b"n", b"", b"u", b"9" * 40], b""),
        ([b"d", b"x", b"n", b"", b"trace", b"60"], b""),
        ([b"d", b"x", b"n", b"", b"u"], b""),
    ],
)
def test_a_hint_is_a_number_of_seconds_or_nothing(fields: list[bytes], hint: bytes) -> None:
    assert wire.unique_hint(fields) == hint
