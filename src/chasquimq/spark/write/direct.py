"""commitMode=direct: tasks write into the queue, chunk by chunk, each chunk once.

1. what an earlier attempt brought in is compared, by its digest, and not sent: rows are cut where
   that attempt cut them, which may have been told to send other chunks, or lost its input half-way
   and taken that for the end;
2. the rest is sent in order: one script adds a chunk and marks it, so that no attempt, however late
   and however many there are, adds it again;
3. at the end nothing may be marked that this attempt has not seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from chasquimq import lua
from chasquimq.errors import InputChangedError
from chasquimq.spark.client import Client
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write import close, ready
from chasquimq.spark.write import run as runs
from chasquimq.spark.write.check import layout
from chasquimq.spark.write.chunk import DIGEST_BYTES, Chunk, chunks, most_rows, rate, sizes
from chasquimq.spark.write.rows import Scribe
from chasquimq.spark.write.run import Run
from chasquimq.spark.write.send import Sender
from chasquimq.spark.write.way import Messages, Written
from chasquimq.wire import Keys

SCRIPTS = (*runs.SCRIPTS, *ready.SCRIPTS, "spark_add")


class Direct:
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
            needed = ready.needed(self._layout, options) | ready.DIRECT
            ready.make_ready(client, options.queue, needed)
            begun = runs.begin(client, run, "direct", partition, options.marker_ttl_ms)
            if begun.state == runs.DONE:
                return Written(partition, attempt)
            scribe = Scribe(self._layout, options, run.run_id, partition, begun.created_ms)
            sender = Sender(client, options, run, partition, lambda one: self._call(partition, one))
            number = 0
            rows, known = scribe.rows(batches), sizes(begun.marker)
            for chunk in chunks(rows, most_rows(options), options.chunk_bytes, known=known):
                number = chunk.number + 1
                digest = begun.marker[chunk.number * DIGEST_BYTES : number * DIGEST_BYTES]
                if not digest:
                    sender.send(chunk)
                elif digest != chunk.digest:
                    raise InputChangedError(partition, chunk.number)
            sender.finish()
            if client.ask("STRLEN", run.marker(partition)) > number * DIGEST_BYTES:
                raise InputChangedError(partition, number)
            return Written(partition, attempt, scribe.count)

    def _call(self, partition: int, chunk: Chunk) -> tuple[lua.Arg, ...]:
        options, run = self._options, self._run
        keys = (Keys(options.queue).stream, run.key, run.marker(partition))
        args: list[lua.Arg] = [chunk.number, chunk.digest, options.marker_ttl_ms]
        args += (options.max_stream_len, options.events_max_stream_len, chunk.width)
        return lua.call("spark_add", keys, [*args, rate(options), *chunk.args])

    def commit(self, messages: Messages) -> None:
        close.commit(self._options, self._run, messages)

    def abort(self, messages: Messages) -> None:
        close.abort(self._options, self._run)
