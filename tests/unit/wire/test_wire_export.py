"""Exported rows: what people read in them, and what comes back out of them to the byte."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.errors import EncodeError, WireError
from chasquimq.job import Envelope
from chasquimq.wire import Exported, export
from chasquimq.wire.scan import MAX_DEPTH

FORMATS = pytest.mark.parametrize(
    ("pack", "unpack"),
    [(wire.pack_json, wire.unpack_json), (wire.pack_msgpack, wire.unpack_msgpack)],
    ids=["jsonl", "msgpack"],
)


def row(data: Any = None, **more: Any) -> list[bytes]:
    body = wire.pack_envelope(Envelope("a", wire.encode(data), 9))
    return wire.pack_dead(body, b"send", b"7-7", "unrecoverable", **more)


def packed(pack: Any, fields: list[bytes], dlq_id: str = "5-1") -> bytes:
    return bytes(pack(wire.unpack_dead(dlq_id.encode(), fields), fields))


def shown(fields: list[bytes]) -> dict[str, Any]:
    """A line as any JSON program reads it."""
    line = packed(wire.pack_json, fields)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    return dict(json.loads(line))


def test_a_line_tells_everything_and_has_the_fields_as_they_are() -> None:
    fields = row({"n": 1}, detail="d", attempt=2, error_type="E", error="é", failed_at_ms=3)
    told = shown(fields)
    assert [base64.b64decode(part) for part in told.pop("fields")] == fields
    assert told == {
        "dlq_id": "5-1",
        "job_id": "a",  # out of the envelope: this row has no field for it
        "name": "send",
        "reason": "unrecoverable",
        "detail": "d",
        "attempt": 2,
        "error_type": "E",
        "error": "é",
        "failed_at_ms": 3,
        "source_id": "7-7",
        "data": {"n": 1},
    }


def test_a_msgpack_row_has_the_same_with_bytes() -> None:
    fields = row({"n": b"\x00"})
    told = msgspec.msgpack.decode(packed(wire.pack_msgpack, fields))
    assert list(told) == list(shown(fields))
    assert (told["data"], told["fields"]) == ({"n": b"\x00"}, fields)


def test_a_row_of_the_reference_shows_nulls() -> None:
    told = shown(row())
    assert told["error_type"] is told["failed_at_ms"] is told["attempt"] is None
    assert told["data"] is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, None),
        ("text", "text"),
        (b"\x00\xff", {"base64": "AP8="}),
        ([1, {"a": b""}], [1, {"a": {"base64": ""}}]),
        ({1: "int keys"}, {"1": "int keys"}),
        (float("nan"), None),
        (2**64 - 1, 2**64 - 1),
    ],
)
def test_data_is_shown_as_json_can(data: Any, expected: Any) -> None:
    assert shown(row(data))["data"] == expected


@pytest.mark.parametrize(
    "fields",
    [
        [b"d", b"\xc1"],
        [b"something", b"else"],
        row({None: 1}),  # JSON has no form for this key
        row("x" * (export.MAX_SHOWN_BYTES + 1)),
        wire.pack_dead(
            wire.pack_envelope(Envelope("a", b"\xd6\xff1234", 9)), b"", b"7-7", "malformed"
        ),
    ],
    ids=["garbage", "no body", "None key", "large", "timestamp"],
)
@FORMATS
def test_data_that_cannot_be_shown_is_left_out_and_the_row_is_whole(
    fields: list[bytes], pack: Any, unpack: Any
) -> None:
    line = packed(pack, fields)
    decode = json.loads if pack is wire.pack_json else msgspec.msgpack.decode
    assert "data" not in decode(line) or pack is wire.pack_msgpack
    assert unpack(line) == Exported("5-1", fields)


@FORMATS
def test_data_as_deep_as_may_be_is_no_trouble(pack: Any, unpack: Any) -> None:
    for depth in range(MAX_DEPTH - 4, MAX_DEPTH + 1):
        deep: Any = None
        for _ in range(depth):
            deep = [deep]
        fields = row(deep)
        line = packed(pack, fields)
        assert unpack(line).fields == fields
        if pack is wire.pack_msgpack:
            assert wire.row_end(line) == len(line)


@pytest.mark.parametrize("pack", [wire.pack_json, wire.pack_msgpack])
def test_a_row_that_no_import_would_take_is_not_written(
    monkeypatch: pytest.MonkeyPatch, pack: Any
) -> None:
    monkeypatch.setattr(export, "MAX_ROW_BYTES", 500)
    packed(pack, row("x" * 50))
    with pytest.raises(EncodeError, match="dlq entry 5-1 takes"):
        packed(pack, row("x" * 500))


names_and_values = st.lists(st.tuples(st.binary(), st.binary()), min_size=1, max_size=8).map(
    lambda pairs: [part for pair in pairs for part in pair]
)
ids = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)).map(
    lambda place: f"{place[0]}-{place[1]}"
)


@FORMATS
@given(fields=names_and_values, dlq_id=ids)
def test_any_row_survives_the_round_trip(
    fields: list[bytes], dlq_id: str, pack: Any, unpack: Any
) -> None:
    assert unpack(packed(pack, fields, dlq_id)) == Exported(dlq_id, fields)


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
)


@FORMATS
@given(data=json_like, error=st.text(max_size=40))
def test_whatever_the_data_the_row_survives(data: Any, error: str, pack: Any, unpack: Any) -> None:
    fields = row(data, error=error, job_id="a")
    line = packed(pack, fields)
    assert unpack(line).fields == fields
    if pack is wire.pack_msgpack:
        assert wire.row_end(line + b"\xc1") == len(line)
    else:
        assert line.count(b"\n") == 1
        assert "data" in json.loads(line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"null",
        b'{"dlq_id":"1-1"}',
        b'{"fields":["ZA==","ZA=="]}',
        b'{"dlq_id":"1-1","fields":[]}',
        b'{"dlq_id":"1-1","fields":["ZA=="]}',
        b'{"dlq_id":"1-1","fields":["ZA==","not base64!"]}',
        b'{"dlq_id":"1-1","fields":["ZA==","ZA"]}',
        b'{"dlq_id":"1-1","fields":["ZA==",5]}',
        b'{"dlq_id":"1-1","fields":{"d":"ZA=="}}',
        b'{"dlq_id":5,"fields":["ZA==","ZA=="]}',
        b'{"dlq_id":"1","fields":["ZA==","ZA=="]}',
        b'{"dlq_id":"x-1","fields":["ZA==","ZA=="]}',
        b'{"dlq_id":"1-","fields":["ZA==","ZA=="]}',
        '{"dlq_id":"1-²","fields":["ZA==","ZA=="]}'.encode(),
        b'{"dlq_id":"1-18446744073709551616","fields":["ZA==","ZA=="]}',
        b'{"dlq_id":"1-1","fields":["ZA==","ZA=="]} {}',
        b'{"dlq_id":"1-1","fields":["ZA==","ZA=="],"data":' + b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_line_that_is_no_row_is_refused(line: bytes) -> None:
    with pytest.raises(WireError, match="no exported row"):
        wire.unpack_json(line)


@pytest.mark.parametrize(
    "value",
    [
        5,
        [],
        {},
        {"dlq_id": "1-1", "fields": ["d", "x"]},  # text where bytes belong
        {"dlq_id": b"1-1", "fields": [b"d", b"x"]},
        {"dlq_id": "1-1", "fields": [b"d"]},
        {"dlq_id": "1 1", "fields": [b"d", b"x"]},
    ],
)
def test_a_value_that_is_no_row_is_refused(value: Any) -> None:
    with pytest.raises(WireError, match="no exported row"):
        wire.unpack_msgpack(msgspec.msgpack.encode(value))


def test_the_end_of_a_row_is_found_as_soon_as_it_is_there() -> None:
    one = packed(wire.pack_msgpack, row({"n": [1, 2, b"3"]}))
    for cut in range(len(one)):
        assert wire.row_end(one[:cut]) is None
    assert wire.row_end(memoryview(one + one)) == len(one)
    with pytest.raises(WireError, match="0xc1"):
        wire.row_end(b"\x81\xc1")
    with pytest.raises(WireError, match="more than"):
        wire.row_end(b"\xdf\xff\xff\xff\xff")


def test_a_mark_tells_rows_apart_that_have_the_same_id() -> None:
    rows = [
        Exported("1-1", fields)
        for fields in ([b"a", b"bc"], [b"ab", b"c"], [b"a", b"b"], [b"b", b"a"], [b"a", b"2:bc"])
    ]
    assert len({row.mark for row in rows}) == len(rows)
    assert Exported("1-1", [b"a", b"b"]).mark == Exported("1-1", [b"a", b"b"]).mark
    assert Exported("1-2", [b"a", b"b"]).mark != Exported("1-1", [b"a", b"b"]).mark
