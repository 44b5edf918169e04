"""A stream is there when it is needed, set up by whoever creates it and touched by nobody after."""

from __future__ import annotations

import asyncio

import pytest

from chasquimq.config import StreamOptions
from chasquimq.errors import StoreError
from chasquimq.store import open_stream
from tests.store.shelf import GROUP, Shelf


def settings(shelf: Shelf) -> tuple[int, int] | None:
    """IDMP-MAXSIZE and IDMP-DURATION now in force; None where the server has no IDMP."""
    info = shelf.redis.xinfo_stream(shelf.keys.stream)
    return (info["idmp-maxsize"], info["idmp-duration"]) if "idmp-maxsize" in info else None


def groups(shelf: Shelf) -> list[tuple[str, bytes]]:
    """Name and last delivered id."""
    found = shelf.redis.xinfo_groups(shelf.keys.stream)
    return [(group["name"].decode(), group["last-delivered-id"]) for group in found]


def foreign_settings(shelf: Shelf) -> None:
    if shelf.native:
        key = shelf.keys.stream
        shelf.redis.execute_command("XCFGSET", key, "IDMP-MAXSIZE", 200, "IDMP-DURATION", 60)


async def test_a_worker_creates_the_stream_with_its_settings_and_its_group_at_0(
    shelf: Shelf,
) -> None:
    remembered = await shelf.open_stream(GROUP)
    assert groups(shelf) == [(GROUP, b"0-0")]
    assert shelf.redis.xlen(shelf.keys.stream) == 0
    assert remembered == ((10_000, 900) if shelf.native else (0, 0))
    if shelf.native:
        assert settings(shelf) == (10_000, 900)


async def test_a_producer_creates_the_stream_and_leaves_no_group_behind(shelf: Shelf) -> None:
    remembered = await shelf.open_stream()
    assert shelf.redis.type(shelf.keys.stream) == b"stream"
    assert groups(shelf) == []
    assert remembered == ((10_000, 900) if shelf.native else (0, 0))
    if shelf.native:
        assert settings(shelf) == (10_000, 900)


async def test_options_say_what_a_new_stream_remembers(shelf: Shelf) -> None:
    options = StreamOptions(idmp_max_size=500, idmp_duration_s=60)
    remembered = await open_stream(shelf.link, shelf.keys, shelf.dialect(), options)
    assert remembered == ((500, 60) if shelf.native else (0, 0))
    if shelf.native:
        assert settings(shelf) == (500, 60)


async def test_entries_that_were_there_before_the_group_are_delivered(shelf: Shelf) -> None:
    (entry_id,) = shelf.put(b"early")
    jobs = await shelf.join()
    ((_, rows),) = await shelf.send(jobs.read(10, 1_000))
    assert rows == [[entry_id, [b"d", b"early"]]]


@pytest.mark.parametrize("group", ["", GROUP])
async def test_opening_again_changes_nothing(shelf: Shelf, group: str) -> None:
    first = await shelf.open_stream(group)
    shelf.put(b"a")
    before = shelf.redis.xinfo_stream(shelf.keys.stream), groups(shelf)
    assert await shelf.open_stream(group) == first
    assert (shelf.redis.xinfo_stream(shelf.keys.stream), groups(shelf)) == before


@pytest.mark.parametrize("group", ["", GROUP])
async def test_the_settings_of_a_live_stream_are_not_touched(shelf: Shelf, group: str) -> None:
    shelf.put(b"made by others")
    foreign_settings(shelf)
    before = settings(shelf)
    assert await shelf.open_stream(group) == ((200, 60) if shelf.native else (0, 0))
    assert settings(shelf) == before


async def test_ids_that_a_live_stream_remembers_stay_remembered(shelf: Shelf) -> None:
    await shelf.open_stream()
    once = shelf.dialect(producer_id=b"p").add_own(b"job", [b"d", b"x"], 900)
    assert await shelf.send(once) == 1
    await shelf.open_stream(GROUP)
    await shelf.open_stream()
    assert await shelf.send(once) == 2
    assert shelf.redis.xlen(shelf.keys.stream) == 1


async def test_a_group_that_lives_keeps_its_place(shelf: Shelf) -> None:
    await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    await shelf.join()
    await shelf.open_stream(GROUP, again=True)
    assert groups(shelf) == [(GROUP, entry_id)]
    assert shelf.pending() == {entry_id: ("me", 1)}


@pytest.mark.parametrize("group", ["", GROUP])
async def test_after_a_loss_the_stream_is_set_up_again(shelf: Shelf, group: str) -> None:
    await shelf.open_stream(group)
    shelf.redis.delete(shelf.keys.stream)
    await shelf.open_stream(group, again=True)
    assert groups(shelf) == ([(GROUP, b"0-0")] if group else [])
    if shelf.native:
        assert settings(shelf) == (10_000, 900)


async def test_after_a_loss_a_stream_that_an_add_brought_back_gets_its_settings(
    shelf: Shelf,
) -> None:
    await shelf.join()
    shelf.redis.delete(shelf.keys.stream)
    (entry_id,) = shelf.put(b"added before the worker noticed")
    await shelf.open_stream(GROUP, again=True)
    assert groups(shelf) == [(GROUP, b"0-0")]
    assert [found for found, _ in shelf.entries()] == [entry_id]
    if shelf.native:
        assert settings(shelf) == (10_000, 900)


async def test_a_producer_that_opens_again_leaves_a_live_stream_alone(shelf: Shelf) -> None:
    shelf.put(b"a")
    foreign_settings(shelf)
    before = settings(shelf)
    await shelf.open_stream(again=True)
    assert settings(shelf) == before


async def test_creators_at_the_same_time_agree(shelf: Shelf) -> None:
    links = [await shelf.new_link() for _ in range(8)]
    options = StreamOptions()
    async with asyncio.TaskGroup() as tasks:
        found = [
            tasks.create_task(
                open_stream(link, shelf.keys, shelf.dialect(), options, GROUP if n % 2 else "")
            )
            for n, link in enumerate(links)
        ]
    assert len({task.result() for task in found}) == 1
    assert groups(shelf) == [(GROUP, b"0-0")]
    if shelf.native:
        assert settings(shelf) == (10_000, 900)


async def test_a_key_of_another_type_is_refused_and_left_as_it_is(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.stream, "mine")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await shelf.open_stream(GROUP)
    assert shelf.redis.get(shelf.keys.stream) == b"mine"


@pytest.mark.parametrize("group", ["", GROUP])
async def test_opening_what_is_there_needs_no_memory(own_shelf: Shelf, group: str) -> None:
    first = await own_shelf.open_stream(group)
    own_shelf.redis.config_set("maxmemory", 1)
    assert await own_shelf.open_stream(group) == first
    assert await own_shelf.open_stream(group, again=True) == first
