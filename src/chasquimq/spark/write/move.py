"""From a manifest into the queue. Anybody may do it, several at once, as often as they like: each
chunk leaves its stage in the very call that brings it in. Needs neither Spark nor Java.

1. for each stage that the manifest names: move its first chunk until there is none; look once more,
   for a server that took over may have some again that were moved;
2. where the queue is full, wait, as long as that was allowed since a chunk last came in; where the
   run has a rate, wait for each chunk's turn;
3. say that the run is done, then drop the stages that nobody wanted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from chasquimq import lua
from chasquimq.errors import QueueFullError
from chasquimq.spark.client import Client
from chasquimq.spark.write import run as runs
from chasquimq.spark.write.run import Run
from chasquimq.wire import Keys
from chasquimq.wire.fault import Fault, as_error, classify

SCRIPTS = (*runs.SCRIPTS, "spark_move", "spark_drop")
IN_FLIGHT = 4  # chunks of a stage on their way at once
PAGE = 500
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0
NOT_YET = -2

Tell = Callable[[int, bool], None]  # rows that came in just now; is the queue full?


class Pace(NamedTuple):
    """How full the queue may get, and for how long to wait for room before giving up."""

    max_stream_len: int
    wait_ms: int
    events_len: int = 0  # of the stream where delayed jobs are told; 0: they are not
    rate: str = "0"  # rows per second; 0: as fast as it goes


def complete(
    client: Client, run: Run, pace: Pace, ttl_ms: int, tell: Tell = lambda rows, full: None
) -> int:
    """Move all that the run's manifest names; answers how many rows the run has brought."""
    mover = _Mover(client, run, pace, tell)
    moved = -1
    while moved < mover.moved and (stages := _left(client, run)):
        moved = mover.moved
        for stage in stages:
            mover.move(stage)
    rows = runs.finish(client, run, ttl_ms)
    drop(client, run)
    return rows


def promised(client: Client, run: Run) -> Iterator[bytes]:
    """The stages that the run's manifest names."""
    start = 0
    while page := client.ask("LRANGE", run.manifest, start, start + PAGE - 1):
        yield from page
        start += PAGE


def _left(client: Client, run: Run) -> list[bytes]:
    """Those of them that have rows."""
    stages = list(promised(client, run))
    lengths = client.ask_each([("XLEN", stage) for stage in stages])
    return [stage for stage, rows in zip(stages, lengths, strict=True) if rows != 0]


def drop(client: Client, run: Run) -> bool:
    """Delete the stages of a run, unless a manifest says that they are still to be moved."""
    while (left := client.run("spark_drop", [run.key, run.stages], [PAGE])) > 0:
        pass
    return bool(left == 0)


class _Mover:
    def __init__(self, client: Client, run: Run, pace: Pace, tell: Tell) -> None:
        self._client = client
        self._run = run
        self._pace = pace
        self._tell = tell
        self._pause_s = FIRST_PAUSE_S
        self._full_since: float | None = None
        self.moved = 0  # rows

    def move(self, stage: bytes) -> None:
        keys = Keys(self._run.queue)
        command = lua.call(
            "spark_move",
            [self._run.key, stage, keys.stream],
            [self._pace.max_stream_len, self._pace.events_len, self._pace.rate],
        )
        ahead, left = 1, 1
        while left:
            for _ in range(ahead):
                self._client.post(*command)
            left = self._settle()
            ahead = IN_FLIGHT if self._pace.rate == "0" else 1

    def _settle(self) -> int:
        """Hear what became of the calls; answers how many rows are left in the stage."""
        left, full, wait_ms = 0, "", 0
        for reply in self._client.collect():
            if isinstance(reply, Exception):
                if classify(reply) is not Fault.FULL:
                    raise as_error(reply, f"moving the rows of run {self._run.run_id}")
                left, full = max(left, 1), "the server is out of memory"
                continue
            moved, left, length, *turn = reply
            if moved == NOT_YET:
                self._full_since, [wait_ms] = None, turn
            elif moved > 0:
                self._full_since, full = None, ""
                self._pause_s = FIRST_PAUSE_S
                self.moved += moved
                self._tell(moved, False)
            elif moved < 0:
                limit = self._pace.max_stream_len
                full = f"queue {self._run.queue!r} holds {length} jobs of at most {limit}"
        if full:
            self._wait(full)
        time.sleep(wait_ms / 1000)
        return int(left)

    def _wait(self, why: str) -> None:
        now = time.monotonic()
        self._tell(0, True)
        if self._full_since is None:
            self._full_since = now
        left_s = self._full_since + self._pace.wait_ms / 1000 - now
        if left_s <= 0:
            raise self._full(why)
        # Not all in step: several may wait for the same workers.
        time.sleep(min(left_s, self._pause_s * random.uniform(0.5, 1.0)))
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def _full(self, why: str) -> QueueFullError:
        run = self._run
        moved, total = self._client.ask("HMGET", run.key, "moved", "total")
        return QueueFullError(
            f"CHASQUI_QUEUE_FULL: {why}; {int(moved or 0)} of the {int(total or 0)} rows of run "
            f"{run.run_id} are in. The others are kept, so do not write them under another runId: "
            "let workers take jobs or raise maxStreamLen, then run this again with its runId (a "
            f"stream: start it again), or chasqui spark recover {run.queue} {run.run_id}"
        )
