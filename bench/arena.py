"""Servers of our own, and one run at a time in a fresh process on one of them.

A worker's queue is filled beforehand by copying a stream that was filled once: both sides get
the same bytes. What a run claims is checked afterwards against what Redis holds. Streams to copy
from are in the server's first database, runs have the second for themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import redis
from scenarios import PAYLOAD, Scenario

from chasquimq import Queue, wire
from chasquimq.server import Kind, Server, find_server

CHILD = Path(__file__).parent / "peers" / "chasqui_child.py"
QUEUE = "bench"
QUIET = 0.15  # cores used by others that do not matter
LOOK_S = 0.1
GIVE_UP_S = 180.0  # with a run that says nothing; children give up earlier, and tell why
LONGEST = 100_000  # characters of an argument; the system takes a few more
RUNS, LARGE = 1, 10_000_000  # the database of runs; more than any queue holds here
AT_LEAST: dict[Kind, tuple[int, int, int]] = {"redis": (8, 6, 2), "valkey": (8, 0, 0)}


class FailedRunError(RuntimeError):
    """A run did not do what it was measured for."""


class CannotRunError(FailedRunError):
    """It has no such thing, as it says itself."""


@dataclass(frozen=True)
class Side:
    """Who runs: a Python with one of the two packages, or any command that starts a child."""

    name: str
    python: Path = Path(sys.executable)
    source: Path | None = None  # another tree of our package
    uvloop: bool = False
    options: dict[str, Any] = field(default_factory=dict)  # for the Worker
    ours: bool = True
    child: Path = CHILD
    command: tuple[str, ...] = ()  # instead of the Python and the child
    core: int | None = None  # the only one that it may use

    def environment(self) -> dict[str, str]:
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        clean = {name: value for name, value in os.environ.items() if name not in hidden}
        return clean | ({"PYTHONPATH": str(self.source)} if self.source else {})

    def start(self, orders: str, errors: IO[str]) -> subprocess.Popen[str]:
        pinned = () if self.core is None else ("taskset", "--cpu-list", str(self.core))
        command = self.command or (str(self.python), str(self.child))
        return subprocess.Popen(
            [*pinned, *command, orders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=self.environment(),
            text=True,
        )


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
            client = redis.Redis.from_url(self.url(kind))
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

    def url(self, kind: str) -> str:
        return f"{self._servers[kind].url}/{RUNS}"

    def run(self, side: Side, scenario: Scenario, jobs: int) -> dict[str, Any]:
        """One measured run; raises when Redis does not confirm what it claims."""
        orders: dict[str, Any] = {"jobs": jobs, "uvloop": side.uvloop}
        is_worker = scenario.kind == "worker"
        if is_worker:
            orders |= {"what": "worker", "options": scenario.options | side.options}
        else:
            orders |= {"what": scenario.kind, "size": scenario.size, "payload": PAYLOAD}
        fill = Fill(jobs) if is_worker else None
        result = self.measure(side, orders, server=scenario.server, fill=fill)
        if is_worker:
            events = scenario.options.get("events_enabled", True)
            self.confirm_worked(scenario.server, jobs, result, events=events)
        else:
            self.confirm_added(scenario.server, result)
        return result

    def measure(
        self, side: Side, orders: dict[str, Any], *, server: str = "redis", fill: Fill | None = None
    ) -> dict[str, Any]:
        """One run in an empty database, and what it cost the server."""
        client = self._clients[server]
        client.flushdb()
        if fill is not None:
            self._fill(server, fill)
        place = {"url": self.url(server), "queue": QUEUE}
        load, server_cpu = Load(), ServerCpu(client)
        result = _run(side, place | orders, server_cpu.restart)
        spent = server_cpu.spent()
        result["server_cpu_per_100k"] = spent / orders["jobs"] * 1e5
        result["others"] = load.of_others(server_cpu.spent_in_all())
        return result

    def confirm_added(self, server: str, result: dict[str, Any]) -> None:
        left = self._clients[server].xlen(_stream(QUEUE))
        if left != result["added"]:
            raise FailedRunError(f"{result['added']} jobs were added, Redis holds {left}")

    def confirm_worked(
        self, server: str, jobs: int, result: dict[str, Any], *, events: bool
    ) -> None:
        client, handled = self._clients[server], result["handled"]
        left = client.xlen(_stream(QUEUE))
        if left or handled != jobs:
            raise FailedRunError(f"{handled} of {jobs} jobs were handled, {left} are left")
        key = f"{{chasqui:{QUEUE}}}:events"
        written = client.xinfo_stream(key)["entries-added"] if client.exists(key) else 0
        result["events_per_job"] = written / jobs
        expected = 2.0 if events else 0.0
        if abs(result["events_per_job"] - expected) > 0.05:
            told = f"{expected} a job were expected"
            raise FailedRunError(f"{written} events for {jobs} jobs, {told}")

    def _fill(self, server: str, fill: Fill) -> None:
        client, url = self._clients[server], self._servers[server].url
        with redis.Redis.from_url(url) as templates:
            if not templates.exists(_stream(fill.name)):
                asyncio.run(_add(url, fill))
            for queue in fill.queues:
                templates.copy(_stream(fill.name), _stream(queue), RUNS)
        if any(client.xlen(_stream(queue)) != fill.jobs for queue in fill.queues):
            raise FailedRunError("the queue was not filled")


@dataclass(frozen=True)
class Fill:
    """Jobs that wait in each of these queues when a run begins."""

    jobs: int
    payload: Any = None  # None: the usual one
    queues: tuple[str, ...] = (QUEUE,)

    @property
    def name(self) -> str:
        size = "" if self.payload is None else f"-by-{len(wire.encode(self.payload))}"
        return f"{QUEUE}-of-{self.jobs}{size}"


class ServerCpu:
    """Seconds that a server was busy."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._first = self._began = self._now()

    def restart(self) -> None:
        """Count from here on: a child has set itself up."""
        self._began = self._now()

    def spent(self) -> float:
        return self._now() - self._began

    def spent_in_all(self) -> float:
        return self._now() - self._first

    def _now(self) -> float:
        info: dict[str, Any] = self._client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


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


