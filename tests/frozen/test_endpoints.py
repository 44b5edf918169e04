"""Plan: "endpoint paths and bodies": what workers and `chasqui worker` serve over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from chasquimq import Job
from chasquimq.observe.endpoint import serve
from tests.cli.crew import Crew, until
from tests.cli.kit import Chasqui
from tests.engine.desk import Desk
from tests.frozen.lists import compare, lines_of
from tests.observe.kit import fetch
from tests.servers import DIALECTS, Servers

PATHS = ("/", "/metrics", "/livez", "/healthz", "/readyz", "/health", "/nowhere")
READY = ("/readyz", "/health")  # asked one after the other, while it becomes so
OPENMETRICS = "application/openmetrics-text"
HEADERS = ("Cache-Control", "X-Content-Type-Options")  # of every page
BY_NAME = {"connections", "tasks"}  # one for each that a worker has just then
NULLABLE = {
    **dict.fromkeys(("last_read_s", "reading_s", "renewal_gap_s"), "number"),
    **dict.fromkeys(("stalled", "overdue", "refusing"), "text"),
}
KINDS = {
    bool: "true or false",
    float: "number",
    int: "whole number",
    list: "list of texts",
    str: "text",
    type(None): "null",
}


async def nothing(job: Job) -> None:
    pass


async def test_what_is_served_is_what_it_was(
    servers: Servers, queue_name: str, tmp_path: Path
) -> None:
    server = servers.shared(DIALECTS[0])
    lines = await asyncio.to_thread(_of_the_command, Chasqui(server), queue_name, tmp_path)
    desk = Desk(server, f"{queue_name}-of-a-program")
    worker = desk.worker(nothing)
    with serve(worker, "0") as endpoint:
        lines += pages("a program, before its worker runs", endpoint.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            lines += await asyncio.to_thread(of_ready, "a program", endpoint.port)
            await worker.close()
    with serve(desk.worker(nothing), "0", metrics=False) as endpoint:
        lines.append(f"without metrics: GET /metrics: {fetch(endpoint.port, '/metrics').status}")
    compare("endpoints", lines)


def check_metrics(port: int) -> None:
    """What is scraped is what sinks show: tests/frozen/prometheus.txt."""
    page = fetch(port, "/metrics").body.decode()
    shown = text_string_to_metric_families(page)
    described = {f"{one.name}: {one.type}: {one.documentation}" for one in shown}
    assert described == {line for line in lines_of("prometheus") if line.count(": ") > 1}


def _of_the_command(chasqui: Chasqui, queue: str, out: Path) -> list[str]:
    with Crew(chasqui, queue, "--metrics", "127.0.0.1:0", out=out) as crew:
        return of_ready("chasqui worker", crew.begins().port())


def of_ready(who: str, port: int) -> list[str]:
    """The pages of what is ready, and was so while they were asked for."""

    def asked() -> list[str]:
        check_metrics(port)
        found = pages(who, port)
        ready = all(
            any(line.startswith(f"{who}: GET {path}: 200") for line in found) for path in READY
        )
        return found if ready else []

    return list(until(asked))


def pages(who: str, port: int) -> list[str]:
    """Each path: its status, its type, and the shape of its body if that is JSON."""
    found = []
    for path in PATHS:
        page = fetch(port, path)
        kind = page.headers["Content-Type"].partition(";")[0]
        more = ", ".join(f"{name}: {page.headers[name]}" for name in HEADERS)
        found.append(f"{who}: GET {path}: {page.status} {kind}, {more}")
        if kind == "application/json":
            found += [f"{who}: {path}: {line}" for line in {*shape(page.json)}]
    for method in ("HEAD", "POST", "OPTIONS"):
        page = fetch(port, "/livez", method)
        body = "with a body" if page.body else "without a body"
        allowed = f", allow {page.headers['Allow']}" if "Allow" in page.headers else ""
        found.append(f"{who}: {method} /livez: {page.status} {body}{allowed}")
    asked = fetch(port, "/metrics", Accept=OPENMETRICS)
    kind = asked.headers["Content-Type"].partition(";")[0]
    found.append(f"{who}: GET /metrics, for OpenMetrics: {asked.status} {kind}")
    found.append(f"{who}: GET /: shows {' '.join(fetch(port, '/').body.decode().split())}")
    return found


def shape(value: Any, where: str = "") -> Iterator[str]:
    """The names in a JSON value, and of what types they are; rows of a list are all alike."""
    name = where.rpartition(".")[2]
    if isinstance(value, dict):
        for key, inner in value.items():
            part = "<name>" if name in BY_NAME else key
            yield from shape(inner, f"{where}.{part}" if where else part)
    elif isinstance(value, list) and name != "problems":
        for inner in value:
            yield from shape(inner, f"{where}[]")
    else:
        kind = KINDS[type(value)]
        if name in NULLABLE:
            assert kind in (NULLABLE[name], "null"), where
            kind = f"{NULLABLE[name]} or null"
        yield f"{where}: {kind}"
