"""`df.writeStream`: each batch of a query is a run of its own, and is brought in once.

Spark numbers the batches of a query, and repeats one after a crash under its old number. So the run
is `<query id>-<batch id>`; which batch was the last that came in whole is remembered for ever, in
the same step that ends it, and older ones are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from chasquimq.errors import ConfigError, NotSupportedError
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write.run import Run, run_of_batch
from chasquimq.spark.write.way import Messages, Way, way

log = logging.getLogger("chasquimq.queue")

# Where Spark tells a task which query and which batch it works for. Nothing else does.
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
START = "spark.jobGroup.id"  # a query that is started again has another


@dataclass
class OfBatch(WriterCommitMessage):
    """What a task says, and of which batch: the driver hears of the query from nobody else."""

    run: Run
    told: WriterCommitMessage


class StreamWriter(DataSourceStreamArrowWriter):
    """Made anew by Spark for tasks and for each commit: it knows nothing but its options."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        if options.run_id is not None:
            raise ConfigError(
                "runId is of df.write; a stream's runs are its batches, so leave it out"
            )
        self._schema = schema
        self._options = options
        self._way(run_of_batch(options.queue, "", 0))  # what is wrong with either is said here

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        run = self._run_of(task)
        told = self._way(run).write(task.partitionId(), task.attemptNumber(), iterator)
        return OfBatch(run, told)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        run = _run_told(messages)
        if run is not None:
            self._way(run).commit(_told(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        run = _run_told(messages)
        if run is not None:
            self._way(run).abort(_told(messages))
        else:
            # A query that is stopped ends so, too; whoever starts it again repeats the batch.
            log.info("batch %d into queue %s did not end", batchId, self._options.queue)

    def _way(self, run: Run) -> Way:
        return way(self._schema, self._options, run, streaming=True)

    def _run_of(self, task: TaskContext) -> Run:
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        if not query or not batch or not batch.isdigit():
            raise NotSupportedError(
                f"this Spark does not tell its tasks {QUERY} and {BATCH} (got {query!r:.80} and "
                f"{batch!r:.80}), without which a batch that is repeated cannot be known again; "
                "write by foreachBatch and df.write with runId=<query id>-<batch id> instead"
            )
        start = task.getLocalProperty(START) or ""
        return run_of_batch(self._options.queue, query, int(batch), start)


def _run_told(messages: Messages) -> Run | None:
    """None: no task has ended, or the batch had none."""
    return next((one.run for one in messages if isinstance(one, OfBatch)), None)


def _told(messages: Messages) -> Messages:
    return [one.told if isinstance(one, OfBatch) else one for one in messages]
