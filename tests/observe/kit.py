"""Pages as a scraper or a platform gets them, and what stands in them."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

PATIENCE_S = 20.0


class Page(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def fetch(port: int, path: str, method: str = "GET", **headers: str) -> Page:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return Page(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


async def get(port: int, path: str, **headers: str) -> Page:
    return await asyncio.to_thread(fetch, port, path, **headers)


class Samples(dict[tuple[str, frozenset[tuple[str, str]]], float]):
    """A page of metrics, as Prometheus' own client reads it."""

    def __init__(self, text: bytes | str) -> None:
        super().__init__()
        page = text if isinstance(text, str) else text.decode()
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self, f"{key} twice"
                self[key] = sample.value

    def of(self, metric: str, **labels: str) -> float | None:
        return self.get((f"chasquimq_{metric}", frozenset(labels.items())))

    def labels(self, metric: str) -> set[str]:
        """The names of the labels that any sample of a metric has."""
        return {label for name, pairs in self if name == metric for label, _ in pairs}
