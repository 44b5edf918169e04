"""Plan: "metric and scope names": the instruments of OpenTelemetry, with units and attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from chasquimq.observe.otel_metrics import COUNTERS, GAUGES, HISTOGRAMS, OpenTelemetrySink
from tests.frozen.told import tell_everything

FROM_OUTSIDE = {"queue", "name", "reason", "connection"}  # any value may come


def lines() -> Iterator[str]:
    reader = InMemoryMetricReader()
    sink = OpenTelemetrySink("mail", MeterProvider([reader], shutdown_on_exit=False))
    tell_everything(sink)
    data = reader.get_metrics_data()
    assert data is not None
    seen: set[str] = set()
    for scope in (scope for resource in data.resource_metrics for scope in resource.scope_metrics):
        yield f"scope {scope.scope.name}"
        for metric in scope.metrics:
            seen.add(metric.name)
            yield from _instrument(metric)
    silent = {f"chasquimq.{name}" for name in (*COUNTERS, *HISTOGRAMS, *GAUGES)} - seen
    if silent:
        raise ValueError(f"tell these something in tests/frozen/told.py: {', '.join(silent)}")


def _instrument(metric: Any) -> Iterator[str]:
    kind = {"Sum": "counter", "Gauge": "gauge", "Histogram": "histogram"}[
        type(metric.data).__name__
    ]
    yield f"{metric.name}: {kind} in {metric.unit}: {metric.description}"
    points = metric.data.data_points
    yield f"{metric.name}{{{', '.join(sorted(set().union(*(one.attributes for one in points))))}}}"
    pairs = {pair for one in points for pair in one.attributes.items()}
    for attribute, value in pairs:
        if attribute not in FROM_OUTSIDE:
            yield f'{metric.name}{{{attribute}="{value}"}}'
    if kind == "histogram":
        yield f"{metric.name} bounds: {' '.join(f'{one:g}' for one in points[0].explicit_bounds)}"
