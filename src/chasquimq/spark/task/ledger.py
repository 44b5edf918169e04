"""What became of each run of a handler, as rows.

A ledger is the tracer of a task's Worker, which hears of every run how it began and how it ended,
and its sink, which hears of jobs that were buried without one.

    completed    it returned
    retried      it failed, and the job will run again
    buried       it failed, and the job is in the DLQ; `reason` says why
    lost         its lease was lost, so it does not count: somebody else has the job
    given_back   a stop cut it off; no run is counted, the job is in the queue again
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from chasquimq.job import Again, Dead
from chasquimq.text import said
from chasquimq.trace import Batch, Run, Sending

BATCH = 1_000  # rows that leave a task together
MOST_ERROR = 4_096  # characters, as many bytes as the DLQ keeps

_TEXT, _NUMBER, _MOMENT = StringType(), LongType(), TimestampType()
SCHEMA = StructType(
    [
        StructField("run", _TEXT),
        StructField("queue", _TEXT),
        StructField("job_id", _TEXT),
        StructField("name", _TEXT),
        StructField("attempt", _NUMBER),
        StructField("outcome", _TEXT),
        StructField("reason", _TEXT),
        StructField("started_at", _MOMENT),
        StructField("duration_us", _NUMBER),
        StructField("error_type", _TEXT),
        StructField("error", _TEXT),
        StructField("task", _NUMBER),
        StructField("consumer", _TEXT),
    ]
)
_ARROW = pa.schema(
    [
        ("run", pa.string()),
        ("queue", pa.string()),
        ("job_id", pa.string()),
        ("name", pa.string()),
        ("attempt", pa.int64()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("started_at", pa.timestamp("us", tz="UTC")),
        ("duration_us", pa.int64()),
        ("error_type", pa.string()),
        ("error", pa.string()),
        ("task", pa.int64()),
        ("consumer", pa.string()),
    ]
)
_DROPPED = {"lease lost": "lost", "given back": "given_back"}

Row = tuple[Any, ...]  # as SCHEMA has it


class Routed(Protocol):
    """What a sink hears of a job that was buried: `DlqRouted` of the metrics."""

    @property
    def reason(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def name(self) -> str: ...


class Ledger:
    """Of one Worker. Belongs to its event loop."""

    def __init__(self, run_id: str, queue: str, task: int, consumer: str) -> None:
        self.hand_on: Callable[[pa.RecordBatch], None] = _drop
        self._run_id = run_id
        self._queue = queue
        self._task = task
        self._consumer = consumer
        self._rows: list[Row] = []
        self._buried: Counter[tuple[str, int, str]] = Counter()  # by runs that were told

    def close(self) -> None:
        """Hand on what is left."""
        rows, self._rows = self._rows, []
        if rows:
            columns = zip(*rows, strict=True)
            arrays = [
                pa.array(values, field.type) for values, field in zip(columns, _ARROW, strict=True)
            ]
            self.hand_on(pa.RecordBatch.from_arrays(arrays, schema=_ARROW))

    # -- what a Worker calls -----------------------------------------------------------------------

    def sending(self, batch: Batch) -> Sending:
        raise NotImplementedError("a worker sends nothing")

    def running(self, run: Run) -> Line:
        return Line(self, run)

    def dlq_routed(self, dead: Routed) -> None:
        """A job lies in the DLQ. If no run led there, it could not be run: it is unreadable, or
        tasks that died with it have used up its attempts."""
        key = (dead.name, dead.attempt, str(dead.reason))
        if self._buried[key]:
            self._buried[key] -= 1
            return
        now_us = time.time_ns() // 1_000
        self.write(None, dead.name, dead.attempt, "buried", key[2], now_us, None, None)

    # -- what lines call ---------------------------------------------------------------------------

    def expect(self, name: str, dead: Dead) -> None:
        self._buried[(name, dead.attempt, str(dead.reason))] += 1

    def write(
        self,
        job_id: str | None,
        name: str,
        attempt: int,
        outcome: str,
        reason: str | None,
        started_us: int,
        duration_us: int | None,
        error: BaseException | None,
    ) -> None:
        kind = None if error is None else type(error).__name__
        text = None if error is None else _safe(said(error))[:MOST_ERROR]
        run = (_safe(job_id), _safe(name), attempt, outcome, reason, started_us, duration_us)
        head, tail = (self._run_id, self._queue), (kind, text, self._task, self._consumer)
        self._rows.append((*head, *run, *tail))
        if len(self._rows) >= BATCH:
            self.close()


class Line:
    """One run of a handler, until it is known how it ended."""

    __slots__ = ("_began", "_ledger", "_run", "_started_us")

    def __init__(self, ledger: Ledger, run: Run) -> None:
        self._ledger = ledger
        self._run = run
        self._started_us = 0
        self._began = 0

    def enter(self) -> None:
        self._started_us = time.time_ns() // 1_000
        self._began = time.perf_counter_ns()

    def leave(self) -> None:
        pass

    def completed(self) -> None:
        self._write("completed")

    def failed(self, error: BaseException, verdict: Again | Dead) -> None:
        if isinstance(verdict, Again):
            self._write("retried", error=error)
            return
        self._ledger.expect(self._run.name, verdict)
        self._write("buried", reason=str(verdict.reason), error=error)

    def dropped(self, why: str) -> None:
        self._write(_DROPPED.get(why, why))

    def _write(
        self, outcome: str, *, reason: str | None = None, error: BaseException | None = None
    ) -> None:
        run = self._run
        duration_us = (time.perf_counter_ns() - self._began) // 1_000
        about = (run.job_id, run.name, run.attempt, outcome, reason, self._started_us)
        self._ledger.write(*about, duration_us, error)


def _drop(rows: pa.RecordBatch) -> None:
    """Where nobody takes them."""


def _safe(text: Any) -> Any:
    """Arrow takes no halves of characters, which ids, names and errors may hold."""
    return text if text is None or text.isascii() else text.encode(errors="replace").decode()
