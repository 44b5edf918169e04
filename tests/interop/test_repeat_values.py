"""The values of repeatable jobs and the native producer's specs, asked of both programs.

The same expressions are evaluated under both interpreters. Where the reference answers, so do we,
word for word; where it raises, ours is an error of the same kind. What we refuse and it does not
stands in a list of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.kit.fleet import ROOT, environment
from tests.interop.conftest import MakeSide
from tests.interop.keys import Keys
from tests.interop.reference import interpreter

PROGRAM = """
import copy, json, pickle, sys
from chasquimq import MissedFiresPolicy, RepeatableMeta, RepeatPattern

told = []
for expression in json.loads(sys.argv[1]):
    try:
        told.append(repr(eval(expression)))
    except Exception as error:
        told.append([kind.__name__ for kind in type(error).__mro__])
print(json.dumps(told))
"""
ALIKE = """
RepeatPattern.every(60_000)
RepeatPattern.cron("0 9 * * *")
RepeatPattern.cron("0 9 * * *", tz="Europe/Berlin")
RepeatPattern("cron", "0 9 * * *", "UTC", 5)
RepeatPattern(kind="every", interval_ms=5)
RepeatPattern.every(5) == RepeatPattern("every", None, None, 5)
RepeatPattern.every(5) == {"kind": "every", "interval_ms": 5}
hash(RepeatPattern.cron("a")) == hash(RepeatPattern("cron", "a"))
RepeatPattern.every(5).to_dict()
RepeatPattern.cron("a").to_dict()
RepeatPattern.cron("a", tz="").to_dict()
RepeatPattern("cron", "a", None, 5).to_dict()
RepeatPattern("every", "a", "b", 5).to_dict()
RepeatPattern("cron").to_dict()
RepeatPattern("every").to_dict()
RepeatPattern("other").to_dict()
RepeatPattern.cron("a", "UTC")
RepeatPattern()
RepeatPattern("cron", nonsense=1)
setattr(RepeatPattern.cron("a"), "kind", "every")
RepeatPattern.__match_args__
pickle.loads(pickle.dumps(RepeatPattern.cron("a", tz="b")))
copy.deepcopy(RepeatPattern.cron("a", tz="b"))
MissedFiresPolicy.skip()
MissedFiresPolicy.fire_once()
MissedFiresPolicy.fire_all(7)
MissedFiresPolicy("fire-all", 7) == MissedFiresPolicy.fire_all(7)
len({MissedFiresPolicy.skip(), MissedFiresPolicy("skip"), MissedFiresPolicy.fire_once()})
MissedFiresPolicy.skip().to_dict()
MissedFiresPolicy.fire_once().to_dict()
MissedFiresPolicy.fire_all(7).to_dict()
MissedFiresPolicy("skip", 4).to_dict()
MissedFiresPolicy("other").to_dict()
MissedFiresPolicy.fire_all(0)
MissedFiresPolicy.fire_all(-1)
MissedFiresPolicy.fire_all(True)
MissedFiresPolicy.fire_all("1")
MissedFiresPolicy.fire_all(1.0)
MissedFiresPolicy.fire_all(None)
MissedFiresPolicy.fire_all()
setattr(MissedFiresPolicy.skip(), "kind", "fire-once")
MissedFiresPolicy.__match_args__
RepeatableMeta("k", "n", RepeatPattern.every(5), 6).missed_fires
RepeatableMeta("k", "n", RepeatPattern.every(5), 6, 1, 2, 3).end_before_ms
RepeatableMeta("k", "n", RepeatPattern.every(5), 6, 1, 2, 3, MissedFiresPolicy.skip()).missed_fires
RepeatableMeta(key="k", job_name="n", pattern=RepeatPattern.every(5), next_fire_ms=6).pattern
RepeatableMeta("k", "n", RepeatPattern.every(5))
RepeatableMeta.__match_args__[:8]
setattr(RepeatableMeta("k", "n", RepeatPattern.every(5), 6), "key", "l")
""".strip().splitlines()
WE_REFUSE = """
RepeatPattern.every(0)
RepeatPattern.every("5")
RepeatPattern.every(True)
RepeatPattern.cron(None)
RepeatPattern.cron("a", tz=5)
MissedFiresPolicy.fire_all(2**32)
""".strip().splitlines()
KINDS = {"TypeError", "ValueError", "AttributeError"}


def evaluate(python: str | Path, ours: bool) -> list[Any]:
    command = [str(python), "-c", PROGRAM, json.dumps(ALIKE + WE_REFUSE)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment(ours=ours), check=True
    )
    told: list[Any] = json.loads(done.stdout)
    return told


def test_values_are_made_shown_compared_and_refused_alike() -> None:
    ours, theirs = evaluate(sys.executable, True), evaluate(interpreter(), False)
    for expression, our, their in zip(ALIKE, ours, theirs, strict=False):
        if isinstance(their, str):
            assert our == their, expression
        else:
            assert isinstance(our, list), f"{expression} answers {our}"
            assert KINDS & {*their} <= {*our}, expression
    rest = slice(len(ALIKE), None)
    for expression, our, their in zip(WE_REFUSE, ours[rest], theirs[rest], strict=True):
        assert isinstance(their, str), f"the reference refuses it, too: {expression}"
        assert "ConfigError" in our, expression


EVERY = {"kind": "every", "interval_ms": 3_600_000}
BERLIN = {"kind": "cron", "expression": "0 9 * * *", "tz": "Europe/Berlin"}
START_MS = 2_000_000_000_000
ONE = {"job_name": "n", "pattern": EVERY, "payload": b"1"}
SPECS: list[dict[str, Any]] = [
    {"key": "", "job_name": "a", "pattern": EVERY, "payload": b"\xc1"},
    {"job_name": "", "pattern": EVERY, "payload": b""},
    {"key": None, "job_name": "n", "pattern": BERLIN, "payload": b"x" * 300},
    {"key": "own", "job_name": "b", "pattern": {**BERLIN, "tz": None}, "payload": b"1"},
    ONE
    | {"key": "all", "pattern": BERLIN, "limit": 3}
    | {"start_after_ms": START_MS, "end_before_ms": 2 * START_MS}
    | {"missed_fires": {"kind": "fire-all", "max_catchup": 2}},
    ONE
    | {"key": "once", "limit": 0, "start_after_ms": None}
    | {"missed_fires": {"kind": "fire-once", "max_catchup": 9}},
    ONE | {"key": "skip", "missed_fires": None},
]
LISTED = (
    *("key", "job_name", "pattern", "next_fire_ms", "limit", "start_after_ms", "end_before_ms"),
    "missed_fires",
)


def test_native_producers_write_the_same_specs_and_list_them_alike(
    side: MakeSide, keys: Keys
) -> None:
    ours, theirs = side("ours"), side("reference")
    written = []
    for writer in (ours, theirs):
        found = [writer.produce("upsert_repeatable", spec) for spec in SPECS]
        written.append((found, [keys.client.hgetall(keys.spec(key)) for key in found]))
        listed = [door.produce("list_repeatable", 100) for door in (ours, theirs)]
        assert [{name: row[name] for name in LISTED} for row in listed[0]] == listed[1]
        assert len(listed[1]) == len(SPECS)
        assert len(ours.produce("list_repeatable", 3)) == 3
        other = theirs if writer is ours else ours
        assert [other.produce("remove_repeatable_by_key", key) for key in found] == [True] * 7
        assert ours.produce("remove_repeatable_by_key", "own") is False
        assert keys.all_of_specs() == []
    assert written[0] == written[1]


REFUSED: list[dict[str, Any]] = [
    {"pattern": EVERY, "payload": b"1"},
    {"job_name": "n", "payload": b"1"},
    {"job_name": "n", "pattern": EVERY},
    ONE | {"job_name": 5},
    ONE | {"pattern": {"kind": "every", "interval_ms": 0}},
    ONE | {"pattern": {"kind": "cron", "expression": "61 * * * *"}},
    ONE | {"pattern": BERLIN | {"tz": "Nowhere"}},
    ONE | {"payload": "1"},
    ONE | {"limit": -1},
    ONE | {"end_before_ms": 5},
    ONE | {"missed_fires": {}},
]


def test_what_the_reference_refuses_we_refuse_and_neither_writes(
    side: MakeSide, keys: Keys
) -> None:
    for door in (side("ours"), side("reference")):
        for spec in REFUSED:
            with pytest.raises(RuntimeError, match="failed: "):
                door.produce("upsert_repeatable", spec)
            assert keys.all_of_specs() == [], spec
