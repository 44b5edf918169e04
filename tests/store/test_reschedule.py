"""Another time for a delayed job: its score, its index and its marker move together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

import pytest

from chasquimq.errors import QueueFullError
from chasquimq.job import Due
from chasquimq.store import Delayed
from tests.store.faulty import break_off, places, wipe
from tests.store.shelf import Shelf, envelope, member
from tests.store.test_delayed import heard as heard  # the fixture
from tests.store.test_delayed import told

HOUR = Due(3_600_000)
KINDS = pytest.mark.parametrize("own", [False, True], ids=["minted", "own"])


async def schedule(
    shelf: Shelf, own: bool, due: Due = HOUR, job_id: str = "job", name: bytes = b"send"
) -> bytes:
    delayed = shelf.store.delayed
    put = delayed.schedule_once if own else delayed.schedule
    delay_ms = due.ms - shelf.now_ms() if due.absolute else due.ms
    assert await shelf.send(put(due, member(job_id, name), job_id, delay_ms)) == 1
    return member(job_id, name)


# -- what moves ----------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("ms", [0, 1, 1_500, 60_000, 7_200_000, 2**52])
async def test_a_relative_time_counts_from_the_servers_clock(
    shelf: Shelf, own: bool, ms: int
) -> None:
    one = await schedule(shelf, own)
    before = shelf.now_ms()
    assert await shelf.store.delayed.reschedule("job", Due(ms)) is True
    assert list(shelf.delayed()) == [one]
    assert before + ms <= shelf.delayed()[one] <= shelf.now_ms() + ms


@KINDS
@pytest.mark.parametrize("ms", [4_000_000_000_123, 2**53 - 1])
async def test_an_absolute_time_is_the_score_to_the_millisecond(
    shelf: Shelf, own: bool, ms: int
) -> None:
    one = await schedule(shelf, own)
    assert await shelf.store.delayed.reschedule("job", Due(ms, absolute=True)) is True
    assert shelf.delayed() == {one: ms}


@KINDS
async def test_a_moment_that_has_passed_is_now(shelf: Shelf, own: bool) -> None:
    one = await schedule(shelf, own)
    before = shelf.now_ms()
    assert await shelf.store.delayed.reschedule("job", Due(5, absolute=True)) is True
    assert before <= shelf.delayed()[one] <= shelf.now_ms()


@KINDS
async def test_it_can_be_moved_again_and_again_and_cancelled_then(shelf: Shelf, own: bool) -> None:
    delayed = shelf.store.delayed
    await schedule(shelf, own)
    for ms in (5_000, 9_000_000, 50_000, 9_000_000):
        assert await delayed.reschedule("job", Due(ms)) is True
    assert await delayed.cancel("job") is True
    assert await delayed.reschedule("job", HOUR) is False
    keys = shelf.keys
    assert shelf.redis.exists(keys.delayed, keys.didx("job"), keys.dlid("job")) == 0


async def test_the_index_of_a_minted_id_follows_and_a_copy_stays_as_it_is(shelf: Shelf) -> None:
    at = Due(4_000_000_000_123, absolute=True)
    for own, index in (
        (False, b"4000000000123 \x04\0\0\0send\x94\xa3"),
        (True, member(name=b"send")),
    ):
        await schedule(shelf, own)
        assert await shelf.store.delayed.reschedule("job", at) is True
        assert shelf.redis.get(shelf.keys.didx("job")) == index
        assert shelf.redis.get(shelf.keys.dlid("job")) == (b"1" if own else None)
        wipe(shelf)


@KINDS
@pytest.mark.parametrize(
    ("ms", "lives_s"), [(0, 3600), (1_500, 3601), (60_000, 3660), (86_400_000, 90_000)]
)
async def test_index_and_marker_live_an_hour_beyond_the_new_time(
    shelf: Shelf, own: bool, ms: int, lives_s: int
) -> None:
    await schedule(shelf, own)
    await shelf.store.delayed.reschedule("job", Due(ms))
    for key in (shelf.keys.didx("job"), shelf.keys.dlid("job"))[: 2 if own else 1]:
        assert abs(shelf.redis.pttl(key) - lives_s * 1_000) <= 1_500
    assert shelf.redis.exists(shelf.keys.dlid("job")) == own


async def test_a_marker_that_lives_longer_keeps_its_lead(shelf: Shelf) -> None:
    """An id may be taken for days beyond its job: neither is that forgotten."""
    await schedule(shelf, own=True)
    shelf.redis.pexpire(shelf.keys.dlid("job"), 3_600_000 + 86_400_000)
    await shelf.store.delayed.reschedule("job", Due(0))
    assert abs(shelf.redis.pttl(shelf.keys.dlid("job")) - 86_400_000) <= 1_500


@KINDS
async def test_a_wrong_clock_costs_neither_index_nor_marker(shelf: Shelf, own: bool) -> None:
    """A producer whose clock is ahead by hours gave them too short a life."""
    await schedule(shelf, own, HOUR)
    for key in (shelf.keys.didx("job"), shelf.keys.dlid("job")):
        shelf.redis.pexpire(key, 60_000)
    assert await shelf.store.delayed.reschedule("job", Due(0)) is True
    assert shelf.redis.exists(shelf.keys.didx("job"), shelf.keys.dlid("job")) == 1 + own
    assert await shelf.store.delayed.cancel("job") is True


async def test_a_job_of_the_reference_is_moved_as_well(shelf: Shelf) -> None:
    one = member("job", b"n" * 255)
    shelf.redis.zadd(shelf.keys.delayed, {one: 4_000_000_000_000.5})
    shelf.redis.set(shelf.keys.didx("job"), one, ex=5_000)
    shelf.redis.set(shelf.keys.dlid("job"), "1", ex=5_000)
    assert await shelf.store.delayed.reschedule("job", Due(60_000), 100) is True
    assert shelf.delayed()[one] < shelf.now_ms() + 60_001
    assert shelf.redis.get(shelf.keys.didx("job")) == one
    assert [fields[7] for fields in told(shelf)] == [b"n" * 255]


# -- too late ------------------------------------------------------------------------------------


@KINDS
async def test_a_promoted_job_keeps_its_time(shelf: Shelf, own: bool) -> None:
    delayed = shelf.store.delayed
    await schedule(shelf, own, Due(1))
    await asyncio.sleep(0.005)
    assert (await delayed.promote("me", 5, 10)).moved == (("job", "send"),)
    assert await delayed.reschedule("job", HOUR, 100) is False
    assert await delayed.cancel("job") is False
    assert (shelf.delayed(), told(shelf)) == ({}, [])
    assert len(shelf.entries()) == 1
    assert not shelf.redis.exists(shelf.keys.didx("job"))


@KINDS
async def test_a_job_promoted_by_another_program_keeps_its_index_and_marker(
    shelf: Shelf, own: bool
) -> None:
    one = await schedule(shelf, own)
    shelf.redis.zrem(shelf.keys.delayed, one)
    before = shelf.redis.get(shelf.keys.didx("job"))
    assert await shelf.store.delayed.reschedule("job", Due(0), 100) is False
    assert shelf.redis.get(shelf.keys.didx("job")) == before
    assert (shelf.delayed(), told(shelf)) == ({}, [])


async def test_a_job_that_waits_for_its_retry_is_not_found(shelf: Shelf) -> None:
    delayed, jobs = shelf.store.delayed, await shelf.join()
    (entry_id,) = shelf.deliver(envelope("job"))
    await shelf.send(jobs.retry(entry_id, 60_000, member("job")))
    before = shelf.delayed()
    assert await delayed.reschedule("job", Due(0)) is False
    assert await delayed.cancel("job") is False
    assert shelf.delayed() == before


# -- who is told ---------------------------------------------------------------------------------


@KINDS
async def test_only_a_new_first_wakes_the_promoter(
    shelf: Shelf, heard: Callable[[], int], own: bool
) -> None:
    await schedule(shelf, own, Due(60_000), "first")
    await schedule(shelf, own, Due(70_000), "job")
    heard()
    for ms, wakes in ((80_000, 0), (65_000, 0), (50_000, 1), (40_000, 1), (90_000, 0)):
        await shelf.store.delayed.reschedule("job", Due(ms))
        assert heard() == wakes, ms
    await shelf.store.delayed.reschedule("nobody", Due(0))
    assert heard() == 0


@KINDS
@pytest.mark.parametrize("name", [b"send", b"\xc3\xb1%s\r\n", b"", b"n" * 256])
async def test_a_new_time_is_told_with_its_fields_in_order(
    shelf: Shelf, own: bool, name: bytes
) -> None:
    one = await schedule(shelf, own, name=name)
    assert await shelf.store.delayed.reschedule("job", Due(90_000), 1_000) is True
    (fields,) = told(shelf)
    ts, named = fields[5], [b"n", name] if name else []
    assert fields == [
        *(b"e", b"delayed", b"id", b"job", b"ts", ts),
        *named,
        *(b"delay_ms", b"90000"),
    ]
    assert shelf.delayed() == {one: int(ts) + 90_000}


async def test_nothing_is_told_unless_asked_for_and_not_more_than_is_kept(shelf: Shelf) -> None:
    await schedule(shelf, own=False)
    await shelf.store.delayed.reschedule("job", HOUR)
    assert not shelf.redis.exists(shelf.keys.events)
    for _ in range(350):
        await shelf.store.delayed.reschedule("job", HOUR, 100)
    assert 100 <= len(told(shelf)) <= 200


async def test_who_may_neither_publish_nor_write_events_moves_it_all_the_same(
    shelf: Shelf, new_user: Callable[..., str]
) -> None:
    one = await schedule(shelf, own=False)
    tag = shelf.keys.tag.decode()
    narrow = await shelf.new_link(
        new_user(f"~{tag}d*", f"~{tag}unique:*", "resetchannels", "+@all")
    )
    assert await Delayed(shelf.keys, narrow).reschedule("job", Due(60_000), 100) is True
    assert shelf.delayed()[one] < shelf.now_ms() + 60_001
    assert told(shelf) == []


# -- what breaks ---------------------------------------------------------------------------------


@KINDS
async def test_a_script_that_breaks_off_anywhere_leaves_the_job_where_it_was(
    shelf: Shelf, own: bool
) -> None:
    for nth in count(1):
        wipe(shelf)
        await schedule(shelf, own, job_id="a")
        if not await break_off(
            shelf, nth, lambda link: Delayed(shelf.keys, link).reschedule("a", Due(5_000), 100)
        ):
            break
        assert places(shelf) == {"a": ["delayed"]}, f"command {nth}"
    assert nth > 10


async def test_a_cancellation_that_breaks_off_can_be_repeated(shelf: Shelf) -> None:
    for nth in count(1):
        wipe(shelf)
        await schedule(shelf, own=False, job_id="a")
        act = break_off(shelf, nth, lambda link: Delayed(shelf.keys, link).cancel("a"))
        if not await act:
            break
        await shelf.store.delayed.cancel("a")
        assert places(shelf) == {}, f"command {nth}"
    assert nth > 5


@KINDS
async def test_a_server_without_memory_refuses_and_the_time_stays(
    own_shelf: Shelf, own: bool
) -> None:
    await schedule(own_shelf, own)
    before = own_shelf.delayed(), own_shelf.redis.get(own_shelf.keys.didx("job"))
    own_shelf.redis.config_set("maxmemory", 1)
    with pytest.raises(QueueFullError, match="out of memory"):
        await own_shelf.store.delayed.reschedule("job", Due(0))
    own_shelf.redis.config_set("maxmemory", 0)
    assert (own_shelf.delayed(), own_shelf.redis.get(own_shelf.keys.didx("job"))) == before
    assert await own_shelf.store.delayed.reschedule("job", Due(0)) is True
