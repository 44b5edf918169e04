"""`triage`: dead jobs by what they died of. A DataFrame of view dlq in, a row for each kind out.

A cluster is a reason, an exception's type and what its words have in common (`mask.py`). Its name
is a hash of these three: the same in every run and for every queue, and short enough to type.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType

from chasquimq.config import nearest
from chasquimq.errors import ConfigError
from chasquimq.spark.pipelines.mask import DEFAULT_PATTERN, Redaction, masked

TOP = 5  # names of a cluster that are told
HEX = 10  # digits of a cluster's name
NEEDED = ("queue", "entry_id", "failed_at", "id", "name", "reason", "detail", "error_type", "error")
SCHEMA = (
    "queue STRING, cluster STRING, reason STRING, error_type STRING, message STRING, "
    "jobs BIGINT, names ARRAY<STRING>, distinct_names BIGINT, first_seen TIMESTAMP, "
    "last_seen TIMESTAMP, example_id STRING, example_job STRING, example_error STRING, "
    "example_payload STRING"
)


def clustered(dead: DataFrame) -> DataFrame:
    """The same rows, with what they have in common (`message`) and the name of it (`cluster`)."""
    _check(dead, ("reason", "detail", "error_type", "error"))
    words = masked(F.coalesce(dead["error"], dead["detail"]))
    named = dead.withColumn("message", words)
    parts = [F.coalesce(named[name], F.lit("")) for name in ("reason", "error_type", "message")]
    digest = F.sha2(F.concat_ws("\u0000", *parts), 256)
    return named.withColumn("cluster", F.substring(digest, 1, HEX))


def triage(dead: DataFrame, *, redact: str = DEFAULT_PATTERN) -> DataFrame:
    """A row for each cluster of each queue, the largest first.

    `redact` is an expression, as Python's `re` has them: what it finds in names of keys is hidden
    in examples. Without the column `payload` there are no payloads in them.
    """
    Redaction(redact)  # says now what is wrong with it
    _check(dead, NEEDED)
    rows = clustered(dead)
    example = F.struct("entry_id", "id", "error", "detail", _payload(rows).alias("payload"))
    by = ["queue", "cluster", "reason", "error_type", "message"]
    # By name first: how many jobs have which is known before names are put into a list.
    by_name = rows.groupBy(*by, "name").agg(
        F.count(F.lit(1)).alias("jobs"),
        F.min("failed_at").alias("first_seen"),
        F.max("failed_at").alias("last_seen"),
        F.max_by(example, F.struct("failed_at", "entry_id")).alias("example"),
    )
    name = F.struct((-F.col("jobs")).alias("order"), F.coalesce("name", F.lit("")).alias("name"))
    names = F.transform(
        F.slice(F.array_sort(F.collect_list(name)), 1, TOP), lambda one: one["name"]
    )
    clusters = by_name.groupBy(*by).agg(
        F.sum("jobs").alias("jobs"),
        names.alias("names"),
        F.count(F.lit(1)).alias("distinct_names"),
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.max_by("example", F.struct("last_seen", "example.entry_id")).alias("example"),
    )
    told = clusters.select(
        *by, "jobs", "names", "distinct_names", "first_seen", "last_seen",
        F.col("example.entry_id").alias("example_id"),
        F.col("example.id").alias("example_job"),
        F.coalesce("example.error", "example.detail").alias("example_error"),
        F.col("example.payload").alias("example_payload"),
    )  # fmt: skip
    return _redacted(told, redact).orderBy(F.desc("jobs"), "queue", "cluster")


def _payload(rows: DataFrame) -> Column:
    """As JSON, whatever form it was read in. Bytes are not: they show nothing."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    kind = kinds.get("payload")
    if kind is None or isinstance(kind, BinaryType):
        return F.lit(None).cast("string")
    return rows["payload"] if isinstance(kind, StringType) else F.to_json(rows["payload"])


def _redacted(told: DataFrame, pattern: str) -> DataFrame:
    """Without its secrets. One row for each cluster comes here, so it may be Python."""

    def hide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        redaction = Redaction(pattern)
        ways = {
            "message": redaction.text,
            "example_error": redaction.text,
            "example_payload": redaction.payload,
        }
        for batch in batches:
            columns = [
                pa.array([*map(ways[field.name], column.to_pylist())], field.type)
                if field.name in ways
                else column
                for field, column in zip(batch.schema, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    return told.mapInArrow(hide, SCHEMA)


def _check(dead: DataFrame, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in dead.columns:
            hint = nearest(name, dead.columns) if dead.columns else "it has none"
            raise ConfigError(
                f"the DataFrame has no column {name}, which rows of view dlq have; {hint}"
            )