async def _add(url: str, fill: Fill) -> None:
    job = {"name": "job", "data": PAYLOAD if fill.payload is None else fill.payload}
    step = max(min(1000, 10_000_000 // len(wire.encode(job["data"]))), 1)
    async with Queue(fill.name, redis_url=url, max_stream_len=LARGE) as producer:
        for first in range(0, fill.jobs, step):
            await producer.add_bulk([job] * min(step, fill.jobs - first))


def _stream(queue: str) -> str:
    return f"{{chasqui:{queue}}}:stream"


def _run(side: Side, orders: dict[str, Any], began: Callable[[], None]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(orders)
        if len(text) > LONGEST:
            page = Path(folder) / "orders"
            page.write_text(text)
            text = f"@{page}"
        return _answered(side, text, began)


def _answered(side: Side, orders: str, began: Callable[[], None]) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as errors, side.start(orders, errors) as child:
        assert child.stdin is not None and child.stdout is not None
        patience = threading.Timer(GIVE_UP_S, child.kill)
        patience.start()
        try:
            answer = child.stdout.readline()
            if answer.strip() == "ready":
                began()
                child.stdin.write("go\n")
                child.stdin.flush()
                answer = child.stdout.readline()
            if not answer.startswith("{"):
                errors.seek(0)
                told = f"{answer}{errors.read()[-2000:]}"
                raise FailedRunError(f"{side.name} did not finish: {told}")
            result: dict[str, Any] = json.loads(answer)
        finally:
            patience.cancel()
            child.kill()
    if "cannot" in result:
        raise CannotRunError(result["cannot"])
    return result
