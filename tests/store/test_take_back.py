"""Taking back what an earlier run under the same name left."""

from __future__ import annotations

import pytest

from chasquimq.store.jobs import FIRST
from tests.store.shelf import GROUP, Shelf


async def test_what_an_earlier_run_left_is_taken_back_one_by_one_and_charged(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b", times=2)
    shelf.deliver(b"other", consumer="other")
    until = await jobs.last_delivered()
    shelf.deliver(b"of this run")
    after, rows = FIRST, []
    while row := await jobs.take_back(after, until):
        rows.append(row)
        after = row[0]
        assert shelf.pending()[after] == ("me", 3)
    assert rows == [[ids[0], [b"d", b"a"], 0, 2], [ids[1], [b"d", b"b"], 0, 2]]
    assert [count for _, count in shelf.pending().values()] == [3, 3, 1, 1]


async def test_taking_back_resets_the_clock_of_that_one_alone(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b")
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "me", 0, ids, idle=600_000, justid=True)
    await jobs.take_back(FIRST, ids[1])
    assert shelf.idle_ms(ids[0]) < 600_000 <= shelf.idle_ms(ids[1])


@pytest.mark.parametrize("bare", [1, 99, 100, 250])
async def test_taking_back_passes_over_what_has_no_body_and_goes_on(
    shelf: Shelf, bare: int
) -> None:
    jobs = await shelf.join()
    gone = shelf.deliver(*[b"x"] * bare)
    shelf.redis.xdel(shelf.keys.stream, *gone)
    (entry_id,) = shelf.deliver(b"a")
    assert await jobs.take_back(FIRST, entry_id) == [entry_id, [b"d", b"a"], 0, 1]
    assert await jobs.take_back(entry_id, entry_id) is None
    assert shelf.pending() == {entry_id: ("me", 2)}


async def test_where_nothing_was_left_nothing_is_taken_back(shelf: Shelf) -> None:
    jobs = await shelf.join()
    assert await jobs.last_delivered() == b"0-0"
    shelf.put(b"unread")
    assert await jobs.take_back(FIRST, b"0-0") is None
    assert shelf.pending() == {}
