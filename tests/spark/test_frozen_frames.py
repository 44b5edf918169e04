"""Plan: "Spark columns": those of what the functions on events and dead jobs make.

Spark works out the columns without running anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from chasquimq.job import BackoffSpec
from chasquimq.spark import pipelines
from chasquimq.spark.lake.table import schema_of
from chasquimq.spark.task.ledger import SCHEMA
from chasquimq.spark.task.summary import summary
from tests.frozen.lists import compare

DAY = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))


def test_the_columns_are_what_they_were(spark: SparkSession) -> None:
    compare("spark_frames", lines(spark))


def lines(spark: SparkSession) -> Iterator[str]:
    for name, frame in frames(spark).items():
        for place, field in enumerate(frame.schema.fields, 1):
            yield f"{name} {place:02} {field.name} {field.dataType.simpleString()}"
    told = summary(spark.createDataFrame([], SCHEMA))
    yield f"summary of a SparkWorker's runs: {', '.join(told)}"
    yield f"summary of a SparkWorker's runs: outcomes {', '.join(told['outcomes'])}"


def frames(spark: SparkSession) -> dict[str, DataFrame]:
    events = spark.createDataFrame([], schema_of("events")).drop("batch")
    dead = spark.createDataFrame([], schema_of("dlq")).drop("batch")
    rows = spark.createDataFrame([], "user INT, kind STRING, later TIMESTAMP, times BIGINT")
    made = {
        "clustered": pipelines.clustered(dead),
        "compare": pipelines.compare(events, DAY, (DAY[1], DAY[1] + timedelta(days=1))),
        "depth": pipelines.depth(events),
        "enqueue": pipelines.enqueue(
            rows,
            name_column="kind",
            id_column="user",
            run_at_column="later",
            max_attempts_column="times",
            payload=["user"],
            backoff=BackoffSpec.fixed(1_000),
        ),
        "enqueue with a delay": pipelines.enqueue(rows, name="mail", delay_ms=1_000),
        "heat": pipelines.heat(events),
        "lake": pipelines.lake(events.drop("at", "date")),
        "lifecycle": pipelines.lifecycle(events),
        "names": pipelines.names(events),
        "names of a queue": pipelines.names(events, by=("queue",)),
        "punctuality": pipelines.punctuality(events),
        "rollup": pipelines.rollup(events),
        "runs": pipelines.runs(events),
        "triage": pipelines.triage(dead),
    }
    not_frames = {"purge", "replay", "report"}  # what they answer is in tests/frozen
    assert {name.partition(" ")[0] for name in made} == {*pipelines.__all__} - not_frames
    return made
