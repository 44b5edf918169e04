"""The DLQ: turning its pages, bringing rows back to life, throwing away, putting back in."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from chasquimq import wire
from chasquimq.errors import QueueFullError, WireError
from chasquimq.job import BackoffSpec, DeadEntry, Envelope, RetryOverride
from chasquimq.store import DeadLetters
from chasquimq.store.dead import PAGE, REMEMBER_S, Replay, revive
from chasquimq.wire import Exported, Revival
from tests.store.faulty import break_off, wipe
from tests.store.shelf import Shelf, envelope


def bury(shelf: Shelf, body: bytes, name: bytes = b"", reason: str = "unrecoverable") -> str:
    fields = wire.pack_dead(body, name, b"7-7", reason)
    return shelf.redis.xadd(
        shelf.keys.dlq, dict(zip(fields[::2], fields[1::2], strict=True))
    ).decode()


async def revivals(shelf: Shelf) -> list[Revival]:
    return [revive(row) for row in await shelf.store.dead.page()]


def markers(shelf: Shelf) -> list[bytes]:
    return list(shelf.redis.scan_iter(match=shelf.keys.idmp("dlq", "*"), count=10_000))


# -- pages ---------------------------------------------------------------------------------------


async def test_a_page_shows_the_oldest_first_with_every_field(shelf: Shelf) -> None:
    full = wire.pack_dead(
        envelope("a"),
        b"send",
        b"7-7",
        "retries_exhausted",
        detail="d",
        job_id="a",
        attempt=3,
        error_type="ValueError",
        error="boom",
        failed_at_ms=9,
    )
    first = shelf.redis.xadd(shelf.keys.dlq, dict(zip(full[::2], full[1::2], strict=True)))
    second = bury(shelf, b"\xc1", reason="decode_failed")
    rows = await shelf.store.dead.page()
    assert [row.entry for row in rows] == [
        DeadEntry(
            dlq_id=first.decode(),
            payload=envelope("a"),
            name="send",
            source_id="7-7",
            reason="retries_exhausted",
            detail="d",
            job_id="a",
            attempt=3,
            error_type="ValueError",
            error="boom",
            failed_at_ms=9,
        ),
        DeadEntry(dlq_id=second, payload=b"\xc1", source_id="7-7", reason="decode_failed"),
    ]
    assert rows[0].fields == full


async def test_a_page_is_limited_begins_behind_an_entry_and_ends_with_one(shelf: Shelf) -> None:
    ids = [bury(shelf, envelope(f"{n}")) for n in range(PAGE + 1)]

    async def page(*place: str, count: int = PAGE) -> list[str]:
        return [row.entry.dlq_id for row in await shelf.store.dead.page(*place, count=count)]

    assert await page() == ids[:PAGE]
    assert await page(count=2) == ids[:2]
    assert await page(ids[1], count=2) == ids[2:4]
    assert await page(ids[1], ids[3]) == ids[2:4]
    assert await page(ids[-1]) == []


async def test_an_empty_dlq_is_no_error(shelf: Shelf) -> None:
    dead = shelf.store.dead
    assert await dead.page() == []
    assert await dead.newest() is None
    assert await dead.replay([]) == Replay(0)
    assert await dead.delete([]) == await dead.put_back([]) == 0


async def test_the_last_id_is_the_newest_row_s(shelf: Shelf) -> None:
    ids = [bury(shelf, envelope(f"{n}")) for n in range(3)]
    assert (await shelf.store.dead.newest() or ())[0] == ids[2]
    shelf.redis.xdel(shelf.keys.dlq, ids[2])
    assert (await shelf.store.dead.newest() or ())[0] == ids[1]


async def test_a_row_of_any_shape_can_be_looked_at(shelf: Shelf) -> None:
    shelf.redis.xadd(shelf.keys.dlq, {"something": "else"})
    (row,) = await shelf.store.dead.page()
    assert (row.entry.payload, row.entry.reason) == (b"", "")
    with pytest.raises(WireError):
        revive(row)


# -- replay --------------------------------------------------------------------------------------


async def test_a_replayed_job_starts_afresh_with_all_it_had(shelf: Shelf) -> None:
    retry = RetryOverride(7, BackoffSpec.fixed(5))
    old = Envelope("a", b"\x01", 123, 6, retry)
    bury(shelf, wire.pack_envelope(old), b"send")
    assert await shelf.store.dead.replay(await revivals(shelf)) == Replay(1)
    ((_, fields),) = shelf.entries()
    assert list(fields) == [b"d", b"n"] and fields[b"n"] == b"send"
    assert wire.unpack_envelope(fields[b"d"]) == Envelope("a", b"\x01", 123, 0, retry)
    assert shelf.dead() == []


async def test_a_job_without_a_name_comes_back_without_one(shelf: Shelf) -> None:
    bury(shelf, envelope("a", attempt=3))
    assert await shelf.store.dead.replay(await revivals(shelf)) == Replay(1)
    assert [fields for _, fields in shelf.entries()] == [{b"d": envelope("a")}]


async def test_what_is_gone_is_not_replayed_again(shelf: Shelf) -> None:
    for number in range(3):
        bury(shelf, envelope(f"{number}"))
    seen = await revivals(shelf)
    assert await shelf.store.dead.replay(seen[1:2]) == Replay(1)
    assert await shelf.store.dead.replay(seen) == Replay(2)
    assert await shelf.store.dead.replay(seen) == Replay(0)
    assert len(shelf.entries()) == 3


# -- delete --------------------------------------------------------------------------------------


async def test_what_was_deleted_is_counted_once(shelf: Shelf) -> None:
    ids = [bury(shelf, envelope(f"{n}")) for n in range(3)]
    seen = await shelf.store.dead.page()
    shelf.redis.xdel(shelf.keys.dlq, ids[0])
    assert await shelf.store.dead.delete(seen[:2]) == 1
    assert await shelf.store.dead.delete(seen[:2]) == 0
    assert (await shelf.store.dead.newest() or ())[0] == ids[2]


# -- put back ------------------------------------------------------------------------------------

ROW = Exported("5-0", [b"d", b"\x00\xff", b"", b"", b"d", b"again", b"u", b"60"])


async def test_a_row_is_put_back_to_the_byte_and_once(shelf: Shelf) -> None:
    dead = shelf.store.dead
    assert await dead.put_back([ROW]) == 1
    assert await dead.put_back([ROW, ROW]) == 0
    (row,) = await dead.page()
    assert row.fields == ROW.fields
    (marker,) = markers(shelf)
    assert 0 < shelf.redis.ttl(marker) <= REMEMBER_S


async def test_a_row_that_was_put_back_and_replayed_stays_out(shelf: Shelf) -> None:
    row = Exported("5-0", wire.pack_dead(envelope("a"), b"", b"7-7", "unrecoverable"))
    assert await shelf.store.dead.put_back([row]) == 1
    assert await shelf.store.dead.replay(await revivals(shelf)) == Replay(1)
    assert await shelf.store.dead.put_back([row]) == 0
    assert shelf.dead() == []


async def test_a_row_that_never_left_is_not_doubled(shelf: Shelf) -> None:
    bury(shelf, envelope("a"))
    (row,) = await shelf.store.dead.page()
    assert await shelf.store.dead.put_back([Exported(row.entry.dlq_id, row.fields)]) == 0
    assert len(shelf.dead()) == 1


@pytest.mark.parametrize(
    "other", [[b"d", b"y"], [b"d", b"x", b"e", b"z"], [b"x", b"d"], [b"d", b"x", b"e", b"e"]]
)
async def test_rows_of_two_servers_may_have_the_same_id(shelf: Shelf, other: list[bytes]) -> None:
    shelf.redis.xadd(shelf.keys.dlq, {b"d": b"x", b"e": b"e"}, id="5-0")
    first = Exported("5-0", [b"d", b"x"])
    assert await shelf.store.dead.put_back([first, Exported("5-0", other)]) == 2 - (
        other == [b"d", b"x", b"e", b"e"]
    )


async def test_a_dry_run_puts_nothing_back_and_leaves_no_marker(shelf: Shelf) -> None:
    bury(shelf, envelope("a"))
    (there,) = await shelf.store.dead.page()
    rows = [ROW, Exported(there.entry.dlq_id, there.fields)]
    assert await shelf.store.dead.put_back(rows, dry_run=True) == 1
    assert (len(shelf.dead()), markers(shelf)) == (1, [])
    assert await shelf.store.dead.put_back(rows) == 1


async def test_two_who_put_the_same_back_add_each_row_once(shelf: Shelf) -> None:
    rows = [Exported(f"{n + 1}-0", [b"d", b"%d" % n]) for n in range(250)]
    links = [await shelf.new_link() for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        added = [tasks.create_task(DeadLetters(shelf.keys, link).put_back(rows)) for link in links]
    assert sum(task.result() for task in added) == 250
    assert sorted(row[b"d"] for row in shelf.dead()) == sorted(b"%d" % n for n in range(250))


async def test_a_row_is_not_lost_where_putting_it_back_breaks_off(shelf: Shelf) -> None:
    """It may be there twice, if the marker was what failed: rather twice than never."""
    for nth in count(1):
        wipe(shelf)
        keys = (shelf.keys.dlq, shelf.keys.idmp("dlq", ROW.mark))
        args = (REMEMBER_S, ROW.dlq_id, *ROW.fields)
        if not await break_off(shelf, nth, lambda link, k=keys, a=args: link.run("rebury", k, a)):
            break
        left_alone = markers(shelf) and not shelf.dead()
        assert not left_alone, f"marked and not there, after command {nth}"
        await shelf.store.dead.put_back([ROW])
        assert 1 <= len(shelf.dead()) <= 2
    assert nth == 5


async def test_a_full_server_takes_nothing_back_and_forgets_nothing(own_shelf: Shelf) -> None:
    own_shelf.redis.config_set("maxmemory", "1")
    with pytest.raises(QueueFullError):
        await own_shelf.store.dead.put_back([ROW])
    own_shelf.redis.config_set("maxmemory", "0")
    assert await own_shelf.store.dead.put_back([ROW]) == 1
