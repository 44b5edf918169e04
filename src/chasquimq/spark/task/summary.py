"""Rows of outcomes in a few numbers: how runs ended, how long they took, what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OUTCOMES = ("completed", "retried", "buried", "lost", "given_back")
MOST = 50  # names, and kinds of errors, those with the most runs first


def summary(rows: DataFrame) -> dict[str, Any]:
    """For people and programs; times are in milliseconds."""
    counts = {row[0]: row[1] for row in rows.groupBy("outcome").count().collect()}
    return {
        "runs": sum(counts.values()),
        "outcomes": {outcome: counts.get(outcome, 0) for outcome in OUTCOMES},
        "names": [row.asDict() for row in _by_name(rows).collect()] if counts else [],
        "errors": [row.asDict() for row in _errors(rows).collect()] if counts else [],
    }


def _by_name(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    many = [f.count_if(f.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES]
    times = [
        (f.percentile_approx("duration_us", share) / 1000).alias(name)
        for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95))
    ]
    found = rows.groupBy("name").agg(f.count("*").alias("runs"), *many, *times)
    return found.orderBy(f.desc("runs"), "name").limit(MOST)


def _errors(rows: DataFrame) -> DataFrame:
    """Of each kind one, as an example."""
    from pyspark.sql import functions as f

    failed = rows.where("outcome IN ('retried', 'buried')")
    kind = f.coalesce("error_type", "reason").alias("error_type")
    example = f.min("error").alias("example")
    found = failed.groupBy("name", kind).agg(f.count("*").alias("runs"), example)
    return found.orderBy(f.desc("runs"), "name", "error_type").limit(MOST)
