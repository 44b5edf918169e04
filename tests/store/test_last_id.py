"""A stream that holds the last id that there can be: Redis refuses to look behind it."""

from __future__ import annotations

import asyncio

from chasquimq.store.walk import LAST
from tests.store.shelf import GROUP, Shelf, envelope

READS = 3


async def fill(shelf: Shelf) -> list[bytes]:
    """Entries that a silent consumer holds, the last of them under the last id."""
    await shelf.join()
    shelf.put(*(envelope(one) for one in "ab"))
    shelf.redis.xadd(shelf.keys.stream, {b"d": envelope("c")}, id=LAST)
    [[_, rows]] = shelf.redis.xreadgroup(GROUP, "silent", {shelf.keys.stream: ">"})
    await asyncio.sleep(0.01)  # idle for longer than what is asked for below
    return [row[0] for row in rows]


async def test_pages_of_what_is_pending_end_behind_it(shelf: Shelf) -> None:
    await fill(shelf)
    for size in (1, 2, 3, 4):
        after, seen = b"-", 0
        for _ in range(10):
            args = (GROUP, after, size, 1_000_000)
            after, *rows = await shelf.link.run("see_pending", (shelf.keys.stream,), args)
            seen += len(rows)
            if after == b"-":
                break
        assert (after, seen) == (b"-", READS)


async def test_a_sweep_ends_behind_it(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = await fill(shelf)
    shelf.redis.xdel(shelf.keys.stream, *ids)
    shelf.redis.set(shelf.keys.promoter_lock, jobs.consumer)
    after, ghosts = b"-", 0
    for _ in range(10):
        swept = await jobs.sweep(1, 3_600_000, after, look_at=1)
        ghosts, after = ghosts + swept.ghosts, swept.after
        if after == b"-":
            break
    assert (after, ghosts, shelf.pending()) == (b"-", READS, {})


async def test_what_a_lost_reply_had_brought_ends_with_it(shelf: Shelf) -> None:
    """A page that is full, and brings less than is wanted: it goes on behind its last entry."""
    jobs = await shelf.join()
    with shelf.redis.pipeline(transaction=False) as pipe:
        for _ in range(499):
            pipe.xadd(shelf.keys.stream, {"d": "x"})
        pipe.execute()
    shelf.redis.xadd(shelf.keys.stream, {b"d": envelope("c")}, id=LAST)
    [[_, rows]] = shelf.redis.xreadgroup(GROUP, jobs.consumer, {shelf.keys.stream: ">"})
    shelf.redis.xdel(shelf.keys.stream, *[entry_id for entry_id, _ in rows[:499]])
    assert [row[0] for row in await jobs.adopt(500)] == [LAST.encode()]


async def test_the_rest_of_the_scripts_take_it_as_any_other(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = await fill(shelf)
    assert (await shelf.store.inspect.counts(GROUP)).running == READS
    assert await jobs.leave()  # of `me`, who holds nothing
    silent = shelf.jobs("silent")
    assert not await silent.leave()
    assert await silent.renew(shelf.link, ids) == []
    assert await silent.give_back([[one, [], 0, 1] for one in ids]) == READS
    assert await shelf.send(silent.dialect.ack(ids)) is not None
    assert shelf.entries() == [] and await silent.leave()
