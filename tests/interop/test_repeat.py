"""Specs at rest, written, listed, removed and written over by both programs.

Firing is looked at in test_repeat_fires.py, turns of two schedulers in test_repeat_fleet.py.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chasquimq.repeat import PAUSED_MS
from tests.chaos.kit.wait import eventually
from tests.interop.conftest import MakeSide
from tests.interop.keys import Keys
from tests.interop.side import Side

HOUR_MS = 3_600_000
START_MS = 2_051_222_400_000  # 2035: the first fire does not depend on who writes when
EVERY: dict[str, Any] = {"kind": "every", "interval_ms": HOUR_MS}
YEARLY: dict[str, Any] = {"kind": "cron", "expression": "0 0 1 1 *"}
CATCH_UP = {"kind": "fire-all", "max_catchup": 7}

SPECS: dict[str, dict[str, Any]] = {
    "every": {"repeat": EVERY},
    "cron": {"repeat": YEARLY},
    "cron with seconds": {"repeat": {"kind": "cron", "expression": "5 0 0 1 1 *"}},
    "cron in a zone": {"repeat": {**YEARLY, "tz": "Europe/Berlin"}},
    "cron in UTC, by name": {"repeat": {**YEARLY, "tz": "UTC"}},
    "cron at an offset": {"repeat": {**YEARLY, "tz": "+05:30"}},
    "cron in an empty zone": {"repeat": {**YEARLY, "tz": ""}},
    "cron with spaces": {"repeat": {"kind": "cron", "expression": " 0  0 1 1 * "}},
    "limit": {"repeat": EVERY, "limit": 3},
    "limit of none": {"repeat": EVERY, "limit": 0},
    "start": {"repeat": EVERY, "start_after_ms": START_MS},
    "start of a cron": {"repeat": YEARLY, "start_after_ms": START_MS},
    "end": {"repeat": EVERY, "start_after_ms": START_MS, "end_before_ms": START_MS + HOUR_MS},
    "skip": {"repeat": EVERY, "missed_fires": {"kind": "skip"}},
    "fire-once": {"repeat": EVERY, "missed_fires": {"kind": "fire-once"}},
    "fire-all": {"repeat": EVERY, "missed_fires": CATCH_UP},
    "all": {
        "repeat": {**YEARLY, "tz": "Asia/Tokyo"},
        "limit": 2**32,
        "start_after_ms": START_MS,
        "end_before_ms": 2 * START_MS,
        "missed_fires": {"kind": "fire-all", "max_catchup": 2**32 - 1},
    },
    "unnamed": {"name": "", "repeat": EVERY},
    "a name of many bytes": {"name": "名" * 85, "repeat": YEARLY},
}
DATA: list[Any] = [None, True, -1, 2**64 - 1, 1.5, "ñandú", b"\x00\xff", [], {}, [1, {"a": [None]}]]


def written(side: Side, keys: Keys, **spec: Any) -> tuple[str, dict[bytes, bytes], int]:
    """What it makes of a spec: its key, its hash, its score. Then it is gone."""
    key = side.upsert(**{"name": "job", "data": {"a": 1}, **spec})
    fields, score = keys.client.hgetall(keys.spec(key)), keys.score(key)
    assert score is not None
    assert side.remove_repeatable(key) is True
    assert keys.all_of_specs() == []
    return key, fields, score


def test_both_write_the_same_bytes(side: MakeSide, keys: Keys) -> None:
    ours, reference = side("ours"), side("reference")
    for what, spec in SPECS.items():
        before_ms = keys.now_ms()
        key, fields, theirs_ms = written(reference, keys, **spec)
        assert (key, fields) == written(ours, keys, **spec)[:2], what
        ours_ms = written(ours, keys, **spec)[2]
        if spec["repeat"] is EVERY and "start_after_ms" not in spec:
            after_ms = keys.now_ms()
            for score in (theirs_ms, ours_ms):
                assert before_ms <= score - HOUR_MS <= after_ms, what
        else:  # the reference carries the milliseconds of the moment into a cron with seconds
            assert ours_ms == theirs_ms - theirs_ms % 1000, what


def test_both_write_the_same_payload(side: MakeSide, keys: Keys) -> None:
    ours, reference = side("ours"), side("reference")
    for data in DATA:
        theirs = written(reference, keys, data=data, repeat=EVERY)
        assert theirs[:2] == written(ours, keys, data=data, repeat=EVERY)[:2], data


def test_a_key_of_the_callers_own_gives_the_same_bytes(side: MakeSide, keys: Keys) -> None:
    ours, reference = side("ours"), side("reference")
    packed = msgspec.msgpack.encode(1)
    told = {"key": "my:key", "job_name": "job", "pattern": YEARLY, "payload": packed}
    assert reference.produce("upsert_repeatable", told) == "my:key"
    theirs = keys.client.hgetall(keys.spec("my:key"))
    assert ours.remove_repeatable("my:key") is True
    assert ours.upsert("job", 1, repeat=YEARLY, key="my:key") == "my:key"
    assert keys.client.hgetall(keys.spec("my:key")) == theirs


def test_what_only_ours_knows_lies_in_fields_that_the_reference_does_not_read(
    side: MakeSide, keys: Keys
) -> None:
    ours, reference = side("ours"), side("reference")
    _, theirs, _ = written(reference, keys, repeat=EVERY, attempts=7, backoff=50)
    _, fields, _ = written(ours, keys, repeat=EVERY, attempts=7, backoff=50)
    assert set(theirs) == {b"spec"}
    assert set(fields) == {b"spec", b"retry"}
    assert fields[b"spec"] == theirs[b"spec"]


def test_each_lists_and_removes_what_the_other_wrote(side: MakeSide, keys: Keys) -> None:
    sides = {name: side(name) for name in ("ours", "reference")}
    for what, spec in SPECS.items():
        for writer in sides.values():
            key = writer.upsert(**{"name": "job", "data": 1, **spec})
            [theirs], [ours] = sides["reference"].repeatables(), sides["ours"].repeatables()
            assert {name: ours[name] for name in theirs} == theirs, what
            assert ours["key"] == key
            assert (ours["fired"], ours["paused"], ours["problem"]) == (0, False, None)
            remover = sides["reference"] if writer.is_ours else sides["ours"]
            assert remover.remove_repeatable(key) is True
            assert keys.all_of_specs() == [], what
            assert writer.remove_repeatable(key) is False


def test_the_reference_lists_and_removes_specs_with_fields_of_ours(
    side: MakeSide, keys: Keys
) -> None:
    ours, reference = side("ours"), side("reference")
    tried = ours.upsert("tried", 1, repeat=EVERY, attempts=7, backoff=50, limit=9)
    paused = ours.upsert("paused", 1, repeat=YEARLY)
    stood_ms = keys.score(paused)
    assert ours.pause_repeatable(paused) is True
    keys.client.hset(keys.spec(tried), mapping={"fired": 4, "catchup": "3 1"})
    theirs = {spec["key"]: spec for spec in reference.repeatables()}
    listed = {spec["key"]: spec for spec in ours.repeatables()}
    assert list(theirs) == list(listed) == [tried, paused]
    assert (listed[tried]["fired"], listed[tried]["attempts"]) == (4, 7)
    assert (listed[paused]["paused"], listed[paused]["next_fire_ms"]) == (True, stood_ms)
    assert theirs[paused]["next_fire_ms"] == PAUSED_MS, "to the reference it is far away"
    for key in (tried, paused):
        assert reference.remove_repeatable(key) is True
    assert keys.all_of_specs() == []


# -- the reference writes over one of ours -----------------------------------------------------


def test_an_override_of_ours_does_not_apply_to_other_bytes_of_the_reference(
    side: MakeSide, keys: Keys
) -> None:
    ours, reference = side("ours"), side("reference")
    key = ours.upsert("job", 1, repeat=EVERY, attempts=7)
    [before] = ours.repeatables()
    reference.upsert("job", 2, repeat=EVERY)
    [after] = ours.repeatables()
    assert (before["attempts"], after["attempts"]) == (7, None)
    assert b"retry" in keys.client.hkeys(keys.spec(key)), "it is there, and counts for nothing"
    ours.run_repeatable_now(key)
    [job] = keys.jobs()
    assert (job.data, job.retry) == (2, None)


def test_an_override_of_ours_stays_when_the_reference_writes_the_very_same(
    side: MakeSide, keys: Keys
) -> None:
    ours, reference = side("ours"), side("reference")
    key = ours.upsert("job", 1, repeat=EVERY, attempts=7)
    reference.upsert("job", 1, repeat=EVERY, attempts=3)  # which it does not store
    [listed] = ours.repeatables()
    assert listed["attempts"] == 7
    ours.run_repeatable_now(key)
    assert [job.retry for job in keys.jobs()] == [[7, None]]


def test_a_reference_upsert_takes_up_a_paused_spec(side: MakeSide, keys: Keys) -> None:
    ours, reference = side("ours"), side("reference")
    key = ours.upsert("job", 1, repeat=EVERY)
    assert ours.pause_repeatable(key) is True
    before_ms = keys.now_ms()
    reference.upsert("job", 1, repeat=EVERY)
    [listed] = ours.repeatables()
    assert (listed["paused"], listed["problem"]) == (False, None)
    assert listed["next_fire_ms"] == keys.score(key)
    assert before_ms + HOUR_MS <= listed["next_fire_ms"] < PAUSED_MS
    assert ours.resume_repeatable(key) is False, "there is nothing to resume"
    assert ours.pause_repeatable(key) is True, "and it can be paused again"
    [again] = ours.repeatables()
    assert (again["paused"], again["next_fire_ms"]) == (True, listed["next_fire_ms"])


def test_a_catch_up_that_goes_on_ends_with_a_reference_upsert(side: MakeSide, keys: Keys) -> None:
    ours, reference = side("ours"), side("reference")
    spec = {"repeat": EVERY, "missed_fires": CATCH_UP}
    key = ours.upsert("job", 1, **spec)
    keys.client.hset(keys.spec(key), "catchup", f"0 {keys.score(key)}")  # nothing is left of it
    reference.upsert("job", 1, **spec)
    keys.client.zadd(keys.repeat, {key: keys.now_ms() - 3 * HOUR_MS})
    ours.schedule(tick_interval_ms=20)
    wait_fired(keys, key, 4)
    assert not keys.client.hexists(keys.spec(key), "catchup")


@pytest.mark.parametrize("writer", ["ours", "reference"])
def test_neither_resets_the_counter_of_fires(side: MakeSide, keys: Keys, writer: str) -> None:
    author = side(writer)
    key = author.upsert("job", 1, repeat=EVERY, limit=5)
    keys.client.hset(keys.spec(key), "fired", 4)
    for other in ("ours", "reference"):
        side(other).upsert("job", 2, repeat=EVERY, limit=6)
        assert keys.fired(key) == 4


def test_an_upsert_of_ours_keeps_the_cadence_that_the_reference_began(
    side: MakeSide, keys: Keys
) -> None:
    ours, reference = side("ours"), side("reference")
    key = reference.upsert("job", 1, repeat=EVERY)
    begun_ms = keys.score(key)
    assert ours.upsert("job", 2, repeat=EVERY, attempts=3) == key
    assert keys.score(key) == begun_ms
    eventually(lambda: keys.now_ms() > (begun_ms or 0) - HOUR_MS)
    reference.upsert("job", 2, repeat=EVERY)
    assert (keys.score(key) or 0) > (begun_ms or 0), "the reference begins anew each time"


def wait_fired(keys: Keys, key: str, count: int) -> None:
    eventually(lambda: keys.fired(key) >= count, or_say=lambda: keys.fired(key))
    assert keys.fired(key) == len(keys.jobs()) == count
