"""Plan: "Spark columns": the views of the source, the columns of the sink, the lake and outcomes.

The columns of what functions make of events and dead jobs are asked of a JVM:
tests/spark/test_frozen_frames.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from chasquimq.errors import ChasquiError
from chasquimq.spark.act.task import DONE, GONE, OUTCOMES_DDL, TAKEN, UNREADABLE, WOULD
from chasquimq.spark.lake.layout import TABLES
from chasquimq.spark.lake.table import schema_of as lake_schema
from chasquimq.spark.options import PayloadFormat, View, source_options
from chasquimq.spark.report.data import KEYS
from chasquimq.spark.schema import schema_of
from chasquimq.spark.source import ChasquiSource
from chasquimq.spark.task.ledger import SCHEMA
from chasquimq.spark.task.summary import OUTCOMES
from chasquimq.spark.write.check import COLUMNS

TEXT = StringType()
KINDS: tuple[DataType, ...] = (
    *(BooleanType(), IntegerType(), LongType(), DoubleType(), DecimalType(10, 2), TEXT),
    *(BinaryType(), DateType(), TimestampType(), TimestampNTZType(), VariantType()),
    *(ArrayType(TEXT), MapType(TEXT, TEXT), StructType([StructField("any", TEXT)])),
    StructType([StructField("kind", TEXT), StructField("delay_ms", LongType())]),
    StructType(
        [
            StructField("kind", TEXT),
            *(StructField(name, LongType()) for name in ("delay_ms", "max_delay_ms")),
            StructField("multiplier", DoubleType()),
            StructField("jitter_ms", LongType()),
        ]
    ),
)


def lines() -> Iterator[str]:
    yield from _views()
    yield from _sink()
    for table in TABLES:
        yield from _numbered(f"lake {table}", lake_schema(table))
    yield from _numbered("runs of a SparkWorker", SCHEMA)
    yield f"runs of a SparkWorker: outcomes {', '.join(OUTCOMES)}"
    yield f"outcomes of replay and purge: {OUTCOMES_DDL}"
    words = (*DONE.values(), *WOULD.values(), GONE, TAKEN, UNREADABLE)
    yield f"outcomes of replay and purge: {', '.join(words)}"
    for table, keys in KEYS.items():
        yield f"rows of a report, {table}: {', '.join(keys)}"


def _numbered(what: str, schema: StructType) -> Iterator[str]:
    """With its place: files and `SELECT *` keep the order."""
    for place, field in enumerate(schema.fields, 1):
        nullable = "" if field.nullable else " NOT NULL"
        yield f"{what} {place:02} {field.name} {field.dataType.simpleString()}{nullable}"


def _views() -> Iterator[str]:
    """As a reader without a schema of its own gets them; the last column by the mode alone."""
    for view in get_args(View):
        columns = schema_of(source_options({"queue": "mail", "view": view})).split(", `")
        for place, column in enumerate(columns, 1):
            yield f"view {view} {place:02} {column.replace('`', '')}"
        strict = schema_of(source_options({"queue": "mail", "view": view, "mode": "FAILFAST"}))
        yield f"view {view} with mode=FAILFAST: {len(strict.split(', `'))} columns"
    for form in get_args(PayloadFormat):
        more = {"payloadSchema": "order_id BIGINT"} if form == "struct" else {}
        options = source_options({"queue": "mail", "payloadFormat": form, **more})
        [payload] = [one for one in schema_of(options).split(", `") if one.startswith("payload`")]
        yield f"view jobs with payloadFormat={form}: {payload.replace('`', '')}"


def _sink() -> Iterator[str]:
    """Of what types a column may be is tried: a writer is made, which asks no server."""
    for name in COLUMNS:
        taken = [kind.simpleString() for kind in KINDS if _takes(name, kind)]
        yield f"sink {name}: {', '.join(taken)}"


def _takes(name: str, kind: DataType) -> bool:
    fields = [StructField("payload", TEXT)] if name != "payload" else []
    schema = StructType([*fields, StructField(name, kind)])
    try:
        ChasquiSource({"queue": "mail"}).writer(schema, overwrite=False)
    except ChasquiError:
        return False
    return True
