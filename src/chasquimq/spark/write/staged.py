"""commitMode=staged: tasks write aside, and the driver brings it all in when each has ended.

1. an attempt stages its rows under a name that nobody else has, chunk by chunk;
2. the driver writes the manifest: which attempts count. Up to here nothing is to be seen, and what
   is left lying expires. From here on the rows are promised, and nothing of them expires;
3. the driver moves them, chunk by chunk. If it dies, whoever runs the same run again finds the
   manifest and goes on with it, as `chasqui spark recover` does.

So other rows, another order, other partitions in a second attempt change nothing: of each partition
one attempt counts, and of each run one manifest.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from chasquimq import lua
from chasquimq.errors import ChasquiError, StoreError
from chasquimq.spark.client import Client
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write import move, ready
from chasquimq.spark.write import run as runs
from chasquimq.spark.write.check import layout
from chasquimq.spark.write.chunk import Chunk, chunks, most_rows, rate
from chasquimq.spark.write.rows import Scribe
from chasquimq.spark.write.run import Run
from chasquimq.spark.write.way import Messages
from chasquimq.wire.fault import as_error

log = logging.getLogger("chasquimq.queue")

SCRIPTS = (*move.SCRIPTS, *ready.SCRIPTS, "spark_stage", "spark_commit")
# What our scripts run after their first write, beside what all writes need (see ready.py).
MOVES = {"SADD": 1, "HSET": 2, "PERSIST": 0, "RPUSH": 1, "XTRIM": 3, "DEL": 0, "UNLINK": 0}
MOVES |= {"SPOP": 1, "SCARD": 0, "SET": 1}
IN_FLIGHT = 8  # chunks on their way while the next are encoded
ABORT_S = 5.0  # a write that failed is not worth more patience
STAGED, KNOWN, LATE, GONE = 1, 0, -1, -2
WRITTEN, THERE, NO_RUN, CHANGED = 1, 0, -1, -2


@dataclass
class Stage(WriterCommitMessage):
    """What an attempt has staged. `state`: the run's; unless it is open, the rows do not count."""

    partition: int
    attempt: int
    state: str
    key: bytes = b""
    rows: int = 0


class Staged:
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
            self._make_ready(client)
            begun = runs.begin(client, run, "staged", partition, options.marker_ttl_ms)
            if begun.state != runs.OPEN:
                return Stage(partition, attempt, begun.state)
            # A driver that runs this again counts its attempts from the beginning, too.
            key = run.stage(partition, f"{attempt}-{uuid.uuid4().hex[:12]}")
            scribe = Scribe(self._layout, options, run.run_id, partition, begun.created_ms)
            writer = _StageWriter(client, run, key, options.marker_ttl_ms)
            # What is a chunk in the stage is moved in one go, so it must fit into the queue.
            most = most_rows(options)
            for chunk in chunks(scribe.rows(batches), most, options.chunk_bytes):
                if not writer.write(chunk):
                    break
            in_time = writer.settle()
            state = runs.OPEN if in_time else runs.MOVING
            return Stage(partition, attempt, state, key, writer.rows)

    def commit(self, messages: Messages) -> None:
        options, run = self._options, self._run
        stages = [self._checked(message) for message in messages]
        if stages and all(stage.state == runs.DONE for stage in stages):
            log.warning("run %s is in queue %s already: nothing was added", run.run_id, run.queue)
            return
        with Client(options.where.address_of(options.queue), SCRIPTS) as client:
            self._make_ready(client)
            if all(stage.state == runs.OPEN for stage in stages):
                self._promise(client, stages)
            # else an earlier driver got as far as its manifest, which is the one that counts.
            wait_ms = options.wait_timeout_ms if options.on_full == "wait" else 0
            events_len = options.events_max_stream_len
            pace = move.Pace(options.max_stream_len, wait_ms, events_len, rate(options))
            rows = move.complete(client, run, pace, options.marker_ttl_ms)
        log.info("%d rows are in queue %s", rows, options.queue)

    def abort(self, messages: Messages) -> None:
        run = self._run
        try:
            with Client(
                self._options.where.address_of(run.queue), SCRIPTS, patience_s=ABORT_S
            ) as client:
                # First: a task that begins behind this stages nothing that nobody would drop.
                runs.remember_abort(client, run, self._options.marker_ttl_ms)
                is_gone = move.drop(client, run)
        except ChasquiError as error:
            log.warning("what run %s has staged is left to expire: %s", run.run_id, error)
            return
        if is_gone:
            log.warning("run %s into queue %s failed: nothing came in", run.run_id, run.queue)
        else:
            log.warning(
                "run %s into queue %s has a manifest, which stays: run it again, or "
                "chasqui spark recover %s %s",
                *(run.run_id, run.queue, run.queue, run.run_id),
            )

    def _make_ready(self, client: Client) -> None:
        ready.make_ready(client, self._run.queue, ready.needed(self._layout, self._options) | MOVES)

    def _checked(self, message: WriterCommitMessage | None) -> Stage:
        if not isinstance(message, Stage):
            raise StoreError(
                f"a task of run {self._run.run_id} has not said what it staged; nothing came in"
            )
        return message

    def _promise(self, client: Client, stages: list[Stage]) -> None:
        """Write the manifest, unless an earlier driver has."""
        options, run = self._options, self._run
        counted = {stage.partition: stage for stage in stages if stage.rows}
        winners = [counted[partition] for partition in sorted(counted)]
        keys = [run.key, run.manifest, *(stage.key for stage in winners)]
        args: list[lua.Arg] = [options.max_stream_len, options.events_max_stream_len]
        args += (options.marker_ttl_ms, rate(options))
        args += (stage.rows for stage in winners)
        answer, which = client.run("spark_commit", keys, args)
        if answer == CHANGED:
            raise StoreError(
                f"what partition {winners[which - 1].partition} of run {run.run_id} has staged is "
                "gone: it expired (raise markerTtlMs, which must outlast the write), was evicted, "
                "or deleted. Nothing came in; write it again"
            )
        if answer == NO_RUN and stages:
            raise StoreError(
                f"run {run.run_id} of queue {run.queue!r} was aborted meanwhile, or expired (raise "
                "markerTtlMs, which must outlast the write). Nothing came in; write it again"
            )
        if answer == THERE:
            log.warning("run %s had a manifest: it counts, our rows do not", run.run_id)


class _StageWriter:
    """Writes one stage, several chunks on their way at once."""

    def __init__(self, client: Client, run: Run, key: bytes, ttl_ms: int) -> None:
        self._client = client
        self._run = run
        self._keys = [run.key, run.stages, key]
        self._ttl_ms = ttl_ms
        self._in_time = True
        self._sent: deque[Chunk] = deque()
        self.rows = 0

    def write(self, chunk: Chunk) -> bool:
        """False: it is too late, the run has its rows."""
        args: list[lua.Arg] = [chunk.number + 1, self.rows, self._ttl_ms, chunk.width]
        args += chunk.args
        self._client.post(*lua.call("spark_stage", self._keys, args))
        self.rows += chunk.rows
        return self.settle(IN_FLIGHT)

    def settle(self, until: int = 0) -> bool:
        for reply in self._client.collect(until):
            if isinstance(reply, Exception):
                raise as_error(reply, "staging rows")
            if reply == GONE:
                raise StoreError(
                    f"run {self._run.run_id} of queue {self._run.queue!r} was aborted meanwhile, "
                    "or expired (raise markerTtlMs). Nothing came in"
                )
            self._in_time = self._in_time and reply != LATE
        return self._in_time
