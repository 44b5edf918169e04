"""What is refused when a write is planned, and what the refusal says."""

from __future__ import annotations

import pickle

import pytest
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
    TimeType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from chasquimq.errors import ConfigError
from chasquimq.spark.write.check import Layout, layout
from chasquimq.wire.scan import MAX_DEPTH
from tests.spark_redis.writing import schema_of, sink

BACKOFF = schema_of(kind=StringType(), delay_ms=LongType())
TWINS = StructType([StructField("a", LongType()), StructField("a", StringType())])


def plan(options: dict[str, str] | None = None, **columns: DataType) -> Layout:
    return layout(schema_of(**columns), sink(**(options or {})))


def deep(levels: int) -> DataType:
    kind: DataType = LongType()
    for _ in range(levels):
        kind = ArrayType(kind)
    return kind


def test_all_columns_are_found_wherever_they_are() -> None:
    found = plan(
        NAME=StringType(),
        max_attempts=ByteType(),
        Payload=LongType(),
        run_at=TimestampType(),
        id=StringType(),
        backoff=BACKOFF,
    )
    places = {"name": 0, "max_attempts": 1, "payload": 2, "run_at": 3, "id": 4, "backoff": 5}
    assert found.places == places
    assert found.names["payload"] == "Payload"
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    "kind",
    [
        *(NullType(), BooleanType(), ByteType(), ShortType(), IntegerType(), LongType()),
        *(FloatType(), DoubleType(), DecimalType(38, 10), StringType(), BinaryType(), DateType()),
        *(CharType(3), VarcharType(9), TimestampType(), TimestampNTZType(), TimeType(6)),
        *(VariantType(), ArrayType(VariantType()), StructType([]), deep(MAX_DEPTH)),
        MapType(IntegerType(), MapType(StringType(), ArrayType(BACKOFF))),
    ],
    ids=lambda kind: kind.simpleString()[:60],
)
def test_a_payload_may_be_of_any_type_that_has_a_form(kind: DataType) -> None:
    assert plan(payload=kind).types["payload"] == kind


REFUSED_PAYLOADS: list[tuple[DataType, str]] = [
    (DayTimeIntervalType(), "payload is interval day to second, which no job can hold; cast it"),
    (YearMonthIntervalType(), "payload is interval year to month"),
    (CalendarIntervalType(), "payload is interval"),
    (schema_of(a=ArrayType(DayTimeIntervalType())), r"payload\.a\[\] is interval"),
    (MapType(BACKOFF, LongType()), r"payload is a map whose keys are struct.*cast them to string"),
    (MapType(VariantType(), LongType()), "payload is a map whose keys are variant"),
    (MapType(StringType(), CalendarIntervalType()), r"payload\[\] is interval"),
    (schema_of(x=TWINS), r"payload\.x has two fields 'a', of which one would be lost"),
    (deep(MAX_DEPTH + 1), "is nested deeper than 512; flatten it"),
]


