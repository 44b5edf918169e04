"""Who follows a queue sees each of its events once, from the place where it began."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import pytest

from chasquimq import (
    BackoffSpec,
    ConfigError,
    Job,
    QueueEvent,
    StoreUnavailableError,
    UnrecoverableError,
)
from tests.engine.desk import Desk, eventually
from tests.engine.follow import collecting, follower, reading, rows, take, take_ids, tell

LONG_MS = 600_000  # a block that no test waits out
FAST = BackoffSpec.fixed(1, jitter_ms=0)
# The fields of each event, in the order of the wire; `drained` has an empty id.
FIELDS: dict[str, list[str]] = {
    "delayed": ["e", "id", "ts", "n", "delay_ms"],
    "waiting": ["e", "id", "ts", "n"],
    "active": ["e", "id", "ts", "n", "attempt", "created_ms"],
    "completed": ["e", "id", "ts", "n", "attempt", "duration_us"],
    "failed": ["e", "id", "ts", "n", "attempt", "reason", "duration_us"],
    "retry-scheduled": ["e", "id", "ts", "n", "attempt", "backoff_ms"],
    "dlq": ["e", "id", "ts", "n", "attempt", "reason"],
    "drained": ["e", "id", "ts"],
}


# -- what it sees ----------------------------------------------------------------------------------


async def test_all_eight_events_as_rows_and_as_read(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        if job.name == "flaky" and job.attempt == 0:
            raise ValueError("once")
        if job.name == "bad":
            raise UnrecoverableError("never")

    async with follower(desk) as events, collecting(events) as seen:
        async with desk.queue() as queue, desk.working(handler, backoff=FAST, read_block_ms=50):
            await queue.add("flaky", 1, job_id="twice", delay_ms=30)
            await queue.add("bad", 1, job_id="dies")
            await eventually(lambda: desk.redis.exists(desk.keys.dlq))
            await desk.settled()
            await eventually(lambda: {row[2]["e"] for row in rows(desk)} == set(FIELDS))
        await eventually(lambda: len(seen) == len(rows(desk)))

    for event, (place, names, fields) in zip(seen, rows(desk), strict=True):
        assert names == FIELDS[fields["e"]]
        assert event.id == place
        assert (event.name, event.job_name) == (fields["e"], fields.get("n", ""))
        assert event.job_id == (fields["id"] or None)
        assert list(event.fields) == [name for name in names if name not in ("e", "id", "n")]
        for name, value in event.fields.items():
            assert value == (fields[name] if name == "reason" else int(fields[name]))

    told = [(event.name, event.fields.get("attempt")) for event in seen if event.job_id == "twice"]
    assert [event for event in told if event[0] != "waiting"] == [
        *(("delayed", None), ("active", 1), ("failed", 1), ("retry-scheduled", 2)),
        *(("active", 2), ("completed", 2)),
    ]
    of = {event.name: event for event in seen}
    assert of["delayed"].fields["delay_ms"] == 30
    assert of["failed"].fields["reason"] in ("once", "never")
    assert (of["dlq"].job_id, of["dlq"].fields["reason"]) == ("dies", "unrecoverable")
    assert of["drained"].job_id is None


async def test_more_events_than_one_read_brings_come_in_order(desk: Desk) -> None:
    wanted = [f"{number}" for number in range(250)]
    tell(desk, *wanted)
    async with follower(desk, last_event_id="0", count=100) as events:
        assert await take_ids(events, 250) == wanted


async def test_an_event_of_a_newer_release_is_handed_out(desk: Desk) -> None:
    tell(desk, "a", kind="progress", name="mail", progress=40, shiny="new")
    async with follower(desk, last_event_id="0", events="progress") as events:
        (event,) = await take(events, 1)
    fields: dict[str, int | str] = {"ts": 1_700_000_000_000, "progress": "40", "shiny": "new"}
    assert event == QueueEvent("progress", "a", "mail", fields, event.id)


async def test_junk_is_passed_over_and_logged(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    junk: list[Any] = [{"x": "1"}, {"e": ""}, {b"\xff\xfe": b"\x00" * 99}, {"id": "a", "ts": "x"}]
    for fields in junk:
        desk.redis.xadd(desk.keys.events, fields)
    tell(desk, "a")
    last = desk.redis.xadd(desk.keys.events, junk[0])
    async with follower(desk, last_event_id="0", block_ms=10) as events:
        with caplog.at_level(logging.WARNING):
            assert await take_ids(events, 1) == ["a"]
            async with collecting(events):
                await eventually(lambda: events.last_event_id == last.decode())
    assert sum("is no event" in record.message for record in caplog.records) == 5


async def test_filters_let_through_what_was_asked_for(desk: Desk) -> None:
    for kind in FIELDS:
        for name in ("", "mail", "bill"):
            tell(desk, f"{kind}-{name}", kind=kind, name=name)
    last = tell(desk, "last", kind="waiting")

    async def through(**filters: Any) -> list[str | None]:
        events = follower(desk, last_event_id="0", block_ms=20, **filters)
        async with collecting(events) as seen:
            await eventually(lambda: events.last_event_id == last)
        return [event.job_id for event in seen]

    assert await through(events="dlq") == ["dlq-", "dlq-mail", "dlq-bill"]
    assert await through(names=["mail"], events=("completed", "dlq")) == [
        *("completed-mail", "dlq-mail"),
    ]
    assert await through(names="", events=iter(["failed"])) == ["failed-"]
    assert await through(names="nobody") == []


# -- where it begins -------------------------------------------------------------------------------


async def test_from_now_on_begins_where_the_block_is_entered(desk: Desk) -> None:
    tell(desk, "before")
    async with follower(desk) as events:
        tell(desk, "after")
        assert await take_ids(events, 1) == ["after"]


async def test_without_a_block_it_begins_with_the_first_read(desk: Desk) -> None:
    tell(desk, "before")
    events = follower(desk)
    async with collecting(events) as seen:
        await eventually(lambda: reading(desk))
        tell(desk, "after")
        await eventually(lambda: seen)
    assert [event.job_id for event in seen] == ["after"]


async def test_what_comes_between_two_reads_is_not_lost(desk: Desk) -> None:
    """Asking for "$" again would begin behind it."""
    async with follower(desk, block_ms=1) as events:
        for number in range(5):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await anext(events)
            await eventually(lambda: not reading(desk))
            tell(desk, f"{number}")
            assert await take_ids(events, 1) == [f"{number}"]


async def test_an_empty_stream_is_followed_from_its_first_event(desk: Desk) -> None:
    async with follower(desk) as events:
        assert events.last_event_id == "0-0"
        tell(desk, "first")
        assert await take_ids(events, 1) == ["first"]


async def test_it_goes_on_where_another_one_stopped(desk: Desk) -> None:
    tell(desk, *"abcdefg")
    async with follower(desk, last_event_id="0") as events:
        (_, second) = await take(events, 2)
        assert events.last_event_id == second.id  # not what was read ahead
    async with follower(desk, last_event_id=second.id) as events:
        assert await take_ids(events, 2) == ["c", "d"]
        place = events.last_event_id
    async with follower(desk, last_event_id=place) as events:
        assert await take_ids(events, 3) == ["e", "f", "g"]


async def test_who_leaves_a_loop_goes_on_with_the_next_one(desk: Desk) -> None:
    tell(desk, *"abc")
    async with follower(desk, last_event_id="0") as events:
        async for event in events:
            assert event.job_id == "a"
            break
        assert await take_ids(events, 2) == ["b", "c"]


# -- closing, cancelling, sharing ------------------------------------------------------------------


async def test_close_ends_a_blocked_read_at_once_and_hangs_up(desk: Desk) -> None:
    before = reading(desk)
    async with follower(desk, block_ms=LONG_MS) as events, collecting(events) as seen:
        await eventually(lambda: reading(desk) == before + 1)
    assert seen == []
    await eventually(lambda: reading(desk) == before)
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_close_drops_what_was_read_ahead_and_its_place_is_kept(desk: Desk) -> None:
    tell(desk, *"abc")
    events = follower(desk, last_event_id="0")
    (first,) = await take(events, 1)
    await events.close()
    assert [event async for event in events] == []
    assert events.last_event_id == first.id


async def test_a_cancelled_wait_loses_nothing_and_asks_nothing_twice(own_desk: Desk) -> None:
    def asked() -> int:
        return int(own_desk.redis.info("commandstats").get("cmdstat_xread", {}).get("calls", 0))

    async with follower(own_desk, block_ms=LONG_MS) as events:
        for _ in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.005)
        tell(own_desk, "a")
        assert await take_ids(events, 1) == ["a"]
        assert asked() == 1


async def test_waits_that_are_cancelled_amid_events_lose_and_double_none(desk: Desk) -> None:
    wanted = [f"{number}" for number in range(300)]
    seen: list[str | None] = []

    async def write() -> None:
        for first in range(0, 300, 3):
            tell(desk, *wanted[first : first + 3])
            await asyncio.sleep(0)

    async with follower(desk, count=2) as events, asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(write())
        while len(seen) < 300:
            with suppress(TimeoutError):
                seen.append((await asyncio.wait_for(anext(events), 0.001)).job_id)
    assert seen == wanted


async def test_of_several_who_wait_each_event_reaches_one(desk: Desk) -> None:
    wanted = [f"{number}" for number in range(50)]
    async with follower(desk) as one, collecting(one) as here, collecting(one) as there:
        for job_id in wanted:
            tell(desk, job_id)
            await asyncio.sleep(0)
        await eventually(lambda: len(here) + len(there) >= 50)
    assert sorted(str(event.job_id) for event in (*here, *there)) == sorted(wanted)


def test_it_belongs_to_one_event_loop(desk: Desk) -> None:
    tell(desk, *"ab")
    events = follower(desk, last_event_id="0", count=1)

    async def once() -> Any:
        return await anext(events)

    assert asyncio.run(once()).job_id == "a"
    with pytest.raises(ConfigError, match="another event loop: make one for each"):
        asyncio.run(once())
    asyncio.run(events.close())


def test_a_connect_that_failed_binds_it_to_no_event_loop(desk: Desk) -> None:
    nowhere = follower(desk, redis_url="redis://127.0.0.1:1")

    async def once() -> Any:
        return await anext(nowhere)

    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            asyncio.run(once())
