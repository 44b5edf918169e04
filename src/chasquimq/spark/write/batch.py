"""`df.write`."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from chasquimq.spark.client import Client
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write.direct import Direct
from chasquimq.spark.write.run import Run

log = logging.getLogger(__name__)


@dataclass
class Written(WriterCommitMessage):
    """What a task says of itself. Nothing is decided by it: Redis knows what is in."""

    partition: int
    attempt: int


class BatchWriter(DataSourceArrowWriter):
    """Made once per write, so that every attempt of every task knows the same run."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._options = options
        self._run = Run(options.queue, options.run_id or uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        Direct(self._options, self._run, task.partitionId()).write(iterator)
        return Written(task.partitionId(), task.attemptNumber())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with Client(self._options.where.address()) as client:
            client.ask("HSET", self._run.key, "state", "done")
            rows = client.ask("HGET", self._run.key, "rows") or b"0"
            client.ask("PEXPIRE", self._run.key, self._options.marker_ttl_ms)
        log.info("%d rows are in queue %s", int(rows), self._options.queue)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log.warning("the write %s into queue %s failed", self._run.run_id, self._options.queue)
