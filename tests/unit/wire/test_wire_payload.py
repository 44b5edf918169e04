from __future__ import annotations

import collections
import datetime
import decimal
import enum
import math
import pathlib
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.errors import EncodeError, WireError
from chasquimq.wire.scan import LARGE_MAP, MAX_NUMBER_KEYS
from tests.shown import shown

MAX_DEPTH = 512


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Ratio(float):
    pass


class Blob(bytes):
    pass


class Level(enum.IntEnum):
    HIGH = 3


class Colour(enum.StrEnum):
    RED = "red"


class Mixed(str, enum.Enum):  # noqa: UP042 - str() of it is not its value, which is the point
    RED = "red"


Point = collections.namedtuple("Point", "x y")

VECTORS = [  # (data, its bytes)
    (None, "c0"),
    (True, "c3"),
    (-33, "d0 df"),
    (1.5, "cb 3f f8 00 00 00 00 00 00"),
    ("a", "a1 61"),
    (b"a", "c4 01 61"),
    (bytearray(b"a"), "c4 01 61"),
    (memoryview(b"a"), "c4 01 61"),
    ((1, [2]), "92 01 91 02"),
    ({"b": 1, "a": 2}, "82 a1 62 01 a1 61 02"),
    ({1: None, b"k": True, None: 0}, "83 01 c0 c4 01 6b c3 c0 00"),
    ({2.5: b""}, "81 cb 40 04 00 00 00 00 00 00 c4 00"),
    # derived types are written as what they derive from
    (Text("a"), "a1 61"),
    (Number(5), "05"),
    (Ratio(1.5), "cb 3f f8 00 00 00 00 00 00"),
    (Blob(b"a"), "c4 01 61"),
    (Level.HIGH, "03"),
    (Colour.RED, "a3 72 65 64"),
    (Mixed.RED, "a3 72 65 64"),
    (Point(1, 2), "92 01 02"),
    (collections.OrderedDict(a=1), "81 a1 61 01"),
    (collections.defaultdict(int, a=1), "81 a1 61 01"),
    ([{"x": [Text("a")]}], "91 81 a1 78 91 a1 61"),
    ({Text("k"): {Colour.RED: Number(1)}}, "81 a1 6b 81 a3 72 65 64 01"),
]


@pytest.mark.parametrize(("data", "expected"), VECTORS, ids=shown)
def test_data_is_written_as_msgpack_would(data: Any, expected: str) -> None:
    assert wire.encode(data) == bytes.fromhex(expected)


class Plain(enum.Enum):
    A = 1


NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
REFUSED = [  # (what no worker would get back, how it is called, what to do)
    (NOW, "datetime.datetime", "isoformat"),
    (NOW.replace(tzinfo=None), "datetime.datetime", "isoformat"),
    (NOW.date(), "datetime.date", "isoformat"),
    (NOW.time(), "datetime.time", "isoformat"),
    (datetime.timedelta(1), "datetime.timedelta", "send"),
    ({1, 2}, "set", "a list"),
    (frozenset((1,)), "frozenset", "a list"),
    (decimal.Decimal("1.5"), "decimal.Decimal", "send"),
    (uuid.UUID(int=1), "uuid.UUID", "send"),
    (pathlib.Path("a"), "Path", "a model"),
    (Plain.A, "Plain", "its value"),
    (msgspec.Raw(b"\x01"), "msgspec.Raw", "send"),
    (msgspec.msgpack.Ext(1, b"a"), "Ext", "send"),
    (object(), "object", "send"),
    (complex(1), "complex", "send"),
    (range(3), "range", "send"),
    (collections.deque([1]), "deque", "send"),
    (print, "builtin_function_or_method", "send"),
    (2**64, "beyond 64 bits", "as a str"),
    (-(2**63) - 1, "beyond 64 bits", "as a str"),
    ("\ud800", "no valid text", "surrogates"),
]


@pytest.mark.parametrize(("data", "called", "advice"), REFUSED)
def test_what_the_wire_has_no_form_for_is_refused(data: Any, called: str, advice: str) -> None:
    with pytest.raises(EncodeError, match=called) as refused:
        wire.encode(data)
    assert advice in str(refused.value)
    with pytest.raises(EncodeError, match=r"data\['a'\]\[1\] .*" + called):
        wire.encode({"a": [0, data]})
    with pytest.raises(EncodeError, match=called):
        wire.encode([{"a": (data,)}])


