from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.errors import EncodeError, WireError
from chasquimq.job import BackoffSpec, RetryOverride
from chasquimq.repeat import MissedFiresPolicy, RepeatPattern, StoredSpec


def every(interval_ms: int) -> RepeatPattern:
    return RepeatPattern("every", interval_ms=interval_ms)


def cron(expression: str, tz: str | None = None) -> RepeatPattern:
    return RepeatPattern("cron", expression, tz)


EVERY = StoredSpec(key="k", job_name="j", pattern=every(5), payload=b"\x01")
HEAD = "a1 6b a1 6a 81 a5 45 76 65 72 79 91 05 c4 03 c4 01 01 "

VECTORS = [  # (spec, its bytes)
    (EVERY, "98" + HEAD + "c0 c0 c0 00"),
    (
        StoredSpec(
            key="k", job_name="", pattern=cron("* *", None), payload=b"", limit=1, start_after_ms=2,
            end_before_ms=300, missed_fires=MissedFiresPolicy("fire-once"),
        ),
        "99 a1 6b a0 81 a4 43 72 6f 6e 92 a3 2a 20 2a c0 c4 02 c4 00 01 02 cd 01 2c 00"
        " a8 46 69 72 65 4f 6e 63 65",
    ),
    (
        msgspec.structs.replace(EVERY, missed_fires=MissedFiresPolicy("fire-all", 7)),
        "99" + HEAD + "c0 c0 c0 00 81 a7 46 69 72 65 41 6c 6c 91 07",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "expected"), VECTORS)
def test_a_spec_packs_to_the_documented_bytes(spec: StoredSpec, expected: str) -> None:
    assert wire.pack_spec(spec) == bytes.fromhex(expected)
    assert wire.unpack_spec(bytes.fromhex(expected)) == spec


def slots(**changes: Any) -> list[Any]:
    fields = {
        "key": "k",
        "job_name": "j",
        "pattern": {"Every": [5]},
        "payload": b"\xc4\x01\x01",
        "limit": None,
        "start_after_ms": None,
        "end_before_ms": None,
        "fired": 0,
        "missed_fires": "Skip",
        "retry": None,
    }
    assert not changes.keys() - fields.keys()
    return list((fields | changes).values())


NAMES = [*StoredSpec.__struct_fields__]
FORMS: list[tuple[str, Any]] = [  # other ways to write EVERY
    ("seven elements", slots()[:7]),
    ("nine elements", slots()[:9]),
    ("ten elements", slots()),
    ("Skip with nil", slots(missed_fires={"Skip": None})[:9]),
    ("Skip by index", slots(missed_fires=0)[:9]),
    ("a map", dict(zip(NAMES, slots()[:8], strict=False))),
    ("a map without what is optional", dict(zip(NAMES, slots()[:4], strict=False))),
    ("pattern fields by name", slots(pattern={"Every": {"interval_ms": 5}})[:8]),
    ("pattern by index", slots(pattern={1: [5]})[:8]),
    ("payload as numbers", slots(payload=[0xC4, 1, 1])[:8]),
    ("inner payload as numbers", slots(payload=b"\x91\x01")[:8]),
    ("texts as bin", slots(key=b"k", job_name=b"j", pattern={b"Every": [5]})[:8]),
]


@pytest.mark.parametrize("form", [form for _, form in FORMS], ids=[name for name, _ in FORMS])
def test_a_spec_is_read_in_every_form(form: Any) -> None:
    packed = msgspec.msgpack.encode(form)
    assert wire.unpack_spec(packed) == EVERY
    assert wire.unpack_spec(packed + b"\xc1") == EVERY


@pytest.mark.parametrize(
    "form", [{"Cron": ["* *", "UTC"]}, {0: {"expression": "* *", "tz": "UTC"}}]
)
@pytest.mark.parametrize("missed", [{"FireAll": [7]}, {2: {"max_catchup": 7}}])
def test_variants_are_read_by_name_and_by_index(form: Any, missed: Any) -> None:
    spec = wire.unpack_spec(msgspec.msgpack.encode(slots(pattern=form, missed_fires=missed)))
    assert spec.pattern == cron("* *", "UTC")
    assert spec.missed_fires == MissedFiresPolicy("fire-all", 7)


