"""Scheduling and cancelling: due times by the server's clock, ids only once, markers that end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from chasquimq.job import Due
from chasquimq.store import Notice
from tests.store.shelf import Shelf, envelope, member


@pytest.fixture
def heard(shelf: Shelf) -> Iterator[Callable[[], int]]:
    """How many wake-ups came since it was asked last."""
    ear = shelf.redis.pubsub(ignore_subscribe_messages=True)
    ear.subscribe(shelf.keys.wake)
    ear.get_message(timeout=1)

    def count() -> int:
        came = 0
        while ear.get_message(timeout=0.02) is not None:
            came += 1
        return came

    yield count
    ear.close()


# -- schedule ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ms", [1, 1_500, 2**52])
async def test_a_relative_delay_counts_from_the_servers_clock(shelf: Shelf, ms: int) -> None:
    before = shelf.now_ms()
    assert await shelf.send(shelf.store.delayed.schedule(Due(ms), member(), "job", ms)) == 1
    ((found, score),) = shelf.delayed().items()
    assert found == member()
    assert before + ms <= score <= shelf.now_ms() + ms


@pytest.mark.parametrize("ms", [1, 1_800_000_000_123, 2**53 - 1])
async def test_an_absolute_time_is_the_score_to_the_millisecond(shelf: Shelf, ms: int) -> None:
    due = Due(ms, absolute=True)
    assert await shelf.send(shelf.store.delayed.schedule(due, member(), "job", 1)) == 1
    assert shelf.delayed() == {member(): ms}


LIVES = pytest.mark.parametrize(
    ("delay_ms", "lives_s"),
    [
        (1, 3601),
        (999, 3601),
        (1_999, 3601),
        (2_000, 3602),
        (60_500, 3660),
        (2_592_000_000, 2595600),
    ],
)


@LIVES
@pytest.mark.parametrize("absolute", [False, True])
async def test_an_own_id_stays_taken_for_its_delay_and_an_hour(
    shelf: Shelf, delay_ms: int, lives_s: int, absolute: bool
) -> None:
    due = Due(shelf.now_ms() + delay_ms if absolute else delay_ms, absolute)
    assert await shelf.send(shelf.store.delayed.schedule_once(due, member(), "job", delay_ms)) == 1
    marker, index = shelf.keys.dlid("job"), shelf.keys.didx("job")
    assert shelf.redis.get(marker) == b"1"
    assert shelf.redis.get(index) == member()
    for key in (marker, index):
        assert lives_s * 1_000 - 900 < shelf.redis.pttl(key) <= lives_s * 1_000
    assert list(shelf.delayed()) == [member()]


@LIVES
async def test_a_minted_id_leaves_no_marker_and_an_index_that_lives_as_long(
    shelf: Shelf, delay_ms: int, lives_s: int
) -> None:
    one = member("job", b"send")
    await shelf.send(shelf.store.delayed.schedule(Due(delay_ms), one, "job", delay_ms))
    index = shelf.keys.didx("job")
    assert shelf.redis.get(index) == b"%d \x04\0\0\0send\x94\xa3" % shelf.delayed()[one]
    assert lives_s * 1_000 - 900 < shelf.redis.pttl(index) <= lives_s * 1_000
    assert not shelf.redis.exists(shelf.keys.dlid("job"))


async def test_an_own_id_is_scheduled_once(shelf: Shelf) -> None:
    schedule = shelf.store.delayed.schedule_once
    assert await shelf.send(schedule(Due(60_000), member("job", b"first"), "job", 60_000)) == 1
    before = shelf.delayed()
    assert await shelf.send(schedule(Due(5), member("job", b"second"), "job", 5)) == 0
    assert shelf.delayed() == before
    assert shelf.redis.get(shelf.keys.didx("job")) == member("job", b"first")
    assert await shelf.send(schedule(Due(60_000), member("other"), "other", 60_000)) == 1


async def test_a_marker_that_the_reference_left_is_respected(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.dlid("job"), "1", ex=60)
    assert await shelf.send(shelf.store.delayed.schedule_once(Due(5), member(), "job", 5)) == 0
    assert shelf.delayed() == {}


# -- the wake-up ---------------------------------------------------------------------------------


async def test_only_what_is_put_in_front_wakes_the_promoter(
    shelf: Shelf, heard: Callable[[], int]
) -> None:
    schedule = shelf.store.delayed.schedule
    await shelf.send(schedule(Due(60_000), member("b"), "b", 60_000))
    assert heard() == 1
    await shelf.send(schedule(Due(70_000), member("c"), "c", 70_000))
    assert heard() == 0
    await shelf.send(schedule(Due(50_000), member("a"), "a", 50_000))
    assert heard() == 1
    await shelf.send(shelf.store.delayed.schedule_once(Due(5), member("d"), "d", 5))
    assert heard() == 1
    await shelf.send(shelf.store.delayed.schedule_once(Due(5), member("d"), "d", 5))
    assert heard() == 0


async def test_a_retry_wakes_the_promoter_when_it_is_put_in_front(
    shelf: Shelf, heard: Callable[[], int]
) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b", b"c")
    for entry_id, delay_ms, job_id, wakes in (
        (ids[0], 60_000, "a", 1),
        (ids[1], 70_000, "b", 0),
        (ids[2], 50_000, "c", 1),
    ):
        await shelf.send(jobs.retry(entry_id, delay_ms, member(job_id)))
        assert heard() == wakes
    await shelf.send(jobs.retry(ids[0], 1, member("a")))  # no longer ours
    assert heard() == 0


async def test_who_may_not_publish_schedules_all_the_same(
    shelf: Shelf, new_user: Callable[..., str]
) -> None:
    jobs = await shelf.join()
    mute = await shelf.new_link(new_user("~*", "+@all", "resetchannels"))
    (entry_id,) = shelf.deliver(b"a")
    command = shelf.store.delayed.schedule(Due(60_000), member("a"), "a", 60_000)
    assert await shelf.send(command, mute) == 1
    assert await shelf.send(jobs.retry(entry_id, 1, member("b")), mute) == 1
    assert sorted(shelf.delayed()) == [member("a"), member("b")]


# -- the event -------------------------------------------------------------------------------------

TOLD = Notice(1_000, b"job", b"send")


def told(shelf: Shelf) -> list[list[bytes]]:
    """The events, each as its flat fields."""
    rows = [fields for _, fields in shelf.entries(shelf.keys.events)]
    return [[part for pair in fields.items() for part in pair] for fields in rows]


@pytest.mark.parametrize("ms", [1, 1_500, 2**52])
@pytest.mark.parametrize("name", [b"send", b"\xc3\xb1%s\r\n", b""])
async def test_a_scheduled_job_is_told_with_its_fields_in_order(
    shelf: Shelf, ms: int, name: bytes
) -> None:
    before = shelf.now_ms()
    notice = TOLD._replace(name=name)
    command = shelf.store.delayed.schedule(Due(ms), member(), "job", ms, notice)
    assert await shelf.send(command) == 1
    (fields,) = told(shelf)
    ts = fields[5]
    named = [b"n", name] if name else []
    assert fields == [
        *(b"e", b"delayed", b"id", b"job", b"ts", ts),
        *named,
        *(b"delay_ms", b"%d" % ms),
    ]
    assert before <= int(ts) <= shelf.now_ms()
    assert shelf.delayed() == {member(): int(ts) + ms}


@pytest.mark.parametrize("ahead_ms", [60_000, 0, -60_000])
async def test_an_absolute_time_is_told_as_what_is_left_and_never_less_than_nothing(
    shelf: Shelf, ahead_ms: int
) -> None:
    due = Due(shelf.now_ms() + ahead_ms, absolute=True)
    await shelf.send(shelf.store.delayed.schedule(due, member(), "job", 1, TOLD))
    (fields,) = told(shelf)
    assert int(fields[-1]) == max(0, due.ms - int(fields[5]))


async def test_an_id_that_is_scheduled_already_is_not_told_again(shelf: Shelf) -> None:
    schedule = shelf.store.delayed.schedule_once
    for name, answer in ((b"", 1), (b"another", 0), (b"", 1)):  # the last is the first, sent again
        command = schedule(Due(60_000), member(name=name), "job", 60_000, TOLD)
        assert await shelf.send(command) == answer
    assert len(told(shelf)) == 1
    assert shelf.redis.get(shelf.keys.didx("job")) == member()
    assert shelf.redis.get(shelf.keys.dlid("job")) == b"1"


async def test_nothing_is_told_without_a_notice(shelf: Shelf) -> None:
    await shelf.send(shelf.store.delayed.schedule(Due(5), member(), "job", 5))
    await shelf.send(shelf.store.delayed.schedule_once(Due(5), member("b"), "b", 5))
    assert not shelf.redis.exists(shelf.keys.events)


async def test_the_events_are_capped(shelf: Shelf) -> None:
    few = TOLD._replace(max_len=100)
    command = shelf.store.delayed.schedule(Due(60_000), member(), "job", 60_000, few)
    for _ in range(350):
        await shelf.send(command)
    assert 100 <= len(told(shelf)) <= 200


@pytest.mark.parametrize("job_id", [None, "job"])
async def test_an_event_that_cannot_be_written_keeps_no_job_out(
    shelf: Shelf, new_user: Callable[..., str], job_id: str | None
) -> None:
    delayed = shelf.store.delayed
    command = delayed.schedule(Due(60_000), member(), "job", 60_000, TOLD)
    if job_id is not None:
        command = delayed.schedule_once(Due(60_000), member(), job_id, 60_000, TOLD)
    mute = await shelf.new_link(new_user("~*", "&*", "+@all", "-xadd"))
    assert await shelf.send(command, mute) == 1
    assert (list(shelf.delayed()), told(shelf)) == ([member()], [])

    shelf.redis.delete(shelf.keys.delayed, shelf.keys.dlid("job"))
    shelf.redis.set(shelf.keys.events, "in the way")
    assert await shelf.send(command) == 1
    assert list(shelf.delayed()) == [member()]


async def test_who_may_not_touch_the_events_key_is_not_refused_the_job(
    shelf: Shelf, new_user: Callable[..., str]
) -> None:
    """Servers check the keys of a script before it runs, so the events may not be one of them."""
    tag = shelf.keys.tag.decode()
    narrow = await shelf.new_link(new_user(f"~{tag}d*", "&*", "+@all"))
    command = shelf.store.delayed.schedule(Due(60_000), member(), "job", 60_000, TOLD)
    assert await shelf.send(command, narrow) == 1
    assert (list(shelf.delayed()), told(shelf)) == ([member()], [])


# -- cancel --------------------------------------------------------------------------------------


async def test_a_cancelled_job_leaves_nothing_behind_and_its_id_is_free(shelf: Shelf) -> None:
    delayed = shelf.store.delayed
    command = delayed.schedule_once(Due(60_000), member(), "job", 60_000)
    await shelf.send(command)
    assert await delayed.cancel("job") is True
    assert (
        shelf.redis.exists(shelf.keys.delayed, shelf.keys.dlid("job"), shelf.keys.didx("job")) == 0
    )
    assert await delayed.cancel("job") is False
    assert await shelf.send(command) == 1


async def test_only_the_named_job_is_cancelled(shelf: Shelf) -> None:
    delayed = shelf.store.delayed
    for job_id in ("a", "b"):
        await shelf.send(delayed.schedule_once(Due(60_000), member(job_id), job_id, 60_000))
    assert await delayed.cancel("a") is True
    assert await delayed.cancel("nobody") is False
    assert list(shelf.delayed()) == [member("b")]


async def test_a_promoted_job_cannot_be_cancelled_and_its_id_stays_taken(shelf: Shelf) -> None:
    delayed = shelf.store.delayed
    await shelf.send(delayed.schedule_once(Due(1), member(), "job", 1))
    await asyncio.sleep(0.005)
    await delayed.promote("me", 5, 10)
    assert await delayed.cancel("job") is False
    assert shelf.redis.exists(shelf.keys.dlid("job")) == 1
    assert shelf.redis.exists(shelf.keys.didx("job")) == 0
    assert [fields for _, fields in shelf.entries()] == [{b"d": envelope()}]


async def test_a_job_promoted_by_another_program_keeps_its_marker(shelf: Shelf) -> None:
    delayed = shelf.store.delayed
    await shelf.send(delayed.schedule_once(Due(60_000), member(), "job", 60_000))
    shelf.redis.zrem(shelf.keys.delayed, member())  # the side-index is still there
    assert await delayed.cancel("job") is False
    assert shelf.redis.exists(shelf.keys.dlid("job")) == 1
