"""`df.write`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write.run import Run
from chasquimq.spark.write.way import way


class BatchWriter(DataSourceArrowWriter):
    """Made once per write, so that every attempt of every task knows the same run."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        write = uuid.uuid4().hex
        self._way = way(schema, options, Run(options.queue, options.run_id or write, write=write))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        return self._way.write(task.partitionId(), task.attemptNumber(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._way.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._way.abort(messages)
