"""Looking after specs: list them page by page, pause, resume, preview, run one now, remove."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from chasquimq import (
    ArgumentError,
    ConfigError,
    Job,
    MissedFiresPolicy,
    PayloadTooLargeError,
    Queue,
    RepeatableMeta,
    RepeatPattern,
    wire,
)
from chasquimq.native import Producer
from chasquimq.repeat import PAUSED_MS
from tests.engine.desk import Desk, eventually
from tests.engine.roster import HOUR_MS, fires, lay, now_ms, packed, scheduling

EVERY = RepeatPattern.every(HOUR_MS)
FAR_MS = 32_000_000_000_000


def moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, UTC) + timedelta(milliseconds=at_ms % 1000)


def score(desk: Desk, key: str) -> int | None:
    found = desk.redis.zscore(desk.keys.repeat, key)
    return None if found is None else int(found)


async def tick(desk: Desk) -> int:
    """What a scheduler fires that comes by now."""
    async with scheduling(desk) as scheduler:
        await scheduler.tick()
    return scheduler.fired


# -- listing ---------------------------------------------------------------------------------------


async def pages(queue: Queue, size: int) -> list[str]:
    """All keys, as somebody finds them who pages through."""
    found: list[str] = []
    after: RepeatableMeta | None = None
    while page := await queue.get_repeatable_jobs(size, after=after):
        assert len(page) <= size
        found += [meta.key for meta in page]
        after = page[-1]
        assert len(found) <= 5_000, "it goes round in circles"
    return found


async def test_pages_show_every_spec_once_by_when_it_fires(desk: Desk) -> None:
    body = packed("any")
    rows = {f"k-{number}": FAR_MS + number // 100 for number in range(1_203)}  # many ties
    for key in rows:
        desk.redis.hset(desk.keys.spec(key), "spec", body)  # type: ignore[arg-type]
    desk.redis.zadd(desk.keys.repeat, rows)
    in_order = [key.decode() for key in desk.redis.zrange(desk.keys.repeat, 0, -1)]
    async with desk.queue() as queue:
        assert [meta.key for meta in await queue.get_repeatable_jobs()] == in_order[:100]
        everything = await queue.get_repeatable_jobs(5_000)
        assert [meta.key for meta in everything] == in_order
        assert [meta.next_fire_ms for meta in everything] == sorted(rows.values())
        for size in (97, 100, 700):
            assert await pages(queue, size) == in_order
        assert await queue.get_repeatable_jobs(0) == []
        assert await queue.get_repeatable_jobs(5, after=everything[-1]) == []


async def test_pages_go_on_where_they_were_whatever_changes_meanwhile(desk: Desk) -> None:
    for number in range(6):
        lay(desk, f"k-{number}", FAR_MS + number)
    async with desk.queue() as queue:
        page = await queue.get_repeatable_jobs(3)
        assert [meta.key for meta in page] == ["k-0", "k-1", "k-2"]
        assert await queue.remove_repeatable_by_key("k-2")  # the last of the page is gone
        lay(desk, "k-1", FAR_MS + 100)  # one has fired and moved on
        lay(desk, "new", FAR_MS + 3)  # and one is new, in a tie, behind k-3
        rest = await queue.get_repeatable_jobs(10, after=page[-1])
        assert [meta.key for meta in rest] == ["k-3", "new", "k-4", "k-5", "k-1"]


async def test_pages_pass_those_that_do_not_fire_and_what_others_left(desk: Desk) -> None:
    """Also with scores that are no moments, and bytes that nobody can read."""
    lay(desk, "negative", -5)
    lay(desk, "garbled", FAR_MS, b"\xc1")
    lay(desk, "fine", FAR_MS + 1)
    for key in ("paused", "garbled too"):
        lay(desk, key, FAR_MS + 2, b"\xc1" if key == "garbled too" else None)
    lay(desk, "huge", 2**60)
    lay(desk, "inf", "+inf")
    async with desk.queue() as queue:
        for key in ("paused", "garbled too"):
            assert await queue.pause_repeatable(key)
        order = ["negative", "garbled", "fine", "garbled too", "paused", "huge", "inf"]
        metas = await queue.get_repeatable_jobs()
        assert [meta.key for meta in metas] == order
        for size in (1, 2, 3):
            assert await pages(queue, size) == order
        for copied, rest in ((metas[2], order[3:]), (metas[4], order[5:])):
            again = msgspec.structs.replace(copied)
            assert [m.key for m in await queue.get_repeatable_jobs(9, after=again)] == rest
    told = {m.key: (m.pattern.kind, m.paused, m.problem is None) for m in metas}
    assert told["garbled"] == ("unreadable", False, False)
    assert told["garbled too"] == ("unreadable", True, False)
    assert told["paused"] == ("every", True, True)
    assert metas[3].next_fire_ms == metas[4].next_fire_ms == FAR_MS + 2, "where they stood"
    assert await tick(desk) == 0
    async with desk.queue() as queue:
        found = {meta.key: meta for meta in await queue.get_repeatable_jobs()}
    assert not found["negative"].paused, "a scheduler has put it aside"
    assert "not a moment" in str(found["negative"].problem)


async def test_a_spec_is_listed_with_all_that_was_said_of_it(desk: Desk) -> None:
    async with desk.queue() as queue:
        key = (
            await queue.add(
                "report",
                1,
                repeat=RepeatPattern.cron("0 9 * * *", tz="Europe/Berlin"),
                limit=5,
                start_after=FAR_MS,
                end_before=2 * FAR_MS,
                attempts=3,
                missed_fires=MissedFiresPolicy.fire_all(2),
            )
        ).id
        desk.redis.hset(desk.keys.spec(key), "fired", 4)  # type: ignore[arg-type]
        [meta] = await queue.get_repeatable_jobs()
    assert meta == RepeatableMeta(
        *(key, "report", RepeatPattern.cron("0 9 * * *", tz="Europe/Berlin")),
        *(int(desk.redis.zscore(desk.keys.repeat, key)), 5, FAR_MS, 2 * FAR_MS),
        *(MissedFiresPolicy.fire_all(2), 4, False, None, 3),
    )
    async with desk.queue() as queue:
        await queue.add("a", 1, repeat=EVERY, missed_fires=MissedFiresPolicy.skip())
        [plain] = await queue.get_repeatable_jobs(1)
        assert plain.missed_fires is None
        assert await queue.remove_repeatable_by_key(plain.key)
    producer = Producer(desk.server.url, desk.name, dialect=desk.server.forced_dialect)
    assert await producer.list_repeatable(5) == [meta.to_dict()]
    assert await producer.list_repeatable(0) == []
    assert await producer.remove_repeatable_by_key(key) is True
    assert await producer.remove_repeatable_by_key(key) is False
    await producer.shutdown()


@pytest.mark.parametrize("limit", [-1, None, 1.5, "5", True])
async def test_a_page_has_a_size(desk: Desk, limit: Any) -> None:
    async with desk.queue() as queue:
        with pytest.raises(ConfigError, match="limit"):
            await queue.get_repeatable_jobs(limit)
        with pytest.raises(ArgumentError, match="after is the last RepeatableMeta of a page"):
            await queue.get_repeatable_jobs(after="k")  # type: ignore[arg-type]


# -- removing --------------------------------------------------------------------------------------


async def test_removing_leaves_nothing_of_a_spec_and_the_jobs_it_made(desk: Desk) -> None:
    async with desk.queue() as queue:
        key = (await queue.add("a", 1, repeat=EVERY, attempts=3)).id
        await queue.run_repeatable_now(key)
        assert await queue.remove_repeatable_by_key(key) is True
        assert await queue.remove_repeatable_by_key(key) is False
        assert await queue.remove_repeatable_by_key("") is False
    assert desk.redis.keys(desk.keys.tag + b"repeat*") == []
    assert desk.waiting() == 1


# -- pausing ---------------------------------------------------------------------------------------


async def test_a_paused_spec_does_not_fire_and_goes_on_in_its_cadence(desk: Desk) -> None:
    async with desk.queue() as queue:
        key = (await queue.add("a", 1, repeat=EVERY)).id
        stood = now_ms(desk) - 5 * HOUR_MS // 2  # two windows and a half ago
        lay(desk, key, stood, packed(key, job_name="a"))
        assert await queue.pause_repeatable(key) is True
        assert await queue.pause_repeatable(key) is False
        assert score(desk, key) == PAUSED_MS
        assert await tick(desk) == 0
        [meta] = await queue.get_repeatable_jobs()
        assert (meta.paused, meta.problem, meta.next_fire_ms) == (True, None, stood)
        assert await queue.next_fires(key, 2) == [moment(stood + n * HOUR_MS) for n in (3, 4)]
        assert await queue.resume_repeatable(key) is True
        assert await queue.resume_repeatable(key) is False
        assert score(desk, key) == stood + 3 * HOUR_MS, "what passed is left out"
        assert await tick(desk) == 0


async def test_who_does_not_exist_is_neither_paused_nor_resumed(desk: Desk) -> None:
    async with desk.queue() as queue:
        assert await queue.pause_repeatable("nobody") is False
        assert await queue.resume_repeatable("nobody") is False
        assert not desk.redis.keys(desk.keys.tag + b"*")


async def test_a_spec_without_a_fire_left_cannot_be_resumed(desk: Desk) -> None:
    stood = now_ms(desk) - 1_000
    lay(desk, "over", stood, packed("over", end_before_ms=stood + 500))
    lay(desk, "garbled", FAR_MS, b"\xc1")
    async with desk.queue() as queue:
        for key, words in (("over", "has no fire left"), ("garbled", "cannot be read")):
            assert await queue.pause_repeatable(key)
            with pytest.raises(ConfigError, match=words):
                await queue.resume_repeatable(key)
            assert score(desk, key) == PAUSED_MS
        assert await queue.next_fires("over") == []


# -- previews --------------------------------------------------------------------------------------


async def test_the_next_fires_of_a_pattern_are_on_the_clock_of_its_zone(desk: Desk) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    async with desk.queue() as queue:
        for what in (
            RepeatPattern.cron("30 9 * * *", tz="Europe/Berlin"),
            {"kind": "cron", "expression": "30 9 * * *", "tz": "Europe/Berlin"},
        ):
            found = await queue.next_fires(what, 400)  # type: ignore[arg-type]
            assert len(found) == 400
            assert all((at.hour, at.minute, at.tzinfo) == (9, 30, berlin) for at in found)
            days = [at.date().toordinal() for at in found]
            assert days == list(range(days[0], days[0] + 400))
        assert len({at.utcoffset() for at in found}) == 2, "summer and winter"
        assert found[0] > moment(now_ms(desk))
        before = now_ms(desk)
        [first, second] = await queue.next_fires(RepeatPattern.every(1_000), 2)
        assert moment(before + 1_000) <= first <= moment(now_ms(desk) + 1_000)
        assert (second - first, first.tzinfo) == (timedelta(seconds=1), UTC)
        assert len(await queue.next_fires(RepeatPattern.every(1))) == 10
        assert len(await queue.next_fires(RepeatPattern.every(1), 20_000)) == 10_000
        assert await queue.next_fires(RepeatPattern.every(1), 0) == []
        assert await queue.next_fires(RepeatPattern.every(2**52)) == [], "no calendar has it"
    assert not desk.redis.keys(desk.keys.tag + b"*")


async def test_pages_go_on_behind_keys_that_are_no_text(desk: Desk) -> None:
    keys = [b"a", b"\x80", b"\xff\x01", b"\xff\x02", b"z"]
    for key in keys:
        lay(desk, key, 2_000_000_000_000, packed("k"))
    listed: list[RepeatableMeta] = []
    async with desk.queue() as queue:
        while page := await queue.get_repeatable_jobs(1, after=listed[-1] if listed else None):
            listed += page
            assert len(listed) <= len(keys), "a page came again"
    assert [meta.key.encode() for meta in listed if meta.problem is None] == [b"a", b"z"]
    assert len(listed) == len(keys)


async def test_the_next_fires_after_a_moment_keep_the_cadence(desk: Desk) -> None:
    start = datetime(2035, 10, 27, 12, tzinfo=UTC)
    nightly = RepeatPattern.cron("30 2 * * *", tz="Europe/Berlin")
    unreachable = Queue("any", redis_url="redis://127.0.0.1:1")  # nobody is asked
    shown = await unreachable.next_fires(nightly, 2, after=start)
    assert [at.isoformat() for at in shown] == [
        "2035-10-28T02:30:00+02:00",
        "2035-10-29T02:30:00+01:00",
    ]
    async with desk.queue() as queue:
        key = (await queue.add("h", 1, repeat=RepeatPattern.every(7_000))).id
        [first] = await queue.next_fires(key, 1)
        assert await queue.next_fires(key, 1, after=first) == [first + timedelta(seconds=7)]
        assert await queue.next_fires(key, 1, after=1) == [first], "not before it begins"
        late = first + timedelta(seconds=7_001)
        assert await queue.next_fires(key, 1, after=late) == [first + timedelta(seconds=7_007)]
        await queue.pause_repeatable(key)
        assert await queue.next_fires(key, 1, after=late) == [first + timedelta(seconds=7_007)]
        with pytest.raises(ConfigError, match="after"):
            await queue.next_fires(key, 1, after=-1)


async def test_the_next_fires_of_a_spec_end_where_it_ends(desk: Desk) -> None:
    stood = now_ms(desk) + HOUR_MS
    lay(desk, "limited", stood, packed("limited", limit=5))
    desk.redis.hset(desk.keys.spec("limited"), "fired", 3)  # type: ignore[arg-type]
    lay(desk, "ends", stood, packed("ends", end_before_ms=stood + 2 * HOUR_MS))
    lay(desk, "used up", stood, packed("used up", limit=5))
    desk.redis.hset(desk.keys.spec("used up"), "fired", 9)  # type: ignore[arg-type]
    async with desk.queue() as queue:
        assert await queue.next_fires("limited") == [moment(stood), moment(stood + HOUR_MS)]
        ends = await queue.next_fires("ends")
        assert ends == [moment(stood + n * HOUR_MS) for n in range(3)]
        assert await queue.next_fires("ends", 0) == []
        lay(desk, "due", stood - HOUR_MS, packed("due"))
        assert await queue.next_fires("due", 0) == []
        assert await queue.next_fires("due", 1) == [moment(stood - HOUR_MS)]
        assert await queue.next_fires("used up") == []


@pytest.mark.parametrize(
    ("missed", "overdue"),
    [
        (MissedFiresPolicy.skip(), []),
        (MissedFiresPolicy.fire_once(), [0]),
        (MissedFiresPolicy.fire_all(2), [0, 1]),
        (MissedFiresPolicy.fire_all(9), [0, 1, 2]),
    ],
)
async def test_what_is_overdue_is_shown_as_it_will_fire(
    desk: Desk, missed: MissedFiresPolicy, overdue: list[int]
) -> None:
    stood = now_ms(desk) - 5 * HOUR_MS // 2
    lay(desk, "k", stood, packed("k", missed_fires=missed))
    async with desk.queue() as queue:
        shown = await queue.next_fires("k", 5)
        assert shown == [moment(stood + n * HOUR_MS) for n in [*overdue, 3, 4, 5, 6, 7]][:5]
        assert await queue.next_fires("k", 1) == shown[:1]
    assert await tick(desk) == len(overdue)
    assert [moment(at_ms) for _, at_ms in fires(desk)] == shown[: len(overdue)]


async def test_a_preview_of_nothing_is_refused(desk: Desk) -> None:
    lay(desk, "garbled", FAR_MS, b"\xc1")
    lay(desk, "no moment", "+inf")
    async with desk.queue() as queue:
        for ask in (queue.next_fires, queue.run_repeatable_now):
            with pytest.raises(
                ConfigError, match=r"there is no spec 'nobody'; get_repeatable_jobs"
            ):
                await ask("nobody")
            with pytest.raises(ConfigError, match=r"spec 'garbled' cannot be read: .*spec"):
                await ask("garbled")
        for wrong in (-1, 1.5, None, True):
            with pytest.raises(ConfigError, match=r"^CMQ-004: n "):
                await queue.next_fires(EVERY, wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="minutes"):
            await queue.next_fires(RepeatPattern.cron("61 * * * *"))
        with pytest.raises(ArgumentError, match="its dict form, got int"):
            await queue.next_fires(5)  # type: ignore[arg-type]
        assert len(await queue.next_fires("no moment")) == 10, "as if it were resumed"
    assert desk.waiting() == 0


# -- now -------------------------------------------------------------------------------------------


async def test_one_more_job_beside_the_cadence_is_not_counted(desk: Desk) -> None:
    async with desk.queue() as queue:
        key = (await queue.add("a", {"n": 1}, repeat=EVERY, limit=1, attempts=7, backoff=5)).id
        stood = score(desk, key)
        jobs = [await queue.run_repeatable_now(key) for _ in range(3)]
        assert await queue.pause_repeatable(key)
        jobs.append(await queue.run_repeatable_now(key))
        [meta] = await queue.get_repeatable_jobs()
        assert (meta.fired, meta.next_fire_ms) == (0, stood)
    assert len({job.id for job in jobs}) == 4
    for job, envelope in zip(jobs, desk.envelopes(), strict=True):
        spec, _, ulid = job.id.rpartition("@")
        assert (spec, len(ulid)) == (key, 26)
        assert (job.name, job.data) == ("a", {"n": 1})
        assert (envelope.id, wire.decode(envelope.payload)) == (job.id, {"n": 1})
        assert envelope.retry is not None
        assert envelope.retry.max_attempts == 7


async def test_its_result_can_be_waited_for(desk: Desk) -> None:
    async def double(job: Job) -> Any:
        return job.data * 2

    async with desk.queue() as queue, desk.working(double, store_results=True):
        key = (await queue.add("a", 21, repeat=EVERY)).id
        job = await queue.run_repeatable_now(key)
        assert await job.wait_for_result() == 42
        await eventually(lambda: desk.waiting() == 0)


async def test_a_spec_of_another_program_that_is_too_large_is_not_sent(desk: Desk) -> None:
    lay(desk, "k", FAR_MS, packed("k", payload=wire.encode(b"x" * 2_000)))
    async with desk.queue(max_payload_bytes=1_000) as queue:
        with pytest.raises(PayloadTooLargeError):
            await queue.run_repeatable_now("k")
    assert desk.waiting() == 0
