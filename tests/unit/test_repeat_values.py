"""The values of repeatable jobs: what they take, what they refuse, and their dict forms."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chasquimq import (
    ArgumentError,
    BackoffSpec,
    ConfigError,
    MissedFiresPolicy,
    RepeatableMeta,
    RepeatPattern,
)
from chasquimq.config import MAX_MS, U32
from chasquimq.repeat import PAUSED_MS, StoredSpec, listed_at, place_of
from tests.shown import shown

EVERY = RepeatPattern.every(60_000)
CRON = RepeatPattern.cron("0 9 * * MON-FRI", tz="Europe/Berlin")

# -- when ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (EVERY, {"kind": "every", "interval_ms": 60_000}),
        (RepeatPattern.every(1), {"kind": "every", "interval_ms": 1}),
        (RepeatPattern.every(MAX_MS), {"kind": "every", "interval_ms": MAX_MS}),
        (CRON, {"kind": "cron", "expression": "0 9 * * MON-FRI", "tz": "Europe/Berlin"}),
        (RepeatPattern.cron("@daily"), {"kind": "cron", "expression": "@daily"}),
        (RepeatPattern.cron("@daily", tz=""), {"kind": "cron", "expression": "@daily", "tz": ""}),
    ],
    ids=shown,
)
def test_a_pattern_and_its_dict_form_are_one(pattern: RepeatPattern, named: Any) -> None:
    assert pattern.to_dict() == named
    assert RepeatPattern.read(named) == pattern
    assert RepeatPattern.read(pattern) == pattern
    assert RepeatPattern(**named) == pattern


def test_a_pattern_has_only_the_fields_of_its_kind_when_it_is_read() -> None:
    everything = RepeatPattern("every", "@daily", "UTC", 5)
    assert everything.to_dict() == {"kind": "every", "interval_ms": 5}
    assert RepeatPattern.read(everything) == RepeatPattern.every(5)
    assert RepeatPattern.read({"kind": "every", "interval_ms": 5, "tz": "UTC"}).tz is None
    assert RepeatPattern("cron", "@daily", None, 5).to_dict() == {
        "kind": "cron",
        "expression": "@daily",
    }
    assert RepeatPattern("unreadable", "@daily").to_dict() == {"kind": "unreadable"}


PATTERNS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: RepeatPattern.every(0), ValueError, f"interval_ms must be from 1 to {MAX_MS}, got 0"),
    (lambda: RepeatPattern.every(-5), ValueError, "interval_ms must be from 1"),
    (lambda: RepeatPattern.every(MAX_MS + 1), ValueError, "interval_ms must be from 1"),
    (lambda: RepeatPattern.every(True), TypeError, "interval_ms is a whole number, got True"),
    (lambda: RepeatPattern.every(5.0), TypeError, "interval_ms is a whole number, got 5.0"),
    (lambda: RepeatPattern.every("5"), TypeError, "interval_ms is a whole number, got '5'"),
    (lambda: RepeatPattern.every(None), TypeError, "interval_ms is a whole number, got None"),
    (lambda: RepeatPattern.cron(5), TypeError, "a cron expression is a str, got int"),
    (lambda: RepeatPattern.cron(None), TypeError, "a cron expression is a str, got NoneType"),
    (lambda: RepeatPattern.cron("@daily", tz=2), TypeError, "tz is the name of a time zone"),
    (lambda: RepeatPattern("crom").to_dict(), ValueError, "kind 'crom'; known: cron, every"),
    (lambda: RepeatPattern.read("@daily"), TypeError, "RepeatPattern or its dict form, got str"),
    (lambda: RepeatPattern.read(None), TypeError, "its dict form, got NoneType"),
    (lambda: RepeatPattern.read(60_000), TypeError, "its dict form, got int"),
    (lambda: RepeatPattern.read({}), ValueError, "unknown pattern kind 'None'"),
    (lambda: RepeatPattern.read({"kind": []}), ValueError, "unknown pattern kind"),
    (lambda: RepeatPattern.read(RepeatPattern("unreadable")), ValueError, "kind 'unreadable'"),
    (lambda: RepeatPattern.read({"kind": "cron"}), ValueError, "'cron' needs 'expression'"),
    (lambda: RepeatPattern.read({"kind": "every"}), ValueError, "'every' needs 'interval_ms'"),
    (lambda: RepeatPattern.read(RepeatPattern("cron")), ValueError, "needs 'expression'"),
    (
        lambda: RepeatPattern.read({"kind": "every", "intervall_ms": 5}),
        TypeError,
        "repeat has no option 'intervall_ms'; did you mean 'interval_ms'",
    ),
    (
        lambda: RepeatPattern.read({"kind": "cron", "expression": "@daily", "tz": 5}),
        TypeError,
        "tz is the name",
    ),
    (lambda: RepeatPattern.read({"kind": "every", "interval_ms": "5"}), TypeError, "got '5'"),
]


@pytest.mark.parametrize(
    ("make", "kind", "words"), PATTERNS, ids=[words for _, _, words in PATTERNS]
)
def test_a_pattern_that_makes_no_sense_is_refused(
    make: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        make()
    assert isinstance(caught.value, kind)
    assert isinstance(caught.value, ArgumentError) == (kind is TypeError)


# -- missed fires ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        (MissedFiresPolicy.skip(), {"kind": "skip"}),
        (MissedFiresPolicy.fire_once(), {"kind": "fire-once"}),
        (MissedFiresPolicy.fire_all(1), {"kind": "fire-all", "max_catchup": 1}),
        (MissedFiresPolicy.fire_all(U32), {"kind": "fire-all", "max_catchup": U32}),
    ],
    ids=shown,
)
def test_a_policy_and_its_dict_form_are_one(policy: MissedFiresPolicy, named: Any) -> None:
    assert policy.to_dict() == named
    assert MissedFiresPolicy.read(named) == policy
    assert MissedFiresPolicy.read(policy) == policy
    assert MissedFiresPolicy(**named) == policy


def test_a_policy_is_to_skip_unless_it_says_otherwise() -> None:
    assert MissedFiresPolicy.read(None) == MissedFiresPolicy.skip() == MissedFiresPolicy()
    spec = StoredSpec(key="k", job_name="n", pattern=EVERY, payload=b"")
    assert spec.missed_fires == MissedFiresPolicy.skip()


def test_only_fire_all_has_a_number() -> None:
    assert MissedFiresPolicy("skip", 4).to_dict() == {"kind": "skip"}
    named = {"kind": "fire-once", "max_catchup": 5}
    assert MissedFiresPolicy.read(named) == MissedFiresPolicy.fire_once()


POLICIES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: MissedFiresPolicy.fire_all(0), ValueError, f"must be from 1 to {U32}, got 0"),
    (lambda: MissedFiresPolicy.fire_all(-1), ValueError, "max_catchup must be from 1"),
    (lambda: MissedFiresPolicy.fire_all(U32 + 1), ValueError, "max_catchup must be from 1"),
    (lambda: MissedFiresPolicy.fire_all(True), TypeError, "max_catchup is a whole number"),
    (lambda: MissedFiresPolicy.fire_all("1"), TypeError, "max_catchup is a whole number"),
    (lambda: MissedFiresPolicy.fire_all(1.0), TypeError, "max_catchup is a whole number"),
    (lambda: MissedFiresPolicy.fire_all(None), TypeError, "max_catchup is a whole number"),
    (lambda: MissedFiresPolicy("all").to_dict(), ValueError, "unknown missed_fires kind 'all'"),
    (
        lambda: MissedFiresPolicy.read({"kind": "fire_all", "max_catchup": 2}),
        ValueError,
        "kind 'fire_all'; did you mean 'fire-all'",
    ),
    (lambda: MissedFiresPolicy.read({}), ValueError, "unknown missed_fires kind 'None'"),
    (lambda: MissedFiresPolicy.read({"kind": "fire-all"}), ValueError, "needs 'max_catchup'"),
    (lambda: MissedFiresPolicy.read(MissedFiresPolicy("fire-all")), ValueError, "'max_catchup'"),
    (
        lambda: MissedFiresPolicy.read({"kind": "skip", "max_catchups": 2}),
        TypeError,
        "missed_fires has no option 'max_catchups'; did you mean 'max_catchup'",
    ),
    (lambda: MissedFiresPolicy.read("skip"), TypeError, "or its dict form, got str"),
    (lambda: MissedFiresPolicy.read(3), TypeError, "or its dict form, got int"),
]


@pytest.mark.parametrize(
    ("make", "kind", "words"), POLICIES, ids=[words for _, _, words in POLICIES]
)
def test_a_policy_that_makes_no_sense_is_refused(
    make: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        make()
    assert isinstance(caught.value, kind)
    assert isinstance(caught.value, ArgumentError) == (kind is TypeError)


# -- as values -------------------------------------------------------------------------------------

META = RepeatableMeta("k", "n", CRON, 1_800_000_000_000)


@pytest.mark.parametrize("value", [EVERY, CRON, MissedFiresPolicy.fire_all(3), META], ids=shown)
def test_they_are_frozen_compared_by_value_and_can_be_keys(value: Any) -> None:
    same = type(value)(**msgspec.structs.asdict(value))
    for twin in (same, copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert twin == value
        assert {twin: 1}[value] == 1
    with pytest.raises(AttributeError):
        setattr(value, value.__struct_fields__[0], "other")
    assert repr(value).startswith(f"{type(value).__name__}({value.__struct_fields__[0]}=")


def test_a_listed_spec_says_all_in_its_dict_form() -> None:
    assert META.to_dict() == {
        "key": "k",
        "job_name": "n",
        "pattern": {"kind": "cron", "expression": "0 9 * * MON-FRI", "tz": "Europe/Berlin"},
        "next_fire_ms": 1_800_000_000_000,
        "limit": None,
        "start_after_ms": None,
        "end_before_ms": None,
        "missed_fires": None,
        "fired": 0,
        "paused": False,
        "problem": None,
        "attempts": None,
        "backoff": None,
    }
    more = RepeatableMeta(
        *("k", "n", RepeatPattern.cron("@daily"), 5, 1, 2, 3),
        *(MissedFiresPolicy.fire_all(4), 5, True, "why", 6, BackoffSpec.fixed(7)),
    ).to_dict()
    assert list(more) == list(RepeatableMeta.__struct_fields__)
    assert more["pattern"] == {"kind": "cron", "expression": "@daily", "tz": None}
    assert more["missed_fires"] == {"kind": "fire-all", "max_catchup": 4}
    assert more["backoff"] == {"kind": "fixed", "delay_ms": 7}
    assert RepeatableMeta("k", "n", EVERY, 5).to_dict()["pattern"] == EVERY.to_dict()
    unread = RepeatableMeta("k", "", RepeatPattern("unreadable"), 5, problem="why")
    assert unread.to_dict()["pattern"] == {"kind": "unreadable"}


def test_where_a_spec_was_listed_is_no_part_of_it() -> None:
    listed = listed_at(RepeatableMeta("k", "n", CRON, 1_800_000_000_000), b"inf", b"\xff")
    assert listed == META
    assert hash(listed) == hash(META)
    assert repr(listed) == repr(META)
    assert (place_of(listed), place_of(META)) == (
        (b"inf", b"\xff"),
        (b"1800000000000", META.key.encode()),
    )
    paused = RepeatableMeta("k", "n", CRON, 5, paused=True)
    aside = RepeatableMeta("k", "n", CRON, 5, problem="why")
    assert place_of(paused)[0] == place_of(aside)[0] == b"%d" % PAUSED_MS
