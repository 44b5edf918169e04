"""Payloads as JSON, bytes and variants."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StringType, VariantType, VariantVal

from chasquimq import wire
from chasquimq.spark.decode.variant import MAX_BYTES
from chasquimq.wire.scan import MAX_DEPTH
from tests.unit.spark.stored import fault_of, pack, payload_of

JSON, BINARY, VARIANT = StringType(), BinaryType(), VariantType()
NAN, INF = math.nan, math.inf


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\x01"


# -- JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, "null"),
        ({}, "{}"),
        ({"a": [1, -2.5, "ä\n\0", True, None]}, '{"a":[1,-2.5,"ä\\n\\u0000",true,null]}'),
        (2**64 - 1, "18446744073709551615"),
        (-(2**63), "-9223372036854775808"),
        ({"raw": b"\x00\xff"}, '{"raw":"AP8="}'),
        ([NAN, INF, -INF, 1.5], '["NaN","Infinity","-Infinity",1.5]'),
        ({"a": {"b": [{"c": -INF}]}}, '{"a":{"b":[{"c":"-Infinity"}]}}'),
        (127, "127"),
        ([-1, 127, 3.14], "[-1,127,3.14]"),
        ({1: "a", -2: "b", 1.5: "c"}, '{"1":"a","-2":"b","1.5":"c"}'),
        ({True: 1, None: 2}, '{"true":1,"null":2}'),
        ({False: {b"\x01": NAN}}, '{"false":{"AQ==":"NaN"}}'),
        ({NAN: 1, INF: 2}, '{"NaN":1,"Infinity":2}'),
    ],
)
def test_json_says_what_spark_would(data: Any, told: str) -> None:
    assert payload_of(pack(data), JSON) == told


def test_floats_of_four_bytes_may_be_endless_too() -> None:
    assert (
        payload_of(b"\x92\xca\x7f\xc0\x00\x00\xca\xff\x80\x00\x00", JSON) == '["NaN","-Infinity"]'
    )


def test_a_name_that_is_there_twice_has_its_last_value_as_for_workers() -> None:
    assert payload_of(b"\x82\xa1a\x01\xa1a\x02", JSON) == '{"a":2}'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x01\x02",
        b"\x92\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\xa1\xff",
        b"\xa3\xed\xa0\x80",  # a surrogate
        b"\xd6\xff\x00\x00\x00\x01",  # a timestamp
        b"\xd4\x05\x00",  # another extension
        b"\x81\x91\x01\x02",  # an array for a key
        b"\x81\x80\x02",  # a map for a key
        nested(MAX_DEPTH + 1),
        nested(100_000),
        b"\xdd\x00\x0f\x42\x41" + b"\xc0" * 1_000_001,  # more values than workers take
    ],
    ids=lambda data: data[:6].hex() + f"_{len(data)}",
)
@pytest.mark.parametrize("kind", [JSON, VARIANT], ids=["json", "variant"])
def test_what_no_worker_reads_is_malformed(data: bytes, kind: Any) -> None:
    assert fault_of(data, kind).startswith("value: ")


def test_two_keys_that_are_one_text() -> None:
    assert "two keys" in fault_of(pack({None: 1, "null": 2}), JSON)
    assert "two keys" in fault_of(pack({1: 1, "1": 2}), VARIANT)


@pytest.mark.parametrize("kind", [JSON, VARIANT], ids=["json", "variant"])
@pytest.mark.parametrize("inside", [b"\x01", b"\xcb\x7f\xf0" + bytes(6)], ids=["1", "inf"])
def test_what_is_as_deep_as_may_be(kind: Any, inside: bytes) -> None:
    found = payload_of(b"\x91" * MAX_DEPTH + inside, kind)
    if kind is JSON:
        assert found.startswith("[" * MAX_DEPTH)
    else:  # Spark's reader in Python would run out of stack
        assert found["value"].endswith(b"\x0c\x01" if inside == b"\x01" else b"\xf0\x7f")


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary(max_size=80)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(("ä", "𝄞")), inner),
    max_leaves=40,
)


def as_json(value: Any) -> Any:
    """What reads back from the JSON of a value."""
    if isinstance(value, bytes):
        return json.loads(msgspec.json.encode(value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


@given(values)
def test_json_of_any_value(value: Any) -> None:
    assert json.loads(payload_of(wire.encode(value), JSON)) == as_json(value)


# -- bytes -----------------------------------------------------------------------------------------


@given(st.binary())
def test_bytes_are_as_they_were_sent(data: bytes) -> None:
    assert payload_of(data, BINARY) == data


# -- variants --------------------------------------------------------------------------------------


def variant(data: bytes) -> VariantVal:
    found = payload_of(data, VARIANT)
    return VariantVal(found["value"], found["metadata"])


@given(values)
def test_a_variant_of_any_value(value: Any) -> None:
    """Read back by Spark's own reader."""
    found = variant(wire.encode(value)).toPython()
    assert repr(found) == repr(_sorted(value))


def _sorted(value: Any) -> Any:
    """Spark's order of fields is that of UTF-16."""
    if isinstance(value, dict):
        order = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return {name: _sorted(value[name]) for name in order}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    # Beyond 64 bits with a sign, a variant has decimals.
    return Decimal(value) if type(value) is int and value >= 2**63 else value


def test_fields_of_variants_are_in_the_order_by_which_spark_searches() -> None:
    """That of UTF-16, where what is beyond 16 bits comes before the last of what is within."""
    names = ("a", "B", "ä", "\uff21", "\U0001d11e", "")
    found = variant(pack(dict.fromkeys(names, 1))).toPython()
    assert list(found) == ["", "B", "a", "ä", "\U0001d11e", "\uff21"]


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 70_000])
def test_variants_of_many_values(count: int) -> None:
    """Counts, ids and offsets get wider as they need to."""
    names = {f"name-{at:06d}": at for at in range(count)}
    assert variant(pack(list(range(count)))).toPython() == list(range(count))
    assert variant(pack(names)).toPython() == names


@pytest.mark.parametrize("size", [0, 63, 64, 255, 256, 65_535, 65_536, 1_000_000])
def test_variants_of_long_texts(size: int) -> None:
    data = ["x" * size, b"y" * size, {"z" * size: 1}]
    assert variant(pack(data)).toPython() == data


def test_a_variant_has_a_limit() -> None:
    assert "bytes of a variant" in fault_of(pack(["x" * MAX_BYTES]), VARIANT)


def test_keys_of_variants_are_text() -> None:
    told = variant(pack({1: "a", None: "b", False: "c", b"\x01": "d"})).toPython()
    assert told == {"1": "a", "null": "b", "false": "c", "AQ==": "d"}


def test_a_payload_of_nil_is_the_null_of_variants() -> None:
    assert variant(b"\xc0").toPython() is None
