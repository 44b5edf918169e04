"""idColumn: each row is known by an id that its data gives, and comes in once.

One script looks for a marker of each id, adds those rows that have none, and marks them. So rows
may come in any order, in any partitions and in any number of runs while their markers live; of rows
with one id the first wins. The run counts the chunks of each attempt: a server that has counted
less than was answered took over from one that was lost, with rows that were in.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from chasquimq import lua
from chasquimq.spark.client import Client
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write import close, ready
from chasquimq.spark.write import run as runs
from chasquimq.spark.write.check import layout
from chasquimq.spark.write.chunk import Chunk, chunks, most_rows, rate
from chasquimq.spark.write.rows import Scribe
from chasquimq.spark.write.run import Run
from chasquimq.spark.write.send import Sender
from chasquimq.spark.write.way import Messages, Written
from chasquimq.wire import Keys

SCRIPTS = (*runs.SCRIPTS, *ready.SCRIPTS, "spark_add_ids")


class ById:
    """The way."""

    def __init__(self, schema: StructType, options: SinkOptions, run: Run) -> None:
        self._layout = layout(schema, options)
        self._options = options
        self._run = run

    def write(
        self, partition: int, attempt: int, batches: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        options, run = self._options, self._run
        with Client(options.where.address_of(options.queue), SCRIPTS) as client:
            needed = ready.needed(self._layout, options) | ready.BY_ID
            ready.make_ready(client, options.queue, needed)
            begun = runs.begin(client, run, "id", partition, options.marker_ttl_ms)
            if begun.state == runs.DONE:
                return Written(partition, attempt)
            scribe = Scribe(self._layout, options, run.run_id, partition, begun.created_ms)
            field = f"chunks:{partition}:{attempt}-{uuid.uuid4().hex[:12]}"
            sender = Sender(client, options, run, partition, lambda one: self._call(field, one))
            rows = scribe.rows(batches)
            for chunk in chunks(rows, most_rows(options), options.chunk_bytes, wide=True):
                sender.send(chunk)
            sender.finish()
            return Written(partition, attempt, scribe.count, (field, sender.counted))

    def _call(self, field: str, chunk: Chunk) -> tuple[lua.Arg, ...]:
        options = self._options
        keys = (Keys(options.queue).stream, self._run.key)
        args: list[lua.Arg] = [options.marker_ttl_ms, options.max_stream_len]
        args += (options.events_max_stream_len, rate(options), field)
        return lua.call("spark_add_ids", keys, [*args, *chunk.args])

    def commit(self, messages: Messages) -> None:
        close.commit_ids(self._options, self._run, messages)

    def abort(self, messages: Messages) -> None:
        close.abort(self._options, self._run)