REFUSED: list[tuple[str, Any]] = [
    ("six elements", slots()[:6]),
    ("eleven elements", [*slots(), None]),
    ("text", "spec"),
    ("a map without a pattern", {"key": "k", "job_name": "j", "payload": b"\xc0"}),
    ("key as a number", slots(key=1)),
    ("an unknown pattern", slots(pattern={"Solar": [5]})),
    ("a bare pattern", slots(pattern="Every")),
    ("two patterns", slots(pattern={"Every": [5], "Cron": ["* *", None]})),
    ("an interval of text", slots(pattern={"Every": ["5"]})),
    ("a negative interval", slots(pattern={"Every": [-5]})),
    ("no interval", slots(pattern={"Every": []})),
    ("no interval in a map", slots(pattern={"Every": {}})),
    ("an interval as a float", slots(pattern={"Every": [5.0]})),
    ("a cron of one", slots(pattern={"Cron": ["* *"]})),
    ("a tz as a number", slots(pattern={"Cron": ["* *", 1]})),
    ("payload that is no bin inside", slots(payload=b"\x01")),
    ("payload that is empty", slots(payload=b"")),
    ("payload as text", slots(payload="a")),
    ("limit as a bool", slots(limit=True)),
    ("fired nil", slots(fired=None)),
    ("an unknown missed_fires", slots(missed_fires="Sometimes")),
    ("FireOnce with fields", slots(missed_fires={"FireOnce": [1]})),
    ("FireAll without fields", slots(missed_fires="FireAll")),
    ("FireAll above u32", slots(missed_fires={"FireAll": [2**32]})),
    ("retry of one", slots(retry=[1])),
]


@pytest.mark.parametrize("form", [form for _, form in REFUSED], ids=[name for name, _ in REFUSED])
def test_bytes_that_are_no_spec_are_a_wire_error(form: Any) -> None:
    with pytest.raises(WireError, match="not a repeatable spec"):
        wire.unpack_spec(msgspec.msgpack.encode(form))


RETRY = RetryOverride(3, BackoffSpec.fixed(10))


def test_an_override_lies_in_a_field_of_its_own() -> None:
    spec = msgspec.structs.replace(EVERY, retry=RETRY)
    packed = wire.pack_spec(spec)
    assert packed == wire.pack_spec(EVERY)  # a 1.3.0 scheduler reads it as ever
    assert wire.unpack_spec(packed, wire.pack_override(packed, RETRY)) == spec


def test_a_spec_without_an_override_has_an_empty_one() -> None:
    packed = wire.pack_spec(EVERY)
    assert wire.pack_override(packed, None) == b""
    assert wire.unpack_spec(packed, b"") == EVERY


def test_an_override_of_another_spec_is_not_ours() -> None:
    other = wire.pack_spec(msgspec.structs.replace(EVERY, payload=b"\x02"))
    assert wire.unpack_spec(wire.pack_spec(EVERY), wire.pack_override(other, RETRY)) == EVERY


def test_an_override_is_read_from_a_newer_programs_tenth_element() -> None:
    packed = msgspec.msgpack.encode(slots(retry=[3, ["fixed", 10, None, None, None]]))
    assert wire.unpack_spec(packed).retry == RETRY
    ours = wire.pack_override(packed, RetryOverride(9))
    assert wire.unpack_spec(packed, ours).retry == RetryOverride(9)


KEYS = [  # (key, name, pattern, resolved)
    ("mine", "j", every(5), "mine"),
    (None, "j", every(5), "j::every:5"),
    ("", "", every(5), "::every:5"),
    (None, "j", cron("0 2 * * *"), "j::cron:0 2 * * *:UTC"),
    (None, "j", cron("0 2 * * *", "UTC"), "j::cron:0 2 * * *:UTC"),
    (None, "j", cron("0 2 * * *", "utc"), "j::cron:0 2 * * *:utc"),
    (None, "j", cron("0  2 * * *", ""), "j::cron:0  2 * * *:"),
]


@pytest.mark.parametrize(("key", "name", "pattern", "expected"), KEYS)
def test_a_key_is_the_callers_or_name_and_pattern(
    key: str | None, name: str, pattern: RepeatPattern, expected: str
) -> None:
    assert wire.resolved_key(key, name, pattern) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"limit": -1},
        {"fired": 2**64},
        {"pattern": every(-1)},
        {"key": "\ud800"},
        {"missed_fires": MissedFiresPolicy("sometimes")},
        {"missed_fires": MissedFiresPolicy("fire-all")},
        {"retry": RetryOverride(-1)},
    ],
)
def test_what_no_scheduler_could_read_is_not_written(changes: dict[str, Any]) -> None:
    spec = msgspec.structs.replace(EVERY, **changes)
    with pytest.raises(EncodeError):
        wire.pack_override(wire.pack_spec(spec), spec.retry)


u64 = st.integers(0, 2**64 - 1)
specs = st.builds(
    StoredSpec,
    key=st.text(),
    job_name=st.text(),
    pattern=st.builds(every, u64) | st.builds(cron, st.text(), st.none() | st.text()),
    payload=st.binary(),
    limit=st.none() | u64,
    start_after_ms=st.none() | u64,
    end_before_ms=st.none() | u64,
    fired=u64,
    missed_fires=st.sampled_from([MissedFiresPolicy(), MissedFiresPolicy("fire-once")])
    | st.builds(MissedFiresPolicy, st.just("fire-all"), st.integers(1, 2**32 - 1)),
    retry=st.none() | st.just(RETRY),
)


@given(spec=specs)
def test_a_spec_survives_the_round_trip(spec: StoredSpec) -> None:
    packed = wire.pack_spec(spec)
    assert wire.unpack_spec(packed, wire.pack_override(packed, spec.retry)) == spec