@pytest.mark.parametrize(("kind", "says"), REFUSED_PAYLOADS)
def test_a_payload_without_a_form_is_refused(kind: DataType, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan(payload=kind)


LONG, TEXT = LongType(), StringType()
REFUSED: list[tuple[dict[str, DataType], str]] = [
    ({"name": TEXT}, "there is no column 'payload'.*selectExpr"),
    ({"payload": LONG, "delay": LONG}, "column 'delay' is none that a job has.*'delay_ms'"),
    ({"payload": LONG, "order_no": LONG}, "column 'order_no' is none .* belongs into payload"),
    ({"payload": LONG, "name": LONG}, "column name is string, got bigint; cast it"),
    ({"payload": LONG, "id": DoubleType()}, "column id is string or a whole number, got double"),
    ({"payload": LONG, "delay_ms": DoubleType()}, "column delay_ms is a whole number, got double"),
    ({"payload": LONG, "run_at": LONG}, "column run_at is timestamp, got bigint"),
    ({"payload": LONG, "run_at": TimestampNTZType()}, r"no time zone: .*cast\(run_at AS TIMESTAMP"),
    (
        {"payload": LONG, "run_at": TimestampType(), "delay_ms": LONG},
        "delay_ms or run_at, not both",
    ),
    ({"payload": LONG, "max_attempts": TEXT}, "column max_attempts is a whole number, got string"),
    ({"payload": LONG, "backoff": TEXT}, "column backoff is a struct, got string"),
    (
        {"payload": LONG, "backoff": schema_of(kind=TEXT, delayms=LONG)},
        "column backoff has no field 'delayms'; did you mean 'delay_ms'",
    ),
    ({"payload": LONG, "backoff": schema_of(kind=TEXT)}, "backoff needs one field 'delay_ms'"),
    ({"payload": LONG, "backoff": schema_of(delay_ms=LONG)}, "backoff needs one field 'kind'"),
    (
        {"payload": LONG, "backoff": schema_of(kind=LONG, delay_ms=LONG)},
        "backoff.kind is string, got bigint",
    ),
    (
        {"payload": LONG, "backoff": schema_of(kind=TEXT, delay_ms=LONG, multiplier=TEXT)},
        "backoff.multiplier is a number, got string",
    ),
    ({"payload": LONG, "PAYLOAD": LONG}, "two columns 'payload' and 'PAYLOAD'; drop one"),
]


@pytest.mark.parametrize(("columns", "says"), REFUSED, ids=[row[1][:40] for row in REFUSED])
def test_columns_that_cannot_be_written_are_refused(
    columns: dict[str, DataType], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        plan(**columns)


def test_a_column_of_nulls_is_as_good_as_none() -> None:
    nothing = NullType()
    plan(payload=LONG, name=nothing, id=nothing, delay_ms=nothing, max_attempts=nothing)
    plan(payload=LONG, backoff=nothing, run_at=nothing)


def test_a_backoff_may_have_all_its_fields() -> None:
    plan(
        payload=LONG,
        backoff=schema_of(
            kind=TEXT,
            delay_ms=IntegerType(),
            max_delay_ms=LONG,
            multiplier=DecimalType(3, 1),
            jitter_ms=NullType(),
        ),
    )


def test_the_id_column_is_the_id() -> None:
    assert plan({"idColumn": "ORDER_no"}, payload=LONG, order_no=LONG).places["id"] == 1
    assert plan({"idColumn": "id"}, payload=LONG, id=TEXT).places["id"] == 1


ID_COLUMNS: list[tuple[str, dict[str, DataType], str]] = [
    ("key", {"payload": LONG, "name": TEXT}, "idColumn names 'key'; there are: payload, name"),
    ("key", {"payload": LONG, "key": TEXT, "id": TEXT}, "a column 'id' as well; drop it"),
    ("key", {"payload": LONG, "id": TEXT, "key": TEXT}, "a column 'id' as well; drop it"),
    ("key", {"payload": LONG, "key": NullType()}, "column id is string or a whole number"),
    ("key", {"payload": LONG, "key": DoubleType()}, "column id is string or a whole number"),
    ("payload", {"payload": TEXT}, "there is no column 'payload'"),
]


@pytest.mark.parametrize(("column", "columns", "says"), ID_COLUMNS)
def test_an_id_column_that_is_none_is_refused(
    column: str, columns: dict[str, DataType], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        plan({"idColumn": column}, **columns)


@pytest.mark.parametrize(
    ("form", "kind", "says"),
    [
        ("json", BinaryType(), "payloadFormat=json wants a string column, got binary"),
        ("json", BACKOFF, "payloadFormat=json wants a string column, got struct"),
        ("binary", TEXT, "payloadFormat=binary wants a binary column .* got string"),
    ],
)
def test_a_format_wants_its_type(form: str, kind: DataType, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan({"payloadFormat": form}, payload=kind)
