"""The DLQ: looking at the dead, and bringing back those that can be read."""

from __future__ import annotations

import asyncio

import pytest

from chasquimq import wire
from chasquimq.job import BackoffSpec, DeadEntry, Envelope, RetryOverride
from chasquimq.store import DeadLetters
from tests.store.shelf import Shelf, envelope


def bury(shelf: Shelf, body: bytes, name: bytes = b"", reason: str = "unrecoverable") -> str:
    fields = wire.pack_dead(body, name, b"7-7", reason)
    return shelf.redis.xadd(
        shelf.keys.dlq, dict(zip(fields[::2], fields[1::2], strict=True))
    ).decode()


def garbage(shelf: Shelf, count: int) -> None:
    with shelf.redis.pipeline(transaction=False) as pipe:
        for number in range(count):
            pipe.xadd(shelf.keys.dlq, {"d": b"\xc1%d" % number, "reason": "decode_failed"})
        pipe.execute()


# -- peek ----------------------------------------------------------------------------------------


async def test_a_peek_shows_the_oldest_first_with_every_field(shelf: Shelf) -> None:
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
    assert await shelf.store.dead.peek(10) == [
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


async def test_a_peek_is_limited_and_can_go_on_behind_an_entry(shelf: Shelf) -> None:
    ids = [bury(shelf, envelope(f"{n}")) for n in range(5)]
    dead = shelf.store.dead
    assert [entry.dlq_id for entry in await dead.peek(2)] == ids[:2]
    assert [entry.dlq_id for entry in await dead.peek(2, ids[1])] == ids[2:4]
    assert await dead.peek(2, ids[4]) == []


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_peek_of_nothing_shows_nothing(shelf: Shelf, limit: int) -> None:
    bury(shelf, envelope())
    assert await shelf.store.dead.peek(limit) == []


async def test_an_empty_dlq_is_no_error(shelf: Shelf) -> None:
    assert await shelf.store.dead.peek(10) == []
    assert await shelf.store.dead.replay(10) == 0


async def test_a_row_of_any_shape_can_be_looked_at(shelf: Shelf) -> None:
    shelf.redis.xadd(shelf.keys.dlq, {"something": "else"})
    (entry,) = await shelf.store.dead.peek(10)
    assert (entry.payload, entry.reason) == (b"", "")


# -- replay --------------------------------------------------------------------------------------


async def test_a_replayed_job_starts_afresh_with_all_it_had(shelf: Shelf) -> None:
    retry = RetryOverride(7, BackoffSpec.fixed(5))
    old = Envelope("a", b"\x01", 123, 6, retry)
    bury(shelf, wire.pack_envelope(old), b"send")
    assert await shelf.store.dead.replay(10) == 1
    ((_, fields),) = shelf.entries()
    assert list(fields) == [b"d", b"n"] and fields[b"n"] == b"send"
    assert wire.unpack_envelope(fields[b"d"]) == Envelope("a", b"\x01", 123, 0, retry)
    assert shelf.dead() == []


async def test_a_job_without_a_name_comes_back_without_one(shelf: Shelf) -> None:
    bury(shelf, envelope("a", attempt=3))
    assert await shelf.store.dead.replay(1) == 1
    assert [fields for _, fields in shelf.entries()] == [{b"d": envelope("a")}]


async def test_the_oldest_come_back_first_and_no_more_than_asked(shelf: Shelf) -> None:
    for number in range(5):
        bury(shelf, envelope(f"{number}"))
    assert await shelf.store.dead.replay(2) == 2
    ids = [wire.unpack_envelope(fields[b"d"]).id for _, fields in shelf.entries()]
    assert ids == ["0", "1"]
    assert await shelf.store.dead.replay(100) == 3
    assert await shelf.store.dead.replay(100) == 0


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_replay_of_nothing_moves_nothing(shelf: Shelf, limit: int) -> None:
    bury(shelf, envelope())
    assert await shelf.store.dead.replay(limit) == 0
    assert len(shelf.dead()) == 1


async def test_what_cannot_be_read_stays_and_blocks_nobody(shelf: Shelf) -> None:
    garbage(shelf, 250)
    bury(shelf, envelope("a"))
    garbage(shelf, 3)
    bury(shelf, envelope("b"))
    assert await shelf.store.dead.replay(2) == 2
    assert [fields[b"d"] for _, fields in shelf.entries()] == [envelope("a"), envelope("b")]
    assert len(shelf.dead()) == 253


async def test_two_replays_at_once_bring_each_job_back_once(shelf: Shelf) -> None:
    wanted = {f"{number}" for number in range(250)}
    for job_id in sorted(wanted):
        bury(shelf, envelope(job_id))
    links = [await shelf.new_link() for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        moved = [tasks.create_task(DeadLetters(shelf.keys, link).replay(1_000)) for link in links]
    back = [wire.unpack_envelope(fields[b"d"]).id for _, fields in shelf.entries()]
    assert len(back) == 250 and set(back) == wanted
    assert sum(task.result() for task in moved) == 250
    assert shelf.dead() == []
