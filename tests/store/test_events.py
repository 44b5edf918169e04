"""The events drawer: the newest, the last few, and what comes after a place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chasquimq.errors import StoreError, StoreUnavailableError
from chasquimq.store import Events, Link
from chasquimq.store.events import Event
from chasquimq.wire import EventRow
from tests.store.shelf import Shelf

JUNK = EventRow("", None, "", {"x": "1"})


def tell(shelf: Shelf, *job_ids: str) -> list[str]:
    key = shelf.keys.events
    return [shelf.redis.xadd(key, {"e": "dlq", "id": job_id}).decode() for job_id in job_ids]


def ids(events: list[Event]) -> list[str | None]:
    return [row.job_id for _, row in events]


async def reader(shelf: Shelf) -> tuple[Events, Link]:
    link = await shelf.new_link()
    return Events(shelf.keys, link), link


async def test_the_tip_is_the_newest_event(shelf: Shelf) -> None:
    assert await shelf.store.events.tip() == "0-0"
    assert await shelf.store.events.tip() == "0-0"
    *_, last = tell(shelf, *"abc")
    assert await shelf.store.events.tip() == last


async def test_the_last_ones_come_oldest_first(shelf: Shelf) -> None:
    tell(shelf, *"abc")
    assert ids(await shelf.store.events.last(2)) == ["b", "c"]
    assert ids(await shelf.store.events.last(9)) == ["a", "b", "c"]


async def test_what_follows_a_place_is_read_or_waited_for(shelf: Shelf) -> None:
    events, link = await reader(shelf)
    first, *_ = tell(shelf, *"abc")

    async def read(place: str, count: int, block_ms: int) -> list[Event]:
        assert link.pipe is not None
        return await events.ahead(place, count, block_ms, link.pipe)

    assert ids(await read("0", 2, 1)) == ["a", "b"]
    seen = await read(first, 9, 1)
    assert ids(seen) == ["b", "c"]
    place = seen[-1][0]
    assert await read(place, 9, 1) == []
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(read(place, 9, 60_000))
        await asyncio.sleep(0.01)
        tell(shelf, "d")
    assert ids(waiting.result()) == ["d"]


async def test_a_row_that_is_no_event_keeps_its_place(shelf: Shelf) -> None:
    junk: Any = {"x": "1"}
    shelf.redis.xadd(shelf.keys.events, junk)
    (last,) = tell(shelf, "a")
    (_, said), (place, row) = await shelf.store.events.last(2)
    assert (said, place, row.job_id) == (JUNK, last, "a")


async def test_a_read_ahead_outlives_who_waited_for_it(shelf: Shelf) -> None:
    events, link = await reader(shelf)
    assert link.pipe is not None
    ahead = events.ahead("0", 9, 60_000, link.pipe)
    _, pending = await asyncio.wait([ahead], timeout=0.01)
    assert pending
    tell(shelf, "a")
    assert ids(await ahead) == ["a"]


async def test_a_read_ahead_says_what_went_wrong(shelf: Shelf) -> None:
    events, link = await reader(shelf)
    assert link.pipe is not None
    lost = events.ahead("0", 9, 60_000, link.pipe)
    link.pipe.close()
    with pytest.raises(StoreUnavailableError, match="broke before the answer came"):
        await lost
    shelf.redis.set(shelf.keys.events, "in the way")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await events.ahead("0", 9, 1, await link.up())
