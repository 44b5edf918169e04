"""A tracer behind a guard: what it raises is logged, once a minute, and never felt by a job.

A span that could not be begun is one that nobody sees: its job goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chasquimq.errors import ConfigError
from chasquimq.job import Again, Dead
from chasquimq.observe.announce import Complaint
from chasquimq.trace import MAX_CARRIER_BYTES, Batch, Run, Running, Sending, Tracing


def guarded(tracing: object) -> Guard | None:
    """What a door was given as `tracing`; None where it was given nothing."""
    if tracing is None:
        return None
    if isinstance(tracing, type):
        raise ConfigError(f"tracing takes a tracer, not its class: {tracing.__name__}()")
    for method in ("sending", "running"):
        if not callable(getattr(tracing, method, None)):
            raise ConfigError(
                f"tracing takes a tracer with sending() and running(), as OpenTelemetry() of "
                f"chasquimq.observe.otel; {type(tracing).__name__} has no {method}()"
            )
    return Guard(tracing)  # type: ignore[arg-type] # it was looked at, method by method


class Guard:
    """A `Tracing` that never raises. Nothing is awaited in a tracer, so a cancellation is its own,
    never that of a worker."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._complaint = Complaint()

    def sending(self, batch: Batch) -> GuardedSending:
        inner, carrier = None, b""
        try:
            inner = self._tracing.sending(batch)
            carrier = _fitting(inner.carrier)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.complain("sending", error)
        return GuardedSending(self, inner, carrier)

    def running(self, run: Run) -> GuardedRunning:
        try:
            return GuardedRunning(self, self._tracing.running(run))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.complain("running", error)
            return GuardedRunning(self, None)

    def complain(self, what: str, error: BaseException) -> None:
        self._complaint.about(f"tracer failed in {what}()", error)

    def attempt(self, method: Callable[..., Any], *args: Any) -> bool:
        """Whether it went well."""
        try:
            method(*args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.complain(getattr(method, "__name__", "?"), error)
            return False
        return True


def _fitting(carrier: bytes) -> bytes:
    if not isinstance(carrier, bytes):
        raise TypeError(f"a carrier is bytes, got {type(carrier).__name__}")
    if len(carrier) > MAX_CARRIER_BYTES:
        raise ValueError(f"a carrier has at most {MAX_CARRIER_BYTES} bytes, got {len(carrier)}")
    return carrier


class GuardedSending:
    __slots__ = ("_guard", "_inner", "carrier")

    def __init__(self, guard: Guard, inner: Sending | None, carrier: bytes) -> None:
        self._guard = guard
        self._inner = inner
        self.carrier = carrier

    def sent(self, ids: Sequence[str], duplicates: int, errors: Sequence[BaseException]) -> None:
        if self._inner is not None:
            self._guard.attempt(self._inner.sent, ids, duplicates, errors)

    def failed(self, error: BaseException) -> None:
        if self._inner is not None:
            self._guard.attempt(self._inner.failed, error)


class GuardedRunning:
    """Leaves only what it entered, and ends once: a run that was given up ends before its
    handler does."""

    __slots__ = ("_entered", "_guard", "_inner", "_over")

    def __init__(self, guard: Guard, inner: Running | None) -> None:
        self._guard = guard
        self._inner = inner
        self._entered = False
        self._over = inner is None

    def enter(self) -> None:
        if self._inner is not None:
            self._entered = self._guard.attempt(self._inner.enter)

    def leave(self) -> None:
        if self._inner is not None and self._entered:
            self._entered = False
            self._guard.attempt(self._inner.leave)

    def completed(self) -> None:
        if self._inner is not None and not self._over:
            self._over = True
            self._guard.attempt(self._inner.completed)

    def failed(self, error: BaseException, verdict: Again | Dead) -> None:
        if self._inner is not None and not self._over:
            self._over = True
            self._guard.attempt(self._inner.failed, error, verdict)

    def dropped(self, why: str) -> None:
        if self._inner is not None and not self._over:
            self._over = True
            self._guard.attempt(self._inner.dropped, why)
