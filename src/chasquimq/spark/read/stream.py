"""`spark.readStream`: events, each exactly once and a lost one noticed; dead jobs, best effort.

1. `latestOffset` says how far the next batch goes;
2. Spark writes that offset down;
3. `partitions` cuts the batch, and `read` reads it, on executors. A batch whose offset is written
   down may be read again, after a crash and much later: what it must hold is known from its two
   offsets, so both notice what has gone since.

Nothing is taken from the streams, and nothing is written: events leave by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from chasquimq.errors import ConfigError
from chasquimq.spark.client import Client
from chasquimq.spark.decode import decoder
from chasquimq.spark.options import SourceOptions
from chasquimq.spark.read.collector import seldom
from chasquimq.spark.read.follow import Follow, report
from chasquimq.spark.read.mark import Offset, Span, read_spans, share
from chasquimq.spark.read.part import Part
from chasquimq.spark.read.scan import entries
from chasquimq.spark.read.walk import Stream
from chasquimq.wire import Keys


def check_streaming(options: SourceOptions) -> None:
    """What a stream cannot do is refused, not ignored."""
    if options.view not in ("events", "dlq"):
        raise ConfigError(
            f"view {options.view} cannot be streamed, events and dlq can: stream view events, "
            f"which tells what becomes of every job, or read view {options.view} by spark.read"
        )
    if options.ending_offsets != "latest" or options.ending_timestamp is not None:
        raise ConfigError(
            "endingOffsets and endingTimestamp are for spark.read; a stream that shall end with "
            "what is there now is started with .trigger(availableNow=True)"
        )
    if options.pushdown:
        raise ConfigError("pushdown is for spark.read; leave it out, and Spark filters the rows")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives on the driver as long as the query; others read, and hold no connection."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        check_streaming(options)
        self._schema = schema
        self._options = options
        self._following: Follow | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_following": None}

    # -- on the driver ---------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Nothing of any queue. Spark asks anew when it runs the first batch again, so where that
        begins is told by the offset where it ends: see read/mark.py."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._follow.aim()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        return self._follow.offset(start, getattr(limit, "max_rows", None))

    def reportLatestOffset(self) -> Offset:
        """Spark asks right behind `latestOffset`, for the progress: the lag is a subtraction."""
        return self._follow.tips()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        follow = self._follow
        spans = read_spans(start, end, follow.counted)
        streams = follow.look(spans)
        sizes = {queue: self._rows(queue, streams[queue], spans[queue]) for queue in spans}
        sizes = {queue: rows for queue, rows in sizes.items() if rows > 0}
        wanted = max(self._options.min_partitions or 0, len(sizes))
        shares = share(wanted, sizes) if wanted > len(sizes) else dict.fromkeys(sizes, 1)
        return [
            part
            for queue, rows in sizes.items()
            for part in self._cut(queue, spans[queue], rows, shares[queue])
        ]

    def _rows(self, queue: str, stream: Stream, span: Span) -> int:
        """How many a batch must find; of dead jobs, if nobody has to count: some."""
        follow, (begin, end, _) = self._follow, span
        if not (follow.counted or self._options.min_partitions):
            return int(end.place > begin.place)
        rows, gone = end.n - begin.n, max(0, stream.gone(begin))
        # What left at the head is a subtraction, unless others left as well.
        if follow.counted and not (gone and stream.deleted > stream.first):
            there = max(0, rows - gone)
        else:
            there = follow.walk(queue, begin, end.place).rows
        if follow.counted and there < rows:
            report(self._options, queue, rows - there, begin.place)
        return there

    def _cut(self, queue: str, span: Span, rows: int, parts: int) -> Iterator[Part]:
        """Each part knows what it must hold; the last one, whatever else the batch must."""
        follow, (mark, end, _) = self._follow, span
        for left in range(parts, 1, -1):
            walked = follow.walk(queue, mark, end.place, -(-rows // left))
            if walked.over:
                break
            yield self._part(queue, span._replace(begin=mark, end=walked.mark), walked.rows)
            mark, rows = walked.mark, rows - walked.rows
        yield self._part(queue, span._replace(begin=mark), rows)

    def _part(self, queue: str, span: Span, rows: int) -> Part:
        expect = rows if self._follow.counted else None
        return Part(queue, str(span.begin.place), str(span.end.place), expect)

    def commit(self, end: Offset) -> None:
        """Nothing to do: what was read stays where it is."""

    def stop(self) -> None:
        if self._following is not None:
            self._following.clients.close()

    @property
    def _follow(self) -> Follow:
        if self._following is None:
            self._following = Follow(self._options)
        return self._following

    # -- on executors ----------------------------------------------------------------------------

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        queue, after = partition.queue, partition.after
        decode = decoder(queue, self._schema, self._options)
        keys, got = Keys(queue), 0
        key = keys.events if self._options.view == "events" else keys.dlq
        with seldom(), Client(self._options.where.address_of(queue)) as client:
            for page in entries(client, key, after, partition.upto, self._options.fetch_size):
                got += len(page)
                yield decode.batch(page)
        if partition.expect is not None and got < partition.expect:
            report(self._options, queue, partition.expect - got, after)
