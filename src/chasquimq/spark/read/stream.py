"""`spark.readStream` on the events of queues: each exactly once, and a lost one is noticed.

    offset    {"<queue>": {"id": "17..-0", "n": 4711}, ...}

`n` is how many entries the stream had ever got when `id` was its last. Events leave a stream at
its head only, so `entries-added - length` is how many have gone, and what a batch should hold is
known to the entry: fewer means that some were trimmed before they could be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from chasquimq.errors import DataLossError
from chasquimq.spark.client import Client
from chasquimq.spark.decode import decoder
from chasquimq.spark.options import SourceOptions
from chasquimq.spark.place import read_place
from chasquimq.spark.read.part import Part
from chasquimq.spark.read.scan import entries
from chasquimq.wire import Keys
from chasquimq.wire.entry import pairs

Offset = dict[str, dict[str, Any]]


class Stream(NamedTuple):
    """What a stream tells of itself at one moment."""

    last: str
    first: str | None
    added: int
    length: int

    @property
    def tip(self) -> dict[str, Any]:
        return {"id": self.last, "n": self.added}

    @property
    def head(self) -> dict[str, Any]:
        """The place in front of the first entry that is still there."""
        if self.first is None:
            return self.tip
        return {"id": str(read_place(self.first).before), "n": self.added - self.length}


def look(client: Client, key: bytes) -> Stream:
    if client.ask("EXISTS", key) == 0:
        return Stream("0-0", None, 0, 0)
    told = dict(pairs(client.ask("XINFO", "STREAM", key)))
    first = told[b"first-entry"]
    return Stream(
        told[b"last-generated-id"].decode(),
        None if first is None else first[0].decode(),
        told[b"entries-added"],
        told[b"length"],
    )


class EventReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        self._client: Client | None = None
        self._target: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_client": None}

    def initialOffset(self) -> Offset:
        start = self._options.starting_offsets
        return {
            queue: stream.tip if start == "latest" else stream.head
            for queue, stream in self._streams().items()
        }

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.reportLatestOffset()

    def reportLatestOffset(self) -> Offset:
        return {queue: stream.tip for queue, stream in self._streams().items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        return self._target or self.reportLatestOffset()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        parts: list[InputPartition] = []
        for queue, stream in self._streams().items():
            after, upto = start[queue], end[queue]
            lost = max(0, min(stream.added - stream.length, upto["n"]) - after["n"])
            if lost and self._options.fail_on_data_loss:
                raise DataLossError(queue, lost, after["id"])
            expect = upto["n"] - after["n"] - lost
            if expect > 0:
                parts.append(Part(queue, after["id"], upto["id"], expect))
        return parts

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        decode = decoder(partition.queue, self._schema, self._options)
        got = 0
        with Client(self._options.where.address()) as client:
            key, size = Keys(partition.queue).events, self._options.fetch_size
            for page in entries(client, key, partition.after, partition.upto, size):
                got += len(page)
                yield decode.batch(page)
        if got < partition.expect and self._options.fail_on_data_loss:
            raise DataLossError(partition.queue, partition.expect - got, partition.after)

    def commit(self, end: Offset) -> None:
        """Nothing to do: events are nobody's, and leave by themselves."""

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()

    def _streams(self) -> dict[str, Stream]:
        if self._client is None:
            self._client = Client(self._options.where.address())
        return {queue: look(self._client, Keys(queue).events) for queue in self._options.queues}