@pytest.mark.parametrize("key", [frozenset(), NOW, decimal.Decimal(1), Plain.A, uuid.UUID(int=1)])
def test_a_key_the_wire_has_no_form_for_is_refused(key: Any) -> None:
    with pytest.raises(EncodeError, match=r"a key of data\['a'\]"):
        wire.encode({"a": {key: 1}})


@pytest.mark.parametrize("key", [(), (1, 2), (1, ("a",)), Point(1, 2), frozenset()])
def test_a_key_that_is_a_container_is_refused(key: Any) -> None:
    """Python's hash of a tuple of numbers is the same in every process: keys can be made to
    collide."""
    for data in ({"a": {key: 1}}, {"a": {"b": 1, key: 1}}, {"a": {Text("b"): 1, key: 1}}):
        with pytest.raises(EncodeError, match=r"a key of data\['a'\] is .*; ") as refused:
            wire.encode(data)
        assert "send" in str(refused.value)
        with pytest.raises(EncodeError, match=r"a key of data\['a'\]"):
            wire.encode_many([{"a": 1}, data])


@pytest.mark.parametrize("kind", [int, float])
def test_too_many_numbers_as_keys_are_neither_written_nor_read(kind: type) -> None:
    """Numbers can be chosen to collide in a dict: 47,000 of them, 240 KB, kept a process busy for a
    second, and the time grows with the square of their number."""
    most = {kind(number): None for number in range(MAX_NUMBER_KEYS)}
    assert wire.decode(wire.encode([most, {1: 2}])) == [most, {1: 2}]
    more = {**most, kind(MAX_NUMBER_KEYS): None}
    parts = [dict.fromkeys(range(100), 1)] * 41
    for data in (more, {"a": [b"", more]}, [most, dict.fromkeys(range(LARGE_MAP + 1))], parts):
        with pytest.raises(EncodeError, match="more than 4096 numbers as keys") as refused:
            wire.encode(data)
        assert "as str" in str(refused.value)
        with pytest.raises(EncodeError, match="more than 4096 numbers as keys"):
            wire.encode_many([{"a": 1}, data])
        with pytest.raises(WireError, match="more than 4096 numbers as keys"):
            wire.decode(msgspec.msgpack.encode(data))


def test_maps_may_be_large_with_other_keys_or_many_when_they_are_small() -> None:
    for data in (
        {str(number): b"" for number in range(20_000)},
        {b"%d" % number: number for number in range(20_000)},
        [dict.fromkeys(range(LARGE_MAP), 1.5)] * 200,
    ):
        assert wire.decode(wire.encode(data)) == data


def test_msgpack_extension_types_are_no_tuples() -> None:
    class ExtType(collections.namedtuple("ExtType", "code data")):
        __slots__ = ()

    ExtType.__module__ = "msgpack.ext"
    with pytest.raises(EncodeError, match=r"msgpack\.ext\.ExtType"):
        wire.encode([ExtType(1, b"a")])


def nested(depth: int, leaf: Any = None, kind: type = list) -> Any:
    value: Any = [] if leaf is None else [leaf]
    for _ in range(depth - 1):
        value = [value] if kind is list else {"k": value}
    return value


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("leaf", [None, 1, Text("a")])
def test_what_is_nested_too_deep_is_neither_written_nor_read(kind: type, leaf: Any) -> None:
    deepest = nested(MAX_DEPTH, leaf, kind)
    assert wire.decode(wire.encode(deepest)) == deepest
    too_deep = nested(MAX_DEPTH + 1, leaf, kind)
    with pytest.raises(EncodeError, match="nested deeper than 512"):
        wire.encode(too_deep)
    if not isinstance(leaf, Text):
        with pytest.raises(WireError, match="nested deeper than 512"):
            wire.decode(msgspec.msgpack.encode(too_deep))


@pytest.mark.parametrize("data", [[None] * 1_000_000, [Text("a")] * 1_000_000])
def test_more_values_than_a_worker_reads_are_not_written(data: list[Any]) -> None:
    with pytest.raises(EncodeError, match="more than 1000000 values"):
        wire.encode(data)
    assert wire.decode(wire.encode(data[1:])) == data[1:]


def test_data_that_contains_itself_is_refused() -> None:
    data: list[Any] = []
    data += [data, data]
    with pytest.raises(EncodeError, match="contains itself"):
        wire.encode(data)
    with pytest.raises(EncodeError, match="contains itself"):
        wire.encode({"a": [Text("b"), {"c": data}]})


