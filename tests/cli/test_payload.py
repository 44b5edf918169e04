"""Jobs' data as text that can be shown."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.cli.payload import json_job, json_payload, show_job, show_payload
from chasquimq.cli.screen import as_json
from chasquimq.job import Envelope

pack = msgspec.msgpack.Encoder().encode

SHOWN = [
    (pack(None), "null"),
    (pack([True, False, -1, 127, 128, -33, 2**64 - 1, -(2**63)]), None),
    (pack(1.5), "1.5"),
    (b"\xca\x3f\xc0\x00\x00", "1.5"),
    (pack([math.nan, math.inf, -math.inf]), "[NaN, Infinity, -Infinity]"),
    (pack({"user": 42, "tags": ["a"], "none": {}, "empty": []}), None),
    (pack({1: "a", None: "b", b"\x00\xff": "c"}), '{1: "a", null: "b", h\'00ff\': "c"}'),
    (pack(b"\x00\xff"), "h'00ff'"),
    (pack(b""), "h''"),
    (pack("é\n\x1b[31m\u202e\x9b"), '"é\\n\\u001b[31m\\u202e\\x9b"'),
    (b"\xa2\xff\xfe", "text(h'fffe')"),
    (pack(msgspec.msgpack.Ext(5, b"ab")), "ext(5, h'6162')"),
    (b"\xd6\xff\x6a\x00\x00\x01", 'timestamp("2026-05-10T03:48:17Z")'),
    (b"\xd7\xff\x1d\xcd\x65\x00\x6a\x00\x00\x01", 'timestamp("2026-05-10T03:48:17.125000Z")'),
    (b"\xc7\x0c\xff\x00\x00\x00\x00\x7f" + b"\xff" * 7, None),  # in no calendar
    (b"\xc7\x03\x07abc", "ext(7, h'616263')"),
]


@pytest.mark.parametrize(("data", "expected"), SHOWN)
def test_messagepack_in_the_manner_of_json(data: bytes, expected: str | None) -> None:
    told = show_payload(data)
    assert (told.cut, told.trouble, told.size) == (False, None, len(data))
    if expected is None and not told.text.startswith("ext"):
        assert json.loads(told.text) == msgspec.msgpack.decode(data)
    elif expected is not None:
        assert told.text == expected


def test_several_lines_are_indented() -> None:
    told = show_payload(pack({"a": [1, {}], "b": {"c": None}}), lines=True)
    assert told.text == json.dumps({"a": [1, {}], "b": {"c": None}}, indent=2)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=values, lines=st.booleans())
def test_what_json_can_say_is_said_as_json(value: Any, lines: bool) -> None:
    told = show_payload(wire.encode(value), 0, lines=lines)
    assert told.trouble is None and not told.cut
    if "\\x" not in told.text and "\\U" not in told.text:  # escapes that are ours, not JSON's
        assert json.loads(told.text) == value


@given(data=st.binary(max_size=200), most=st.integers(1, 300), lines=st.booleans())
def test_no_bytes_are_too_odd_and_none_reach_the_terminal(
    data: bytes, most: int, lines: bool
) -> None:
    for told in (show_payload(data, most, lines=lines), show_job(data, most, lines=lines)):
        assert all(line.isprintable() for line in told.text.split("\n"))
        assert lines or "\n" not in told.text
        assert told.size == len(data) or told.trouble is None


@given(value=values, most=st.integers(1, 60))
def test_a_limit_cuts_and_says_so(value: Any, most: int) -> None:
    data = wire.encode(value)
    whole, part = show_payload(data, 0).text, show_payload(data, most)
    assert part.cut == (len(whole) > most)
    assert part.text == (whole if not part.cut else whole[:most] + "…")
    assert (part.note() is not None) == part.cut


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 1_000_000,
        b"\xdd\xff\xff\xff\xff" + b"\xc0" * 3_000,
        b"\xdf\xff\xff\xff\xff" * 2_000,
    ],
)
def test_hostile_bytes_cost_what_is_shown_of_them(data: bytes) -> None:
    told = show_payload(data, 1_000)
    assert told.cut and len(told.text) == 1_001


@pytest.mark.parametrize(
    ("data", "trouble"),
    [
        (b"", "too early"),
        (b"\xc1", "0xc1"),
        (b"\xa5abc", "too early"),
        (b"\xdd\xff\xff\xff\xff", "too early"),
        (b"hello", "4 bytes follow"),
    ],
)
def test_what_is_not_one_value_is_a_dump(data: bytes, trouble: str) -> None:
    told = show_payload(data)
    assert told.trouble is not None and trouble in told.trouble
    assert told.text == (f"h'{data.hex()}'" if data else "(no bytes)")


def test_a_dump_has_offsets_bytes_and_characters() -> None:
    told = show_payload(b"\xc1" + bytes(range(0x40, 0x58)), lines=True)
    assert told.text.splitlines() == [
        "00000000  c1 40 41 42 43 44 45 46  47 48 49 4a 4b 4c 4d 4e  |.@ABCDEFGHIJKLMN|",
        "00000010  4f 50 51 52 53 54 55 56  57                       |OPQRSTUVW|",
    ]
    cut = show_payload(b"\xc1" * 1_000, 160, lines=True)
    assert cut.cut and cut.text.count("\n") == 2 and cut.text.endswith("…")


def test_the_data_of_a_job_or_the_bytes_where_there_is_no_job() -> None:
    envelope = wire.pack_envelope(Envelope("a", pack({"n": 1}), 5, 0))
    assert show_job(envelope).text == '{"n": 1}'
    odd = show_job(pack({"not": "an envelope"}))
    assert odd.text == '{"not": "an envelope"}'
    assert odd.trouble is not None and "not a job envelope" in odd.trouble


def test_json_has_data_that_every_program_can_read() -> None:
    payload = pack({"n": math.nan, "b": b"\x00\xff", 1: [math.inf]})
    told = json_job(wire.pack_envelope(Envelope("a", payload, 5, 0)))
    assert json.loads(as_json(told)) == {
        "data": {"n": "NaN", "b": {"base64": "AP8="}, "1": ["Infinity"]}
    }
    assert json_job(b"\xc1") == {} == json_payload(b"\xc1")
    assert json_payload(pack(b"x" * 300_000)) == {}
