"""Plan: "span and scope names": spans of adds and runs, with their attributes and events."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.sdk.trace import ReadableSpan

from chasquimq import UnrecoverableError
from chasquimq.job import Again, Dead, Reason
from chasquimq.trace import Batch, Run
from tests.observe.spans import Telescope

CONSTANT = {"messaging.system", "messaging.operation.name", "messaging.operation.type"}


def lines() -> Iterator[str]:
    for title, span in _spans():
        kind = span.kind.name.lower()
        scope = span.instrumentation_scope
        assert scope is not None
        status = span.status.status_code.name.lower()
        yield f"{title}: {span.name!r}, kind {kind}, scope {scope.name}, status {status}"
        for name, value in (span.attributes or {}).items():
            what = repr(value) if name in CONSTANT else type(value).__name__
            yield f"{title}: attribute {name}: {what}"
        for event in span.events:
            ours = (name for name in event.attributes or {} if name.startswith("chasquimq."))
            names = ", ".join(sorted(ours))  # the others are OpenTelemetry's
            yield f"{title}: event {event.name!r} ({names})"
        yield f"{title}: {len(span.links)} links"


def _spans() -> Iterator[tuple[str, ReadableSpan]]:
    """What happened, and the span that tells of it."""
    sky = Telescope()
    tracing = sky.tracing
    sending = tracing.sending(Batch("mail", "add", 1, "welcome", "job-1", 9))
    sending.sent(["job-1"], 1, [])
    yield "a job was added", sky.spans()[-1]
    carrier = sending.carrier

    tracing.sending(Batch("mail", "add_bulk", 2, size=9)).sent(["a", "b"], 1, [ValueError("no")])
    yield "some of several jobs were refused", sky.spans()[-1]
    tracing.sending(Batch("mail", "add", 1, "welcome", "job-1", 9)).failed(ValueError("no"))
    yield "an add failed", sky.spans()[-1]

    run = Run("mail", "default", "job-1", "welcome", 2, 1, 1_700_000_000_000, carrier)
    tracing.running(run).completed()
    yield "a run completed", sky.spans()[-1]
    tracing.running(run).failed(ValueError("no"), Again(2, 1_000))
    yield "a run failed and is retried", sky.spans()[-1]
    tracing.running(run).failed(UnrecoverableError("no"), Dead(2, Reason.UNRECOVERABLE))
    yield "a run failed and its job is dead", sky.spans()[-1]
    for why in ("lease lost", "given back"):
        tracing.running(run).dropped(why)
        yield f"a run was dropped: {why}", sky.spans()[-1]
