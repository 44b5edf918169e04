"""OpenTelemetry: spans of adds and of handler runs, linked to each other.

    add "orders"  (PRODUCER)  -- t --> process "orders"  (CONSUMER)    a link, or parent and child

The names and attributes are those of OpenTelemetry's conventions for messaging. Only the API is
used: what becomes of spans is up to the SDK that the program has set up, and without one, nothing
does. The metrics are next door, in `observe/otel_metrics.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chasquimq._version import version
from chasquimq.errors import ConfigError
from chasquimq.job import Again, Dead
from chasquimq.text import shown
from chasquimq.trace import Batch, Origin, Run, pack_carrier, unpack_carrier

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
    from opentelemetry.trace.span import TraceState
except ImportError as error:
    raise ConfigError("OpenTelemetry is not installed: pip install 'chasquimq-py[otel]'") from error

from chasquimq.observe.otel_metrics import OpenTelemetrySink

__all__ = ["OpenTelemetry", "OpenTelemetrySink"]

WIDEST = 1024  # characters of an id, a name or an error: strangers wrote them


class OpenTelemetry:
    """A tracer for `Queue(tracing=...)` and `Worker(tracing=...)`; one may serve them all.

    A run's span begins a trace of its own, with a link to the add: a job may wait for hours, and
    its producer's sampling need not be the worker's. With `parent=True` it is a child of the add
    instead (and linked, too). `record_exceptions=False` keeps messages and stacks out of spans.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: Any = None,
        *,
        parent: bool = False,
        record_exceptions: bool = True,
    ) -> None:
        self._given = (tracer_provider, meter_provider)
        self._parent = parent
        self._records = record_exceptions
        self._tracer = trace.get_tracer("chasquimq", version(), tracer_provider)

    def __repr__(self) -> str:
        return f"OpenTelemetry(parent={self._parent}, record_exceptions={self._records})"

    def __reduce__(self) -> tuple[Any, ...]:
        """For a process that is spawned: the same options, with the provider that is there."""
        return _again, (self._given, self._parent, self._records)

    def sink(self, queue: str) -> OpenTelemetrySink:
        """A sink for `metrics=`, of one queue."""
        return OpenTelemetrySink(queue, self._given[1])

    def sending(self, batch: Batch) -> AddSpan:
        attributes: dict[str, Any] = {
            **_common(batch.queue, batch.operation, "send"),
            "messaging.message.body.size": batch.size,
        }
        if batch.operation == "add_bulk":
            attributes["messaging.batch.message_count"] = batch.jobs
        if batch.name:
            attributes["chasquimq.job.name"] = batch.name
        span = self._tracer.start_span(
            f"{batch.operation} {batch.queue}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        return AddSpan(span, batch.jobs if batch.operation == "add_bulk" else 0, self._records)

    def running(self, run: Run) -> RunSpan:
        attributes: dict[str, Any] = {
            **_common(run.queue, "process", "process"),
            "messaging.consumer.group.name": run.group,
            "messaging.message.id": shown(run.job_id, WIDEST),
            "chasquimq.job.name": shown(run.name, WIDEST),
            "chasquimq.job.attempt": run.attempt,
            "chasquimq.job.created_at_ms": run.created_at_ms,
        }
        if run.deliveries:
            attributes["chasquimq.job.deliveries"] = run.deliveries + 1
        origin = _origin(run.carrier) if run.carrier else None
        # An empty context has no parent. The worker's own, a span around its start, is none.
        parent = contexts.Context()
        if origin is not None and self._parent:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(origin), parent)
        span = self._tracer.start_span(
            f"process {run.queue}",
            parent,
            SpanKind.CONSUMER,
            attributes,
            [Link(origin)] if origin is not None else [],
        )
        return RunSpan(span, self._records)


class AddSpan:
    """The span of one add, or of a bulk of `jobs`."""

    __slots__ = ("_jobs", "_records", "_span", "carrier")

    def __init__(self, span: trace.Span, jobs: int, records: bool) -> None:
        self._span = span
        self._jobs = jobs
        self._records = records
        here = span.get_span_context()
        state = here.trace_state.to_header() if here.trace_state else ""
        self.carrier = pack_carrier(
            Origin(here.trace_id, here.span_id, int(here.trace_flags), state)
        )

    def sent(self, ids: Sequence[str], duplicates: int, errors: Sequence[BaseException]) -> None:
        span = self._span
        if not self._jobs:
            span.set_attribute("messaging.message.id", ids[0])
        if duplicates:
            span.set_attribute("chasquimq.duplicates", duplicates)
        if errors:
            if self._jobs:
                span.set_attribute("chasquimq.refused", len(errors))
            _blame(span, errors[0], self._records)
        span.end()

    def failed(self, error: BaseException) -> None:
        try:
            _blame(self._span, error, self._records)
        finally:
            self._span.end()


class RunSpan:
    """The span of one run. While it is entered it is the current one."""

    __slots__ = ("_records", "_span", "_token")

    def __init__(self, span: trace.Span, records: bool) -> None:
        self._span = span
        self._records = records
        self._token: Any = None

    def enter(self) -> None:
        self._token = contexts.attach(trace.set_span_in_context(self._span))

    def leave(self) -> None:
        contexts.detach(self._token)

    def completed(self) -> None:
        self._span.end()

    def failed(self, error: BaseException, verdict: Again | Dead) -> None:
        span = self._span
        facts: dict[str, Any]
        if isinstance(verdict, Dead):
            kind, facts = "dead", {"chasquimq.dlq.reason": str(verdict.reason)}
        else:
            kind, facts = "retry", {"chasquimq.retry.delay_ms": verdict.delay_ms}
        try:
            _blame(span, error, self._records)
            span.add_event(kind, facts)
        finally:
            span.end()

    def dropped(self, why: str) -> None:
        self._span.add_event(why)
        self._span.end()


def _again(given: tuple[Any, Any], parent: bool, record_exceptions: bool) -> OpenTelemetry:
    return OpenTelemetry(*given, parent=parent, record_exceptions=record_exceptions)


def _common(queue: str, operation: str, kind: str) -> dict[str, Any]:
    return {
        "messaging.system": "chasquimq",
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }


def _blame(span: trace.Span, error: BaseException, records: bool) -> None:
    kind = type(error).__qualname__
    span.set_attribute("error.type", kind)
    if records:
        span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, kind))


def _origin(carrier: bytes) -> SpanContext | None:
    """The span of the add, from wherever it came; None where the bytes do not say."""
    origin = unpack_carrier(carrier)
    if origin is None:
        return None
    state = TraceState.from_header([origin.state]) if origin.state else None
    flags = TraceFlags(origin.flags)
    return SpanContext(origin.trace_id, origin.span_id, True, flags, state)
