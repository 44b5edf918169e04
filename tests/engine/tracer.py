"""A tracer that remembers, as tests use one: what it was told, and where handlers ran."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from chasquimq.job import Again, Dead
from chasquimq.trace import Batch, Origin, Run, pack_carrier

current: ContextVar[str | None] = ContextVar("current", default=None)


class Sending:
    def __init__(self, tracer: Tracer, batch: Batch, number: int) -> None:
        self._tracer = tracer
        self.batch = batch
        self.carrier = carrier(number)

    def sent(self, ids: Sequence[str], duplicates: int, errors: Sequence[BaseException]) -> None:
        kinds = [type(error).__name__ for error in errors]
        self._tracer.sent.append((self.batch, list(ids), duplicates, kinds))

    def failed(self, error: BaseException) -> None:
        self._tracer.unsent.append((self.batch, type(error).__name__))


class Running:
    def __init__(self, tracer: Tracer, run: Run) -> None:
        self._tracer = tracer
        self._run = run
        self._token: Any = None

    def enter(self) -> None:
        self._token = current.set(self._run.job_id)

    def leave(self) -> None:
        current.reset(self._token)
        self._tracer.left += 1

    def completed(self) -> None:
        self._end("completed")

    def failed(self, error: BaseException, verdict: Again | Dead) -> None:
        self._end("failed", type(error).__name__, verdict)

    def dropped(self, why: str) -> None:
        self._end("dropped", why)

    def _end(self, *how: Any) -> None:
        self._tracer.ended.append((self._run.job_id, *how))
        self._tracer.inside.append(current.get())


class Tracer:
    def __init__(self) -> None:
        self.sent: list[tuple[Batch, list[str], int, list[str]]] = []
        self.unsent: list[tuple[Batch, str]] = []
        self.runs: list[Run] = []
        self.ended: list[tuple[Any, ...]] = []
        self.inside: list[str | None] = []  # what was current when a run's end was told
        self.left = 0
        self._lock = threading.Lock()
        self._number = 0

    def sending(self, batch: Batch) -> Sending:
        with self._lock:
            self._number += 1
        return Sending(self, batch, self._number)

    def running(self, run: Run) -> Running:
        self.runs.append(run)
        return Running(self, run)

    def run_of(self, job_id: str) -> Run:
        [run] = [run for run in self.runs if run.job_id == job_id]
        return run


def carrier(number: int) -> bytes:
    """What goes with the jobs of the first add, the second, ..."""
    return pack_carrier(Origin(number, number, 1))
