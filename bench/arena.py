"""Servers of our own, and one run at a time in a fresh process on one of them.

A worker's queue is filled beforehand by copying a stream that was filled once: both sides get
the same bytes. What a run claims is checked afterwards against what Redis holds.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
from scenarios import PAYLOAD, Scenario

from chasquimq import Queue
from chasquimq.server import Kind, Server, find_server

CHILD = Path(__file__).with_name("child.py")
QUEUE = "bench"
QUIET = 0.15  # cores used by others that do not matter
LOOK_S = 0.1
AT_LEAST: dict[Kind, tuple[int, int, int]] = {"redis": (8, 6, 2), "valkey": (8, 0, 0)}


class FailedRunError(RuntimeError):
    """A run did not do what it was measured for."""


@dataclass(frozen=True)
class Side:
    """Who runs: a Python with one of the two packages."""

    name: str
    python: Path = Path(sys.executable)
    source: Path | None = None  # another tree of our package
    uvloop: bool = False
    options: dict[str, Any] = field(default_factory=dict)  # for the Worker
    ours: bool = True

    def environment(self) -> dict[str, str]:
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        clean = {name: value for name, value in os.environ.items() if name not in hidden}
        return clean | ({"PYTHONPATH": str(self.source)} if self.source else {})


class Arena:
    def __init__(self, *kinds: Kind) -> None:
        self._kinds = kinds
        self._stack = ExitStack()
        self._servers: dict[str, Server] = {}
        self._clients: dict[str, redis.Redis] = {}

    def __enter__(self) -> Self:
        for kind in self._kinds:
            binary = find_server(kind=kind, at_least=AT_LEAST[kind])
            self._servers[kind] = self._stack.enter_context(Server(binary))
            client = redis.Redis.from_url(self._servers[kind].url)
            self._clients[kind] = self._stack.enter_context(client)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def versions(self) -> dict[str, str]:
        return {
            kind: ".".join(map(str, server.binary.version))
            for kind, server in self._servers.items()
        }

    def run(self, side: Side, scenario: Scenario, jobs: int) -> dict[str, Any]:
        """One measured run; raises when Redis does not confirm what it claims."""
        url, client = self._servers[scenario.server].url, self._clients[scenario.server]
        orders: dict[str, Any] = {"url": url, "queue": QUEUE, "jobs": jobs, "uvloop": side.uvloop}
        self._clear(client)
        if scenario.kind == "worker":
            self._fill(client, url, jobs)
            orders |= {"what": "worker", "options": scenario.options | side.options}
        else:
            orders |= {"what": "producer", "kind": scenario.kind, "size": scenario.size}
            orders["payload"] = PAYLOAD
        load, server_cpu = Load(), _server_cpu(client)
        result = _run(side, orders)
        server_cpu = _server_cpu(client) - server_cpu
        result["server_cpu_per_100k"] = server_cpu / jobs * 1e5
        result["others"] = load.of_others(server_cpu)
        _confirm(client, scenario, jobs, result)
        return result

    def _clear(self, client: redis.Redis) -> None:
        for key in list(client.scan_iter(match=f"{{chasqui:{QUEUE}}}*", count=1000)):
            client.delete(key)

    def _fill(self, client: redis.Redis, url: str, jobs: int) -> None:
        template = f"{QUEUE}-of-{jobs}"
        if not client.exists(_stream(template)):
            asyncio.run(_add(url, template, jobs))
        client.copy(_stream(template), _stream(QUEUE))
        if client.xlen(_stream(QUEUE)) != jobs:
            raise FailedRunError("the queue was not filled")


class Load:
    """How many cores this machine spends on anything but us, from here on."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._busy, self._children = _busy_s(), _children_s()

    def of_others(self, server_cpu: float = 0.0) -> float:
        ours = _children_s() - self._children + server_cpu
        busy = _busy_s() - self._busy
        return max(busy - ours, 0.0) / (time.monotonic() - self._at)


def wait_for_quiet(patience_s: float) -> float:
    """Let others finish first, if they do so in time; answers the patience that is left."""
    while patience_s > 0:
        load = Load()
        time.sleep(LOOK_S)
        if load.of_others() < QUIET:
            break
        patience_s -= LOOK_S
    return patience_s


def _busy_s() -> float:
    """Seconds that all cores together have been busy; 0 where the system does not tell."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    except OSError:
        return 0.0
    idle_and_waiting, guests = sum(ticks[3:5]), sum(ticks[8:])
    return (sum(ticks) - idle_and_waiting - guests) / os.sysconf("SC_CLK_TCK")


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


async def _add(url: str, queue: str, jobs: int) -> None:
    async with Queue(queue, redis_url=url) as producer:
        for first in range(0, jobs, 1000):
            count = min(1000, jobs - first)
            await producer.add_bulk([{"name": "job", "data": PAYLOAD}] * count)


def _stream(queue: str) -> str:
    return f"{{chasqui:{queue}}}:stream"


def _server_cpu(client: redis.Redis) -> float:
    info: dict[str, Any] = client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def _run(side: Side, orders: dict[str, Any]) -> dict[str, Any]:
    child = subprocess.Popen(
        [side.python, CHILD, json.dumps(orders)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=side.environment(),
        text=True,
    )
    with child:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        try:
            if child.stdout.readline().strip() == "ready":
                child.stdin.write("go\n")
                child.stdin.flush()
            answer = child.stdout.readline()
            if not answer:
                raise FailedRunError(f"{side.name} did not finish: {child.stderr.read()[-2000:]}")
            result: dict[str, Any] = json.loads(answer)
            return result
        finally:
            child.kill()


def _confirm(client: redis.Redis, scenario: Scenario, jobs: int, result: dict[str, Any]) -> None:
    left = client.xlen(_stream(QUEUE))
    if scenario.kind != "worker":
        if left != result["added"]:
            raise FailedRunError(f"{result['added']} jobs were added, Redis holds {left}")
        return
    if left or result["handled"] != jobs:
        raise FailedRunError(f"{result['handled']} of {jobs} jobs were handled, {left} are left")
    key = f"{{chasqui:{QUEUE}}}:events"
    written = client.xinfo_stream(key)["entries-added"] if client.exists(key) else 0
    result["events_per_job"] = written / jobs
    expected = 2.0 if scenario.options.get("events_enabled", True) else 0.0
    if abs(result["events_per_job"] - expected) > 0.05:
        raise FailedRunError(f"{written} events for {jobs} jobs, {expected} a job were expected")
