"""Records from files and pipes: nothing is lost, doubled or silently left out."""

from __future__ import annotations

import io
import json
import math
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.cli import source as sources
from chasquimq.cli.source import Bad, Format, Item, Record, Source, parse
from chasquimq.errors import ConfigError


class Drip(io.BytesIO):
    """A pipe that brings a few bytes at a time."""

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__(data)
        self._step = step

    def read1(self, size: int | None = -1) -> bytes:
        return super().read1(self._step)


def read(data: bytes, format: Format | None = None, step: int = 7, **options: Any) -> list[Item]:
    source = Source(Drip(data, step), "it", format, **options)
    found: list[Item] = []
    while batch := source.batch(3):
        assert len(batch) <= 3
        found += batch
    return found


def values(items: list[Item]) -> list[Any]:
    assert all(isinstance(item, Record) for item in items)
    return [item.value for item in items if isinstance(item, Record)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=50)
@given(st.lists(json_values, max_size=12), st.integers(1, 40), st.sampled_from(["\n", "\r\n"]))
def test_lines_come_as_they_were_written(records: list[Any], step: int, end: str) -> None:
    text = end.join(json.dumps(record) for record in records)
    assert values(read(text.encode(), "jsonl", step)) == records
    assert values(read((text + end).encode(), "jsonl", step)) == records


@settings(max_examples=50)
@given(st.lists(json_values, max_size=12), st.integers(1, 40))
def test_messagepack_values_come_as_they_were_written(records: list[Any], step: int) -> None:
    data = b"".join(map(wire.encode, records))
    assert values(read(data, "msgpack", step)) == records


@given(json_values, st.integers(1, 40))
def test_a_document_may_have_many_lines(record: Any, step: int) -> None:
    assert values(read(json.dumps(record, indent=2).encode(), "json", step)) == [record]


def test_lines_are_counted_also_the_blank_ones() -> None:
    items = read(b'1\n\n  \n{"a":\n5\n', "jsonl")
    assert [item.number for item in items] == [1, 4, 5]
    assert isinstance(items[1], Bad) and "not JSON" in items[1].why


@pytest.mark.parametrize("first", [1, 2, 3, 5, 6, 9])
def test_reading_begins_with_the_line_that_is_wanted(first: int) -> None:
    data = b"1\nbad\n\n4\n5\n"
    wanted = [item for item in read(data, "jsonl") if item.number >= first]
    assert read(data, "jsonl", first=first) == wanted
    packed = b"\x01\x02\x03\x04\x05"
    assert [item.number for item in read(packed, "msgpack", first=first)] == list(range(first, 6))


@pytest.mark.parametrize(
    ("data", "format", "found"),
    [
        (b'{"a": 1}', "jsonl", [{"a": 1}]),
        (b'{"a": 1}\n{"a": 2}\n', "jsonl", [{"a": 1}, {"a": 2}]),
        (b'\n \n{"a": 1}\n2', "jsonl", [{"a": 1}, 2]),
        (b'{\n "a": 1\n}\n', "json", [{"a": 1}]),
        (b"[1,\n2]", "json", [[1, 2]]),
        (b"\xef\xbb\xbf1\n2\n", "jsonl", [1, 2]),
        (b"", "json", []),
    ],
)
def test_the_first_line_tells_the_format(data: bytes, format: str, found: list[Any]) -> None:
    for step in (1, 3, 100):
        source = Source(Drip(data, step), "it")
        items = source.batch(10) + source.batch(10) + source.batch(10)
        assert (source.format, values(items)) == (format, found)


def test_a_list_of_jobs_stands_for_its_items_only_where_that_is_meant() -> None:
    assert values(read(b"[1, 2]")) == [[1, 2]]
    assert values(read(b"[1, 2]", lists=True)) == [1, 2]
    assert values(read(b"[1, 2]\n[3]", "jsonl", lists=True)) == [[1, 2], [3]]


def test_what_a_pipe_has_is_handed_on_without_waiting_for_more() -> None:
    end, other = os.pipe()
    with os.fdopen(end, "rb") as file, os.fdopen(other, "wb", buffering=0) as writer:
        source = Source(file, "stdin", "jsonl")
        writer.write(b"1\n2\n3")
        assert source.batch(100) == [Record(1, 1), Record(2, 2)]
        writer.write(b"4\n")
        assert source.batch(100) == [Record(3, 34)]
        writer.close()
        assert source.batch(100) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{'a': 1}", "not JSON"),
        (b"1 2", "not JSON"),
        (b'"\xff"', "not UTF-8"),
        (b"9" * 5_000, "number that is too long"),
        (b"[" * 200_000, "nested too deep"),
        (b'"\x1b"', "not JSON"),
    ],
)
def test_a_bad_line_tells_why(line: bytes, why: str) -> None:
    [one, bad, two] = read(b"1\n" + line + b"\n2\n", "jsonl", step=50_000)
    assert (one.number, bad.number, two.number) == (1, 2, 3)
    assert isinstance(bad, Bad) and why in bad.why and not bad.last


def test_numbers_are_those_that_queue_add_would_get() -> None:
    found = parse(b"[NaN, Infinity, -Infinity, 18446744073709551616, 1.0, -0.0]")
    assert math.isnan(found[0]) and found[1:3] == [math.inf, -math.inf]
    assert found[3] == 2**64 and isinstance(found[4], float) and math.copysign(1, found[5]) == -1


@pytest.mark.parametrize("data", [b"\x01\x92\x01", b"\x01\xc1", b"\x01\xd4\x05\x00\x02"])
def test_behind_a_broken_value_nothing_can_be_read(data: bytes) -> None:
    [one, bad] = read(data, "msgpack")
    assert one == Record(1, 1)
    assert isinstance(bad, Bad) and bad.last and bad.number == 2


def test_a_line_without_end_is_not_gathered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_ROW_BYTES", 100)
    items = read(b"1\n" + b"2" * 1_000 + b"\n3\n" + b"4" * 200, "jsonl")
    assert [type(item) for item in items] == [Record, Bad, Record, Bad]
    assert [item.number for item in items] == [1, 2, 3, 4]
    [bad] = read(b"[" + b"1," * 100 + b"1]", "json")
    assert isinstance(bad, Bad)
    [bad] = read(wire.encode("x" * 200), "msgpack")
    assert isinstance(bad, Bad) and bad.last


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("[1]".encode("utf-16"), "UTF-16"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
    ],
)
def test_a_file_that_is_something_else_is_told_what(data: bytes, why: str) -> None:
    for format in (None, "json", "jsonl"):
        with pytest.raises(ConfigError, match=why):
            read(data, format, step=1)  # type: ignore[arg-type]