def test_many_are_written_as_each_of_them_is() -> None:
    each = [data for data, _ in VECTORS]
    keys = [data for data in each if not isinstance(data, (dict, list, tuple, bytearray))]
    deepest = nested(MAX_DEPTH, 1, dict)
    large = {"a": [None] * 999_997}  # as many values as a worker reads
    many = [*each, *({"a": 1, "k": data} for data in each), *({data: 1} for data in keys)]
    many += [{"a": [data]} for data in each] + [deepest, large, {}]
    assert wire.encode_many(many) == [wire.encode(data) for data in many]


@pytest.mark.parametrize("data", [data for data, _, _ in REFUSED])
def test_one_of_many_that_is_refused_is_as_one_alone(data: Any) -> None:
    fine: Any = {"a": 1, "b": None}
    for wrong in ({"a": 1, "b": data}, {"a": [data]}, data):
        with pytest.raises(EncodeError) as alone:
            wire.encode(wrong)
        with pytest.raises(EncodeError) as refused:
            wire.encode_many([fine, wrong, fine])
        assert str(refused.value) == str(alone.value)


def test_many_have_the_bounds_of_one() -> None:
    itself: dict[str, Any] = {}
    itself["a"] = itself
    large = {"a": [None] * 1_000_000}
    for wrong in (nested(MAX_DEPTH + 1, 1, dict), itself, large, {NOW: 1}):
        with pytest.raises(EncodeError):
            wire.encode_many([{"a": 1}, wrong])


UNREADABLE = [
    ("nothing", ""),
    ("never used", "c1"),
    ("trailing bytes", "01 02"),
    ("truncated", "92 01"),
    ("ext", "d4 01 00"),
    ("ext 8", "c7 01 05 00"),
    ("timestamp 32", "d6 ff 00 00 00 01"),
    ("timestamp 64", "d7 ff 00 00 00 00 00 00 00 01"),
    ("timestamp 96", "c7 0c ff 00 00 00 00 00 00 00 00 00 00 00 01"),
    ("timestamp out of range", "c7 0c ff ff ff ff ff ff ff ff ff ff ff ff ff"),
    ("a timestamp inside", "92 a1 61 81 a1 62 d6 ff 00 00 00 01"),
    ("a timestamp as a key", "81 d6 ff 00 00 00 01 01"),
    ("bad UTF-8", "a1 ff"),
    ("a map as a key", "81 80 01"),
    ("an array as a key", "81 92 01 02 03"),
    ("an array as a key, beside bytes", "82 c4 01 61 c4 01 61 90 03"),
    ("an array as a key, inside", "91 81 a1 61 82 a1 62 01 91 01 c0"),
]


@pytest.mark.parametrize(
    "data", [data for _, data in UNREADABLE], ids=[name for name, _ in UNREADABLE]
)
def test_bytes_that_are_no_payload_are_a_wire_error(data: str) -> None:
    with pytest.raises(WireError, match="not readable"):
        wire.decode(bytes.fromhex(data))


def test_bytes_that_only_look_like_a_timestamp_are_read() -> None:
    for data in (b"\xd6\xff\0\0\0\1", [b"\xc7\x0c\xff"], 0xD6FF_0000, -1):
        assert wire.decode(wire.encode(data)) == data


def test_a_large_flat_payload_is_read() -> None:
    for data in (["x" * 10] * 5_000, [{"i": i, "l": []} for i in range(3_000)], "ñ" * 600_000):
        assert wire.decode(wire.encode(data)) == data
    assert wire.decode(wire.encode({1: [{}] * 600, "b": b"b"})) == {1: [{}] * 600, "b": b"b"}


def test_nan_and_the_infinities_pass() -> None:
    back = wire.decode(wire.encode([math.nan, math.inf, -math.inf]))
    assert math.isnan(back[0])
    assert back[1:] == [math.inf, -math.inf]


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(scalars, inner, max_size=5),
    max_leaves=30,
)


@given(data=documents)
def test_data_survives_the_round_trip(data: Any) -> None:
    encoded = wire.encode(data)
    assert wire.decode(encoded) == data
    assert encoded == msgspec.msgpack.encode(data)


@given(data=st.binary(max_size=600))
def test_any_bytes_are_data_or_a_wire_error(data: bytes) -> None:
    try:
        value = wire.decode(data)
    except WireError:
        return
    wire.encode(value)
