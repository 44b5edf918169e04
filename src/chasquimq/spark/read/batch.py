"""`spark.read`: a queue as it is now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from chasquimq.spark.client import Client
from chasquimq.spark.decode import decoder
from chasquimq.spark.options import SourceOptions
from chasquimq.spark.read.part import Part
from chasquimq.spark.read.scan import entries
from chasquimq.wire import Keys


class BatchReader(DataSourceReader):
    """Made on the driver, pickled, and used on executors: it holds no connection."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options

    def partitions(self) -> list[InputPartition]:
        parts: list[InputPartition] = []
        with Client(self._options.where.address()) as client:
            for queue in self._options.queues:
                last = client.ask("XREVRANGE", self._key(queue), "+", "-", "COUNT", 1)
                if last:
                    parts.append(Part(queue, "0-0", last[0][0].decode()))
        # Without a partition Spark would call read(None).
        return parts or [Part(self._options.queues[0], "0-0", "0-0")]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        decode = decoder(partition.queue, self._schema, self._options)
        with Client(self._options.where.address()) as client:
            key = self._key(partition.queue)
            size = self._options.fetch_size
            for page in entries(client, key, partition.after, partition.upto, size):
                yield decode.batch(page)

    def _key(self, queue: str) -> bytes:
        keys = Keys(queue)
        return keys.events if self._options.view == "events" else keys.stream
