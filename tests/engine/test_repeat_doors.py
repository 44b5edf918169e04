"""What the doors make of a repeatable job: the bytes they write, and what they refuse."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from chasquimq import (
    MissedFiresPolicy,
    NameTooLongError,
    PayloadTooLargeError,
    RepeatPattern,
    wire,
)
from chasquimq.native import Producer
from chasquimq.policy.repeat import first_fire
from tests.engine.desk import Desk
from tests.engine.roster import now_ms, scheduling
from tests.shown import shown

START_MS, END_MS = 1_800_000_000_000, 1_900_000_000_000
EVERY, DAILY = RepeatPattern.every(60_000), "0 2 * * *"
FAR = datetime(2999, 1, 1, 12, 30, 0, 123_999)  # noqa: DTZ001 - one without a zone is meant
FAR_MS = 32_472_189_000_123  # whole ms of it, in UTC

VECTORS_FILE = Path(__file__).parents[1] / "vectors" / "vectors.json"
VECTORS = {row["name"]: row for row in json.loads(VECTORS_FILE.read_text())["vectors"]}
Call = tuple[str, Any, dict[str, Any]]  # name, data, options


def bytes_of(vector: str) -> dict[bytes, bytes]:
    """What the reference was seen to keep in a spec's hash."""
    return {row["f"].encode(): bytes.fromhex(row["v_hex"]) for row in VECTORS[vector]["fields"]}


def hash_of(desk: Desk, key: str) -> dict[bytes, bytes]:
    return desk.redis.hgetall(desk.keys.spec(key))  # type: ignore[arg-type, return-value]


def nothing_is_written(desk: Desk) -> bool:
    return not desk.redis.keys(desk.keys.tag + b"*")


# -- what is written -------------------------------------------------------------------------------

ALL = MissedFiresPolicy.fire_all
BETWEEN = {"start_after_ms": START_MS, "end_before_ms": END_MS}
CALLS: dict[str, Call] = {
    "repeat_every": ("hb", {"a": 1}, {"repeat": EVERY}),
    "repeat_every_unnamed": ("", None, {"repeat": EVERY}),
    "repeat_every_limit": ("lim", None, {"repeat": RepeatPattern.every(300), "limit": 10}),
    "repeat_every_start_end": ("se", None, {"repeat": RepeatPattern.every(3_600_000), **BETWEEN}),
    "repeat_cron_no_tz": ("c", {"k": 1}, {"repeat": RepeatPattern.cron(DAILY)}),
    "repeat_cron_utc": ("c", {"k": 1}, {"repeat": RepeatPattern.cron(DAILY, tz="UTC")}),
    "repeat_cron_iana": (
        *("c", {"k": 1}),
        {
            "repeat": RepeatPattern.cron(DAILY, tz="America/New_York"),
            "start_after_ms": START_MS,
        },
    ),
    "repeat_cron_offset_6field": (
        *("c", {"k": 1}),
        {"repeat": RepeatPattern.cron("*/30 0 2 * * *", tz="+05:30"), "start_after_ms": START_MS},
    ),
    "repeat_missed_skip": (
        *("ms", None),
        {"repeat": RepeatPattern.every(1_000), "missed_fires": MissedFiresPolicy.skip()},
    ),
    "repeat_missed_fire_once": (
        *("mo", None),
        {"repeat": RepeatPattern.every(1_000), "missed_fires": MissedFiresPolicy.fire_once()},
    ),
    "repeat_missed_fire_all_7": (
        *("ma", None),
        {"repeat": RepeatPattern.every(1_000), "missed_fires": ALL(7)},
    ),
    "repeat_everything": (
        *("all", b"\x00\xff"),
        {
            "repeat": RepeatPattern.cron("0 9 * * MON-FRI", tz="Europe/London"),
            "limit": 1_000,
            "missed_fires": ALL(300),
            **BETWEEN,
        },
    ),
}


def test_every_recorded_spec_is_called_for() -> None:
    recorded = {name for name in VECTORS if name.startswith("repeat_")}
    assert set(CALLS) == recorded - {"repeat_hash_after_fire"}


