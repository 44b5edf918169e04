"""OpenTelemetry with an SDK that keeps everything in memory, as tests look at it."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chasquimq.observe.otel import OpenTelemetry


class Telescope:
    """Everything that was seen, until now."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracing = OpenTelemetry(self.tracers, self.meters, **options)

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        """Those that have ended, in that order; of this operation."""
        spans = self._exporter.get_finished_spans()
        return [one for one in spans if name is None or one.name.partition(" ")[0] == name]

    def span(self, name: str) -> ReadableSpan:
        [span] = self.spans(name)
        return span

    def runs(self) -> dict[str, ReadableSpan]:
        """The handler runs, by job."""
        return {str(facts(one)["messaging.message.id"]): one for one in self.spans("process")}

    def metrics(self) -> dict[str, dict[str, Any]]:
        """By instrument and attributes: its value, or how many there were and their sum."""
        found: dict[str, dict[str, Any]] = {}
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    row = found.setdefault(metric.name, {})
                    for point in metric.data.data_points:
                        row[_key(point.attributes)] = _value(point)
        return found

    def metric(self, name: str) -> Any:
        """The same of one instrument."""
        return self.metrics().get(name, {})

    def described(self) -> dict[str, Any]:
        """The instruments that have told something, by name."""
        data = self._reader.get_metrics_data()
        assert data is not None
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def _key(attributes: Any) -> str:
    """All but the queue, which is the test's."""
    rest = {name: value for name, value in attributes.items() if name != "queue"}
    return " ".join(f"{name}={value}" for name, value in sorted(rest.items()))


def _value(point: Any) -> Any:
    return (point.count, point.sum) if hasattr(point, "sum") else point.value
