"""Payloads: what of each type of Spark's a worker gets."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VariantType,
    VariantVal,
)

from chasquimq import wire
from chasquimq.spark.options import Written
from chasquimq.spark.write.value import payloads
from tests.spark_redis.writing import batch, schema_of

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
POINT = schema_of(x=LongType(), y=DoubleType())


def variant(text: str) -> dict[str, bytes]:
    made = VariantVal.parseJson(text)
    return {"value": made.value, "metadata": made.metadata}


def packed(kind: DataType, values: list[Any], form: Written = "value") -> list[bytes]:
    schema = schema_of(payload=kind)
    return payloads(kind, form)(batch(schema, [{"payload": value} for value in values]).column(0))


def arrives(kind: DataType, values: list[Any], form: Written = "value") -> list[Any]:
    return [wire.decode(data) for data in packed(kind, values, form)]


CASES: list[tuple[DataType, list[Any], list[Any]]] = [
    (NullType(), [None], [None]),
    (BooleanType(), [True, None, False], [True, None, False]),
    (ByteType(), [-128, 127], [-128, 127]),
    (IntegerType(), [-(2**31), 0], [-(2**31), 0]),
    (LongType(), [-(2**63), 2**63 - 1, None], [-(2**63), 2**63 - 1, None]),
    (FloatType(), [0.5, None], [0.5, None]),
    (DoubleType(), [1.5, float("inf"), None], [1.5, float("inf"), None]),
    (StringType(), ["", "grüße", None], ["", "grüße", None]),
    (BinaryType(), [b"", b"\xff\x00", None], [b"", b"\xff\x00", None]),
    (DecimalType(5, 2), [Decimal("1.50"), Decimal("-0.01"), None], ["1.50", "-0.01", None]),
    (DateType(), [date(2026, 11, 16), None], ["2026-11-16", None]),
    (TimeType(6), [time(1, 2, 3, 40), None], ["01:02:03.000040", None]),
    (TimestampType(), [NOON, None], ["2026-11-16T12:00:00Z", None]),
    (TimestampType(), [NOON.replace(microsecond=5)], ["2026-11-16T12:00:00.000005Z"]),
    (TimestampNTZType(), [NOON.replace(tzinfo=None), None], ["2026-11-16T12:00:00", None]),
    (
        POINT,
        [{"x": 1, "y": 0.5}, None, {"x": None, "y": None}],
        [{"x": 1, "y": 0.5}, None, {"x": None, "y": None}],
    ),
    (StructType([]), [{}, None], [{}, None]),
    (ArrayType(LongType()), [[1, None], [], None, [2]], [[1, None], [], None, [2]]),
    (ArrayType(POINT), [[{"x": 1, "y": 1.0}, None], None], [[{"x": 1, "y": 1.0}, None], None]),
    (ArrayType(ArrayType(DateType())), [[[date(1, 1, 1)], None, []]], [[["0001-01-01"], None, []]]),
    (
        MapType(StringType(), LongType()),
        [{"a": 1, "b": None}, {}, None],
        [{"a": 1, "b": None}, {}, None],
    ),
    (MapType(LongType(), POINT), [{7: {"x": 1, "y": 2.0}}], [{7: {"x": 1, "y": 2.0}}]),
    (
        MapType(DateType(), DecimalType(3, 1)),
        [{date(2026, 1, 2): Decimal("1.0")}],
        [{"2026-01-02": "1.0"}],
    ),
    (
        schema_of(p=POINT, at=TimestampType(), l=ArrayType(MapType(StringType(), BinaryType()))),
        [{"p": None, "at": NOON, "l": [{"k": b"v"}]}],
        [{"p": None, "at": "2026-11-16T12:00:00Z", "l": [{"k": b"v"}]}],
    ),
    (
        VariantType(),
        [variant('{"a": [1, 1.5, "x", null, true]}'), variant("null"), None],
        [{"a": [1, 1.5, "x", None, True]}, None, None],
    ),
    (ArrayType(VariantType()), [[variant("1"), variant('"x"')]], [[1, "x"]]),
]


@pytest.mark.parametrize(
    ("kind", "values", "wanted"), CASES, ids=[row[0].simpleString() for row in CASES]
)
def test_each_type_arrives_as_what_it_is(
    kind: DataType, values: list[Any], wanted: list[Any]
) -> None:
    assert arrives(kind, values) == wanted


@pytest.mark.parametrize(
    ("kind", "values", "wanted"), CASES, ids=[row[0].simpleString() for row in CASES]
)
def test_a_slice_arrives_as_what_it_is(
    kind: DataType, values: list[Any], wanted: list[Any]
) -> None:
    """Arrow slices share what lies below them."""
    schema = schema_of(payload=kind)
    rows = [{"payload": value} for value in [*values, *values]]
    column = batch(schema, rows).column(0).slice(len(values), len(values))
    assert [wire.decode(data) for data in payloads(kind, "value")(column)] == wanted


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ArrayType(LongType()), [[9, 9, 9], [1], [2, 3]]),
        (MapType(StringType(), LongType()), [{"x": 9, "y": 9}, {"a": 1}, {"b": 2, "c": 3}]),
        (schema_of(l=ArrayType(LongType())), [{"l": [9, 9]}, {"l": [1]}, None]),
        (ArrayType(ArrayType(LongType())), [[[9], [9, 9]], [[1], []], [[2, 3]]]),
    ],
)
def test_a_slice_begins_where_it_begins(kind: DataType, values: list[Any]) -> None:
    column = batch(schema_of(payload=kind), [{"payload": value} for value in values]).column(0)
    read = payloads(kind, "value")
    assert [wire.decode(data) for data in read(column.slice(1))] == values[1:]
    assert [wire.decode(data) for data in read(column.slice(1, 1))] == values[1:2]


def test_a_model_reads_back_what_was_written() -> None:
    class Order(msgspec.Struct):
        at: datetime
        day: date
        total: Decimal
        note: bytes | None = None

    kind = schema_of(at=TimestampType(), day=DateType(), total=DecimalType(9, 2), note=BinaryType())
    row = {"at": NOON, "day": date(2026, 1, 2), "total": Decimal("9.90"), "note": None}
    [data] = arrives(kind, [row])
    assert msgspec.convert(data, Order) == Order(NOON, date(2026, 1, 2), Decimal("9.90"))


def test_a_variant_that_is_decimal_or_a_date_is_what_its_json_says() -> None:
    assert arrives(VariantType(), [variant("12.50"), variant("1e3")]) == [12.5, 1000.0]


def test_names_of_fields_may_be_anything() -> None:
    kind = schema_of(**{"class": LongType(), "a b": LongType(), "ü": LongType(), "": LongType()})
    row = {"class": 1, "a b": 2, "ü": 3, "": 4}
    assert arrives(kind, [row]) == [row]


def test_large_types_of_arrow_are_read_as_well() -> None:
    column = pa.array([["a"], None], pa.large_list(pa.large_string()))
    read = payloads(ArrayType(StringType()), "value")
    assert [wire.decode(data) for data in read(column)] == [["a"], None]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(JSON)
def test_json_arrives_as_what_it_says(value: Any) -> None:
    text = msgspec.json.encode(value).decode()
    assert arrives(StringType(), [text], "json") == [msgspec.json.decode(text)]


def test_json_that_is_null_or_missing_is_nothing() -> None:
    assert arrives(StringType(), ["null", None, " 1 "], "json") == [None, None, 1]


@given(JSON)
def test_bytes_are_written_as_they_are(value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    assert packed(BinaryType(), [data, None], "binary") == [data, b"\xc0"]


def test_long_forms_of_msgpack_stay_long() -> None:
    long = b"\xdc\x00\x01\xcf" + bytes(8)
    assert packed(BinaryType(), [long], "binary") == [long]
