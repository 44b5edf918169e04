"""commitMode=direct: tasks write into the queue, chunk by chunk, each chunk once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pyarrow as pa

from chasquimq import lua
from chasquimq.errors import InputChangedError, QueueFullError, StoreError
from chasquimq.spark.client import Client
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write.chunk import DIGEST_BYTES, Chunk, chunks
from chasquimq.spark.write.rows import Scribe
from chasquimq.spark.write.run import Run
from chasquimq.wire import Keys
from chasquimq.wire.fault import as_error

SCRIPTS = ("spark_begin", "spark_add")
IN_FLIGHT = 8  # chunks on their way while the next are encoded
ADDED, KNOWN, FULL, DIFFERS, GAP = 1, 0, -1, -2, -3


class Direct:
    """Writes one partition."""

    def __init__(self, options: SinkOptions, run: Run, partition: int) -> None:
        self._options = options
        self._run = run
        self._partition = partition
        self._keys = [Keys(options.queue).stream, run.key, run.marker(partition)]
        self._sent: deque[Chunk] = deque()

    def write(self, batches: Iterator[pa.RecordBatch]) -> int:
        options = self._options
        with Client(options.where.address(), SCRIPTS) as client:
            state, created_ms, marker = client.run(
                "spark_begin", self._keys[1:], [options.marker_ttl_ms]
            )
            if state == b"done":
                return 0
            scribe = Scribe(options, self._run.run_id, self._partition, created_ms)
            number = 0
            for chunk in chunks(scribe.rows(batches), options.chunk_rows, options.chunk_bytes):
                number += 1
                known = marker[chunk.number * DIGEST_BYTES :][:DIGEST_BYTES]
                if known:
                    self._compare(known, chunk)
                else:
                    self._post(client, chunk)
                    self._settle(client, IN_FLIGHT)
            self._settle(client, 0)
            if client.ask("STRLEN", self._keys[2]) > number * DIGEST_BYTES:
                raise InputChangedError(self._partition, number)
            return number

    def _post(self, client: Client, chunk: Chunk) -> None:
        options = self._options
        args: list[lua.Arg] = [
            chunk.number,
            chunk.digest,
            options.marker_ttl_ms,
            options.max_stream_len,
        ]
        for row in chunk.rows:
            args += (row.body, row.name)
        client.post(*lua.call("spark_add", self._keys, args))
        self._sent.append(chunk)

    def _settle(self, client: Client, until: int) -> None:
        """Hear of chunks until no more than so many are on their way."""
        for reply in client.collect(until):
            chunk = self._sent.popleft()
            if isinstance(reply, Exception):
                raise as_error(reply, "spark_add")
            answer, length = reply
            if answer == DIFFERS:
                raise InputChangedError(self._partition, chunk.number)
            if answer == GAP:
                raise StoreError(f"chunk {chunk.number} came before the one in front of it")
            if answer == FULL:
                self._wait(client, chunk, length)

    def _compare(self, known: bytes, chunk: Chunk) -> None:
        if known != chunk.digest:
            raise InputChangedError(self._partition, chunk.number)

    def _wait(self, client: Client, chunk: Chunk, length: int) -> None:
        raise QueueFullError(
            f"CHASQUI_QUEUE_FULL: queue {self._options.queue!r} holds {length} jobs of at most "
            f"{self._options.max_stream_len}"
        )
