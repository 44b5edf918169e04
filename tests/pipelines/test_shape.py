"""`pipelines.enqueue`: what becomes of columns and values, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from chasquimq.errors import ChasquiError
from chasquimq.job import BackoffSpec
from chasquimq.spark.pipelines import enqueue as shaped


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT 7 AS id, 'mail' AS Kind, '250' AS wait, 'x' AS `a.b`")


def test_rows_become_jobs(rows: DataFrame) -> None:
    made = shaped(
        rows,
        name_column="kind",
        id_column="id",
        delay_column="wait",
        max_attempts=3,
        backoff=BackoffSpec.fixed(500),
    )
    [row] = made.collect()
    assert made.columns == ["payload", "name", "id", "delay_ms", "max_attempts", "backoff"]
    assert row.payload.asDict() == {"a.b": "x"}
    assert (row.name, row.id, row.delay_ms, row.max_attempts) == ("mail", 7, 250, 3)
    assert row.backoff.asDict() == {"kind": "fixed", "delay_ms": 500}
    moment = datetime(2026, 12, 24, 18, tzinfo=UTC)
    [row] = shaped(rows, payload="a.b", name="Kind", run_at=moment).collect()
    assert (row.payload, row.name) == ("x", "Kind")  # a value, not the column
    assert row.run_at.astimezone(UTC) == moment


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name_column": "kin"}, "there is no column 'kin'; did you mean 'Kind'"),
        ({"payload": ["id", "wiat"]}, "there is no column 'wiat'; did you mean 'wait'"),
        ({"name": "x", "name_column": "kind"}, "give name or name_column, not both"),
        ({"delay_ms": 5, "run_at": datetime.now(UTC)}, "give delay_ms or run_at, not both"),
        ({"delay_column": "id", "run_at_column": "id"}, "delay_column or run_at_column, not both"),
        ({"run_at": datetime(2026, 1, 1)}, "run_at is a datetime with a time zone"),  # noqa: DTZ001
        ({"delay_ms": -1}, "delay_ms must be from 0"),
        ({"max_attempts": 0}, "max_attempts must be from 1"),
        ({"name": "n" * 300}, "job name is 300 bytes"),
        ({"backoff": 5}, "backoff is a BackoffSpec"),
        ({"payload": []}, "no column is left for the payload"),
        ({"id_column": 3}, "a column is given by its name, got 3"),
    ],
)
def test_what_no_job_can_be_made_of(rows: DataFrame, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ChasquiError, match=says):
        shaped(rows, **given)


def test_two_columns_of_one_name_are_not_guessed_between(spark: SparkSession) -> None:
    twice = spark.sql("SELECT 1 AS a, 2 AS a")
    with pytest.raises(ChasquiError, match="there are 2 columns 'a'; rename one"):
        shaped(twice, payload="a")