async def by_upsert(desk: Desk, call: Call) -> str:
    async with desk.queue() as queue:
        return (await queue.upsert_repeatable_job(*call[:2], **call[2])).id


async def by_add(desk: Desk, call: Call) -> str:
    options = {name.removesuffix("_ms"): value for name, value in call[2].items()}
    async with desk.queue() as queue:
        return (await queue.add(*call[:2], **options)).id


async def by_bulk(desk: Desk, call: Call) -> str:
    async with desk.queue() as queue:
        [job] = await queue.add_bulk([{"name": call[0], "data": call[1], **call[2]}])
    return job.id


async def by_producer(desk: Desk, call: Call) -> str:
    spec = {"job_name": call[0], "payload": wire.encode(call[1]), **call[2]}
    spec["pattern"] = spec.pop("repeat").to_dict()
    if "missed_fires" in spec:
        spec["missed_fires"] = spec["missed_fires"].to_dict()
    producer = Producer(desk.server.url, desk.name, dialect=desk.server.forced_dialect)
    try:
        return await producer.upsert_repeatable({"key": "", **spec})
    finally:
        await producer.shutdown()


@pytest.mark.parametrize(
    "door", [by_upsert, by_add, by_bulk, by_producer], ids=lambda f: f.__name__
)
async def test_a_spec_is_written_as_the_reference_was_seen_to(
    desk: Desk, door: Callable[[Desk, Call], Awaitable[str]]
) -> None:
    for vector, call in CALLS.items():
        before = now_ms(desk)
        key = await door(desk, call)
        after = now_ms(desk)
        recorded = VECTORS[vector]
        assert key == recorded["decoded"]["zset_member"]
        assert hash_of(desk, key) == bytes_of(vector)
        score = int(desk.redis.zscore(desk.keys.repeat, key))
        pattern, start_ms = call[2]["repeat"], call[2].get("start_after_ms")
        early, late = (first_fire(pattern, at_ms, start_ms) for at_ms in (before, after))
        assert early <= score <= late  # type: ignore[operator]
        if start_ms is not None and after < start_ms:
            assert score == recorded["decoded"]["zset_score_next_fire_ms"]
        desk.redis.delete(desk.keys.repeat, desk.keys.spec(key))
        assert nothing_is_written(desk), "there was more than its hash and its place"


async def test_after_a_fire_the_hash_has_a_counter_and_nothing_else(desk: Desk) -> None:
    async with desk.queue() as queue:
        key = (await queue.add("tick", {"p": 1}, repeat=RepeatPattern.every(10_000))).id
        assert await queue.pause_repeatable(key)  # which leaves no trace either
        assert await queue.resume_repeatable(key)
    desk.redis.zadd(desk.keys.repeat, {key: now_ms(desk)})
    async with scheduling(desk) as scheduler:
        await scheduler.tick()
    assert scheduler.fired == 1
    assert hash_of(desk, key) == bytes_of("repeat_hash_after_fire")


async def test_an_override_lies_in_a_field_of_its_own_and_goes_when_it_is_taken_back(
    desk: Desk,
) -> None:
    call: Call = CALLS["repeat_every"]
    async with desk.queue() as queue:
        for options in ({"attempts": 3}, {"backoff": 50}, {"attempts": 0, "backoff": 5}):
            key = (await queue.add(*call[:2], **call[2], **options)).id
            found = hash_of(desk, key)
            assert set(found) == {b"spec", b"retry"}
            assert found[b"spec"] == bytes_of("repeat_every")[b"spec"]
            [meta] = await queue.get_repeatable_jobs()
            assert meta.attempts == options.get("attempts")
            assert (meta.backoff and meta.backoff.delay_ms) == options.get("backoff")
        await queue.add(*call[:2], **call[2])
    assert hash_of(desk, key) == bytes_of("repeat_every")


EAST = timezone(timedelta(hours=5, minutes=30))


