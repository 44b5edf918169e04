"""Plan: "metric names": name, type, help, labels and buckets of what Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from chasquimq.observe.probe import Depths
from chasquimq.observe.prometheus import PrometheusSink
from tests.frozen.told import tell_everything

FROM_OUTSIDE = {"queue", "name", "group", "reason", "connection", "le"}  # any value may come


class FullQueue:
    """In place of a probe: what a queue holds, with a value for every figure."""

    def look(self) -> list[Depths]:
        return [Depths(queue="mail", oldest_waiting_s=1.0, limit=1)]


def lines() -> Iterator[str]:
    registry = CollectorRegistry()
    tell_everything(PrometheusSink("mail", registry, probe=FullQueue()))  # type: ignore[arg-type]
    for family in registry.collect():
        yield f"{family.name}: {family.type}: {family.documentation}"
        if not family.samples:
            raise ValueError(f"{family.name} was told nothing: tell it in tests/frozen/told.py")
        yield from _samples(family)


def _samples(family: Metric) -> Iterator[str]:
    names = {one.name for one in family.samples}
    for name in names:
        labels = [one.labels for one in family.samples if one.name == name]
        yield f"{name}{{{', '.join(sorted(set().union(*labels)))}}}"
        for label in set().union(*labels) - FROM_OUTSIDE:
            for value in {one[label] for one in labels}:
                yield f'{name}{{{label}="{value}"}}'
        bounds = [one["le"] for one in labels if "le" in one]
        if bounds:
            yield f"{name} le: {' '.join(bounds)}"
