"""What a streaming sink refuses before it writes, and which run a task works for."""

from __future__ import annotations

import pickle

import pytest
from pyspark import TaskContext
from pyspark.sql.types import LongType, StructType

from chasquimq.errors import ConfigError, NotSupportedError
from chasquimq.spark.source import ChasquiSource
from chasquimq.spark.write.run import Run, run_of_batch
from chasquimq.spark.write.stream import BATCH, QUERY, START, OfBatch, StreamWriter
from chasquimq.spark.write.way import Written

SCHEMA = StructType().add("payload", LongType())
QUERY_ID = "4a105063-de1b-4672-baf0-f21429b4f928"


def writer(**options: str) -> StreamWriter:
    given = {"queue": "mail", "checkpointLocation": "/tmp/x", "queryName": "q", **options}
    made = ChasquiSource(given).streamWriter(SCHEMA, overwrite=False)
    assert isinstance(made, StreamWriter)
    return made


def task(**properties: str) -> TaskContext:
    made: TaskContext = object.__new__(TaskContext)  # calling it would make it that of the process
    made._localProperties = properties
    return made


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="outputMode"):
        ChasquiSource({"queue": "mail"}).streamWriter(SCHEMA, overwrite=True)
    with pytest.raises(ConfigError, match="runId"):
        writer(runId="mine")
    with pytest.raises(ConfigError, match="payload"):
        ChasquiSource({"queue": "mail"}).streamWriter(StructType().add("x", LongType()), False)


def test_a_batch_is_a_run() -> None:
    run = writer()._run_of(task(**{QUERY: QUERY_ID, BATCH: "12"}))
    assert run == Run("mail", f"{QUERY_ID}-12", QUERY_ID, 12) == run_of_batch("mail", QUERY_ID, 12)


def test_a_query_that_is_started_again_writes_its_batch_anew() -> None:
    told = {QUERY: QUERY_ID, BATCH: "12", START: "of-this-start"}
    assert writer()._run_of(task(**told)) == run_of_batch("mail", QUERY_ID, 12, "of-this-start")


@pytest.mark.parametrize(
    "properties", [{}, {QUERY: QUERY_ID}, {BATCH: "1"}, {QUERY: QUERY_ID, BATCH: "one"}]
)
def test_a_spark_that_does_not_tell_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(NotSupportedError, match="foreachBatch"):
        writer()._run_of(task(**properties))


def test_messages_and_writers_travel() -> None:
    message = OfBatch(run_of_batch("mail", QUERY_ID, 1), Written(0, 0))
    assert pickle.loads(pickle.dumps(message)) == message
    assert isinstance(pickle.loads(pickle.dumps(writer())), StreamWriter)


def test_a_batch_of_which_nothing_is_known_ends_quietly() -> None:
    """No task has said of which query it is: there is nothing to commit, and nothing to ask."""
    writer(url="redis://127.0.0.1:1").commit([], 3)
    writer(url="redis://127.0.0.1:1").abort([None, None], 3)
