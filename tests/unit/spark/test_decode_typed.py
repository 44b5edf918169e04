"""Payloads by a schema of the caller's: what does not fit it makes its row malformed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    VariantVal,
)

from chasquimq.errors import ConfigError
from chasquimq.spark.decode.payload import form_of
from tests.bombs import colliding
from tests.unit.spark.stored import fault_of, pack, payload_of

NAN = float("nan")


def struct(*fields: tuple[str, DataType], null: bool = True) -> StructType:
    return StructType([StructField(name, kind, null) for name, kind in fields])


def field(value: Any, kind: DataType) -> Any:
    return payload_of(pack({"a": value}), struct(("a", kind)))["a"]


def fault(value: Any, kind: DataType) -> str:
    return fault_of(pack({"a": value}), struct(("a", kind)))


@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        (StringType(), "ä\0", "ä\0"),
        (StringType("UTF8_LCASE"), "A", "A"),
        (BinaryType(), b"\xff", b"\xff"),
        (BooleanType(), True, True),
        (ByteType(), -128, -128),
        (ShortType(), 32767, 32767),
        (IntegerType(), -(2**31), -(2**31)),
        (LongType(), 2**63 - 1, 2**63 - 1),
        (FloatType(), 0.5, 0.5),
        (FloatType(), float("-inf"), float("-inf")),
        (DoubleType(), 1e300, 1e300),
        (DoubleType(), 3, 3.0),
        (DoubleType(), -(2**53), -(2.0**53)),
        (FloatType(), 3, 3.0),
        (DecimalType(10, 2), "12.30", Decimal("12.30")),
        (DecimalType(10, 2), 12, Decimal("12.00")),
        (DecimalType(10, 2), 1.1, Decimal("1.10")),
        (DecimalType(10, 2), "-1E+3", Decimal("-1000.00")),
        (DecimalType(10, 2), "1.230000", Decimal("1.23")),
        (DecimalType(38, 0), "9" * 38, Decimal("9" * 38)),
        (DecimalType(38, 38), "0." + "9" * 38, Decimal("0." + "9" * 38)),
        (DateType(), "2026-11-16", date(2026, 11, 16)),
        (DateType(), "0001-01-01", date(1, 1, 1)),
        (
            TimestampType(),
            "2026-11-16T12:00:00.25+02:00",
            datetime(2026, 11, 16, 10, 0, 0, 250_000, tzinfo=UTC),
        ),
        (TimestampType(), "2026-11-16 12:00:00Z", datetime(2026, 11, 16, 12, tzinfo=UTC)),
        (TimestampNTZType(), "2026-11-16T12:00:00", datetime.fromisoformat("2026-11-16T12:00:00")),
        (ArrayType(LongType()), [1, None, 3], [1, None, 3]),
        (ArrayType(LongType()), [], []),
        (ArrayType(ArrayType(StringType())), [["a"], None, []], [["a"], None, []]),
        (MapType(StringType(), LongType()), {"x": 1, "y": None}, [("x", 1), ("y", None)]),
        (MapType(IntegerType(), StringType()), {7: "seven"}, [(7, "seven")]),
        (MapType(StringType(), LongType()), {}, []),
        (struct(("b", struct(("c", LongType())))), {"b": {"c": 5}}, {"b": {"c": 5}}),
        (
            ArrayType(struct(("b", LongType()), ("c", DecimalType(4, 1)))),
            [{"b": 1, "c": "2.5"}, None, {}],
            [{"b": 1, "c": Decimal("2.5")}, None, {"b": None, "c": None}],
        ),
    ],
)
def test_what_fits(kind: DataType, given: Any, found: Any) -> None:
    assert field(given, kind) == found
    assert field(None, kind) is None


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (StringType(), 1),
        (StringType(), b"a"),
        (StringType(), ["a"]),
        (BinaryType(), "aGk="),
        (BooleanType(), 1),
        (BooleanType(), "true"),
        (ByteType(), 128),
        (ShortType(), -32769),
        (IntegerType(), 2**31),
        (LongType(), 2**63),
        (LongType(), 1.5),
        (LongType(), 1.0),
        (LongType(), "1"),
        (LongType(), True),
        (LongType(), NAN),
        (FloatType(), 1e300),
        (FloatType(), -1e300),
        (DoubleType(), 2**53 + 1),
        (DoubleType(), "1.5"),
        (DoubleType(), False),
        (DecimalType(10, 2), "1.005"),
        (DecimalType(10, 2), "123456789"),
        (DecimalType(10, 2), "one"),
        (DecimalType(10, 2), "NaN"),
        (DecimalType(10, 2), "sNaN"),
        (DecimalType(10, 2), "Infinity"),
        (DecimalType(10, 2), NAN),
        (DecimalType(10, 2), True),
        (DecimalType(10, 2), b"1"),
        (DecimalType(10, 2), "1e999999999"),
        (DecimalType(10, 2), "1e-999999999"),  # Arrow would die of it
        (DecimalType(38, 0), "1" + "0" * 38),
        (DateType(), "16.11.2026"),
        (DateType(), "2026-11-16T00:00:00Z"),
        (DateType(), 20_000),
        (TimestampType(), "2026-11-16T12:00:00"),  # when is that?
        (TimestampType(), 1_700_000_000_000),
        (TimestampType(), "0001-01-01T00:00:00+14:00"),
        (TimestampType(), "9999-12-31T23:59:59-14:00"),
        (TimestampNTZType(), "2026-11-16T12:00:00Z"),
        (ArrayType(LongType()), {"0": 1}),
        (ArrayType(LongType()), [1, "2"]),
        (ArrayType(ByteType()), [1, 200]),
        (ArrayType(LongType(), containsNull=False), [1, None]),
        (MapType(StringType(), LongType()), [1]),
        (MapType(StringType(), LongType()), {1: 1}),
        (MapType(ByteType(), LongType()), {300: 1}),
        (MapType(LongType(), LongType()), {"1": 1}),
        (MapType(StringType(), LongType(), valueContainsNull=False), {"a": None}),
        (struct(("b", ShortType())), {"b": 70_000}),
        (struct(("b", ShortType())), [1]),
        (struct(("b", ShortType()), null=False), {}),
        (struct(("b", ShortType()), null=False), {"b": None}),
        (ArrayType(struct(("b", FloatType()))), [{"b": 1.0}, {"b": 1e300}]),
    ],
)
def test_what_does_not_fit_spoils_its_row_and_no_other(kind: DataType, given: Any) -> None:
    reason = fault(given, kind)
    assert reason.startswith("value: ")
    assert "$.a" in reason  # the place is told


@pytest.mark.parametrize("payload", [5, "text", [1], {1: 2}, {b"a": 1}, True])
def test_what_is_no_map_is_no_struct(payload: Any) -> None:
    assert fault_of(pack(payload), struct(("a", LongType())))


def test_a_payload_of_nil_is_null() -> None:
    assert payload_of(b"\xc0", struct(("a", LongType()))) is None


def test_missing_fields_are_null_and_others_are_left_out() -> None:
    kind = struct(("a", LongType()), ("b", StringType()))
    assert payload_of(pack({"a": 1, "c": [1, {"d": NAN}]}), kind) == {"a": 1, "b": None}
    assert payload_of(pack({}), kind) == {"a": None, "b": None}


def test_names_are_what_they_are() -> None:
    names = ("A", "a", "a b", "a.b", "1st", "class", "ä", "", "f0", "__init__", "$", "self")
    kind = struct(*((name, LongType()) for name in names))
    data = {name: at for at, name in enumerate(names)}
    assert payload_of(pack(data), kind) == data
    assert payload_of(pack({"ID": 1}), struct(("id", LongType()))) == {"id": None}


def test_a_variant_in_a_struct_holds_anything() -> None:
    kind = struct(("a", LongType()), ("rest", VariantType()), ("many", ArrayType(VariantType())))
    data = {"a": 1, "rest": {"x": [1, "two", None]}, "many": [1, {"b": NAN}, None]}
    found = payload_of(pack(data), kind)
    read = [VariantVal(**found["rest"])] + [one and VariantVal(**one) for one in found["many"]]
    assert read[0].toPython() == data["rest"]
    assert read[1].toPython() == 1
    assert read[3] is None
    assert payload_of(pack({}), kind) == {"a": None, "rest": None, "many": None}
    assert "rest" in fault_of(b"\x81\xa4rest\xd6\xff\x00\x00\x00\x01", kind)


def test_a_variant_in_a_struct_has_the_bounds_of_a_payload() -> None:
    """Arrays as keys are refused before a dict is built of them: keys can be made to collide."""
    kind = struct(("rest", VariantType()), ("many", ArrayType(VariantType())))
    for bomb in (colliding(20_000), b"\x81\x91\x01\x02", b"\x81\x90\x01"):
        assert "array as the key of a map" in fault_of(b"\x81\xa4rest" + bomb, kind)
        assert "array as the key of a map" in fault_of(b"\x81\xa4many\x91" + bomb, kind)
    assert "nested" in fault_of(b"\x81\xa4rest" + b"\x91" * 600 + b"\x90", kind)


def test_a_map_has_a_bounded_number_of_numbers_as_keys() -> None:
    kind = struct(("a", MapType(LongType(), LongType())), ("b", MapType(StringType(), LongType())))
    most = dict.fromkeys(range(4096), 1)
    texts = {str(number): 1 for number in range(20_000)}
    assert payload_of(pack({"a": most, "b": texts}), kind)["a"] == list(most.items())
    assert "4096" in fault_of(pack({"a": {**most, 4_096: 1}}), kind)


def test_fields_nobody_asks_for_are_not_looked_into() -> None:
    """But they must not be used against us either."""
    kind = struct(("a", LongType()))
    assert payload_of(b"\x82\xa1x\xd4\x05\x00\xa1a\x01", kind) == {"a": 1}
    assert fault_of(b"\x82\xa1x" + b"\x91" * 100_000 + b"\x01\xa1a\x01", kind)


@pytest.mark.parametrize(
    "kind",
    [
        NullType(),
        CharType(3),
        DayTimeIntervalType(),
        CalendarIntervalType(),
        StructType([]),
        MapType(DoubleType(), LongType()),
        MapType(struct(("b", LongType())), LongType()),
        ArrayType(NullType()),
        struct(("b", LongType()), ("b", LongType())),
        struct(('"', LongType())),
        struct(("\n", LongType())),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_types_that_no_payload_has_are_refused(kind: DataType) -> None:
    with pytest.raises(ConfigError, match=r"column payload: .*\$\.a"):
        form_of(struct(("a", kind)), "payload")


# -- any schema and any value that fits it ---------------------------------------------------------

aware = st.datetimes(
    datetime.fromisoformat("0001-01-02"),
    datetime.fromisoformat("9999-12-30"),
    timezones=st.integers(-12 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m))),
)
# (type, what is sent, what comes back)
atoms: dict[DataType, st.SearchStrategy[tuple[Any, Any]]] = {
    StringType(): st.text().map(lambda one: (one, one)),
    BinaryType(): st.binary().map(lambda one: (one, one)),
    BooleanType(): st.booleans().map(lambda one: (one, one)),
    ByteType(): st.integers(-128, 127).map(lambda one: (one, one)),
    LongType(): st.integers(-(2**63), 2**63 - 1).map(lambda one: (one, one)),
    FloatType(): st.floats(width=32, allow_nan=False).map(lambda one: (one, one)),
    DoubleType(): st.floats(allow_nan=False).map(lambda one: (one, one)),
    DecimalType(20, 4): st.decimals(-(10**15), 10**15, places=4).map(lambda one: (str(one), one)),
    DateType(): st.dates().map(lambda one: (one.isoformat(), one)),
    TimestampType(): aware.map(lambda one: (one.isoformat(), one.astimezone(UTC))),
    TimestampNTZType(): st.datetimes().map(lambda one: (one.isoformat(), one)),
}


def or_null(pairs: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.just((None, None)) | pairs


Typed = tuple[DataType, st.SearchStrategy[tuple[Any, Any]]]


def array_of(items: Typed) -> Typed:
    lists = st.lists(or_null(items[1]), max_size=4)
    return ArrayType(items[0]), lists.map(lambda many: ([a for a, _ in many], [b for _, b in many]))


def map_of(items: Typed) -> Typed:
    dicts = st.dictionaries(st.text(max_size=5), or_null(items[1]), max_size=4)
    return MapType(StringType(), items[0]), dicts.map(
        lambda many: (
            {key: a for key, (a, _) in many.items()},
            [(key, b) for key, (_, b) in many.items()],
        )
    )


def struct_of(fields: dict[str, Typed]) -> Typed:
    pairs = st.fixed_dictionaries({name: or_null(many) for name, (_, many) in fields.items()})
    return struct(*((name, kind) for name, (kind, _) in fields.items())), pairs.map(
        lambda found: (
            {name: a for name, (a, _) in found.items()},
            {name: b for name, (_, b) in found.items()},
        )
    )


names = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters='"\\'), max_size=5
)
typed: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from(list(atoms.items())),
    lambda inner: (
        inner.map(array_of)
        | inner.map(map_of)
        | st.dictionaries(names, inner, min_size=1, max_size=4).map(struct_of)
    ),
    max_leaves=6,
)


@given(st.data(), st.dictionaries(names, typed, min_size=1, max_size=4).map(struct_of))
def test_any_value_comes_back_as_it_was(data: st.DataObject, kind: Typed) -> None:
    sent, back = data.draw(kind[1])
    assert payload_of(pack(sent), kind[0]) == back