@pytest.mark.parametrize(
    "moment",
    [
        FAR_MS,
        FAR,
        FAR.replace(tzinfo=UTC),
        FAR.replace(tzinfo=UTC).astimezone(EAST),
        (FAR + timedelta(hours=5, minutes=30)).replace(tzinfo=EAST),
    ],
    ids=shown,
)
async def test_a_moment_is_an_epoch_ms_or_a_datetime_in_its_zone_or_in_utc(
    desk: Desk, moment: int | datetime
) -> None:
    hour_ms = 3_600_000
    last = moment + hour_ms if isinstance(moment, int) else moment + timedelta(hours=1)
    every = RepeatPattern.every(hour_ms)
    async with desk.queue() as queue:
        for options in (
            {"start_after": moment, "end_before": last},
            {"start_after_ms": moment, "end_before_ms": last},
        ):
            await queue.upsert_repeatable_job("a", 1, repeat=every, **options)  # type: ignore[arg-type]
            [meta] = await queue.get_repeatable_jobs()
            assert (meta.start_after_ms, meta.end_before_ms) == (FAR_MS, FAR_MS + hour_ms)
            assert meta.next_fire_ms == FAR_MS + hour_ms, "the last moment is within"
            assert await queue.remove_repeatable_by_key("a::every:3600000")


async def test_what_add_answers_is_a_job_with_the_key_as_its_id(desk: Desk) -> None:
    async with desk.queue() as queue:
        job = await queue.add("a", {"n": 1}, repeat={"kind": "every", "interval_ms": 60_000})
        assert (job.id, job.name, job.data, job.attempt) == ("a::every:60000", "a", {"n": 1}, 0)
        unnamed = await queue.add(None, 1, repeat=EVERY)  # type: ignore[arg-type]
        assert (unnamed.id, unnamed.name) == ("::every:60000", "")
        for key in ("mine", "名", "k" * 990, " ", "a\nb"):
            own = await queue.upsert_repeatable_job("a", 1, repeat=EVERY, key=key)
            assert own.id == key
        for none in (None, ""):
            derived = await queue.upsert_repeatable_job("a", 1, repeat=EVERY, key=none)
            assert derived.id == "a::every:60000"
        assert desk.redis.zcard(desk.keys.repeat) == 7


async def test_an_id_of_the_callers_is_not_used_and_the_log_says_so(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with desk.queue() as queue:
            job = await queue.add_unique("a", 1, job_id="mine", repeat=EVERY)
    assert job.id == "a::every:60000"
    assert "job_id 'mine' is not used: spec 'a::every:60000' names its jobs itself" in caplog.text


@pytest.mark.parametrize("name", ["n" * 256, "ñ" * 128])
async def test_a_name_has_the_length_of_any_job(desk: Desk, name: str) -> None:
    async with desk.queue() as queue:
        await queue.add(name, 1, repeat=EVERY)
        with pytest.raises(NameTooLongError):
            await queue.add(name + "n", 1, repeat=EVERY)
    assert desk.redis.zcard(desk.keys.repeat) == 1


async def test_a_spec_whose_jobs_would_be_too_large_is_refused(desk: Desk) -> None:
    key, limit = "a::every:60000", 1_000
    room = limit - len(key) - 160
    async with desk.queue(max_payload_bytes=limit) as queue:
        with pytest.raises(PayloadTooLargeError, match=r"CMQ-023.*1001 bytes, limit is 1000"):
            await queue.add("a", b"x" * (room - 2), repeat=EVERY)
        assert nothing_is_written(desk)
        await queue.add("a", b"x" * (room - 3), repeat=EVERY, attempts=5, backoff=5)
        desk.redis.zadd(desk.keys.repeat, {key: now_ms(desk)})
        async with scheduling(desk) as scheduler:
            await scheduler.tick()
        await queue.run_repeatable_now(key)
    sizes = [len(fields[b"d"]) for _, fields in desk.redis.xrange(desk.keys.stream)]
    assert len(sizes) == 2
    assert max(sizes) <= limit
