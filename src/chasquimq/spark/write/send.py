"""Chunks on their way to Redis: several at once, each until it is in.

A full queue refuses a chunk, and those sent behind it if their order counts. They are held back and
sent again one by one, each as soon as there is room: the queue never holds more than its limit, and
never less than it held. A chunk that does not get in within `waitTimeoutMs` fails the task; one
that does starts the clock anew for the next.

With a rate each chunk waits until it is in before the next is sent. The script that adds it says
no if it comes too soon, and when its turn is; so the rate holds, however many tasks there are and
however late each of them is.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from chasquimq.errors import ChasquiError, InputChangedError, QueueFullError, StoreError
from chasquimq.lua import Arg
from chasquimq.spark.client import Client
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write.chunk import Chunk
from chasquimq.spark.write.run import Run
from chasquimq.wire import Keys
from chasquimq.wire.fault import Fault, as_error, classify

log = logging.getLogger("chasquimq.queue")

IN_FLIGHT = 8  # chunks on their way while the next are encoded
PAUSE_S, MAX_PAUSE_S = 0.02, 1.0  # between two looks at a full queue
ADDED, FULL, DIFFERS, GAP, NOT_YET = 1, -1, -2, -3, -4

Command = tuple[Arg, ...]


class _Told(NamedTuple):
    """What a script says of its chunk."""

    answer: int
    length: int  # of the stream
    wanted: int  # room that the chunk needs there
    more: int = 0  # NOT_YET: ms until its turn; added by id: how many of ours Redis has counted


class Sender:
    """`write` makes the command of a chunk; its answer begins with what became of it."""

    def __init__(
        self,
        client: Client,
        options: SinkOptions,
        run: Run,
        partition: int,
        write: Callable[[Chunk], Command],
    ) -> None:
        self._client = client
        self._options = options
        self._kept = (run.key, run.marker(partition))
        self._partition = partition
        self._write = write
        self._sent: deque[Chunk] = deque()
        self.counted = 0  # chunks of ours that Redis has counted, where it does

    def send(self, chunk: Chunk) -> None:
        if self._options.rows_per_second is not None:
            self._press(chunk)
            return
        self._client.post(*self._write(chunk))
        self._sent.append(chunk)
        self._settle(IN_FLIGHT)

    def finish(self) -> None:
        self._settle(0)

    def _settle(self, until: int) -> None:
        """Hear of chunks until no more than so many are on their way."""
        held: list[Chunk] = []
        replies = deque(self._client.collect(until))
        while replies:
            chunk = self._sent.popleft()
            told = self._read(replies.popleft(), chunk)
            if told.answer in (FULL, GAP):
                held.append(chunk)
            if held and not replies:  # whatever is still on its way comes before them
                replies.extend(self._client.collect())
        for chunk in held:
            self._press(chunk)

    def _read(self, reply: Any, chunk: Chunk) -> _Told:
        if isinstance(reply, Exception):
            raise self._error(reply)
        told = _Told(*reply)
        if told.answer == DIFFERS:
            raise InputChangedError(self._partition, chunk.number)
        if told.answer == ADDED and told.more:
            self.counted += 1
            if told.more < self.counted:  # a server that took over knows less than was told us
                raise self._lost(chunk)
        return told

    def _press(self, chunk: Chunk) -> None:
        """Send a chunk until it is in, and nothing else meanwhile."""
        begun, waited = time.monotonic(), False
        while True:
            [reply] = self._client.ask_each([self._write(chunk)])
            told = self._read(reply, chunk)
            if told.answer == GAP:
                raise self._lost(chunk)
            if told.answer == NOT_YET:
                self._rest(told.more / 1000)
                begun = time.monotonic()  # there was room, so nobody has waited for any
                continue
            if told.answer != FULL:
                return
            if not waited:
                log.warning("queue %s is full, with %d jobs", self._options.queue, told.length)
            waited = True
            self._wait(told, begun)

    def _wait(self, told: _Told, begun: float) -> None:
        """Until there seems to be room. What is true is found out by sending."""
        options, pause_s, length = self._options, PAUSE_S, told.length
        until = begun + options.wait_timeout_ms / 1000
        while options.on_full == "wait" and time.monotonic() < until:
            time.sleep(min(pause_s, max(0, until - time.monotonic())))
            pause_s = min(pause_s * 2, MAX_PAUSE_S, options.marker_ttl_ms / 4_000)
            length = self._look()
            if length + told.wanted <= options.max_stream_len:
                return
        raise self._full(length, told.wanted)

    def _rest(self, seconds: float) -> None:
        """Until it is our turn. Nobody else waits for us, and what is written stays known."""
        until, piece_s = time.monotonic() + seconds, self._options.marker_ttl_ms / 4_000
        while (left := until - time.monotonic()) > piece_s:
            time.sleep(piece_s)
            self._look()
        time.sleep(max(0.0, left))

    def _look(self) -> int:
        """How long the stream is. Who waits is not gone: what it has written stays known."""
        kept = [("PEXPIRE", key, self._options.marker_ttl_ms) for key in self._kept]
        [length, *_] = self._client.ask_each([("XLEN", Keys(self._options.queue).stream), *kept])
        if isinstance(length, Exception):
            raise self._error(length)
        return int(length)

    # -- what is said when it does not go well ---------------------------------------------------

    def _full(self, length: int, wanted: int) -> QueueFullError:
        options = self._options
        waited = f" for {options.wait_timeout_ms} ms" if options.on_full == "wait" else ""
        fix = "raise waitTimeoutMs" if options.on_full == "wait" else "wait by onFull=wait"
        return QueueFullError(
            f"CHASQUI_QUEUE_FULL: queue {options.queue!r} holds {length} jobs of at most "
            f"{options.max_stream_len}, and had no room{waited} for {wanted} more, of partition "
            f"{self._partition}. Start workers, raise maxStreamLen, or {fix}. What is in stays in, "
            "and is not added again when the write goes on under the same runId"
        )

    def _lost(self, chunk: Chunk) -> StoreError:
        return StoreError(
            f"chunk {chunk.number} of partition {self._partition} has come, but what the server "
            "knew of those in front of it, or of the whole run, is gone: it lost its data (was it "
            "flushed, restarted without an append-only file, or lost to a replica?), or "
            f"markerTtlMs ({self._options.marker_ttl_ms}) is over"
        )

    def _error(self, reply: Exception) -> ChasquiError:
        if classify(reply) is not Fault.FULL:
            return as_error(reply, f"writing to queue {self._options.queue!r}")
        return QueueFullError(
            "CHASQUI_QUEUE_FULL: the server is out of memory (oom): not one row of this chunk was "
            "written. Let the workers drain, or raise maxmemory; the write can go on then"
        )
