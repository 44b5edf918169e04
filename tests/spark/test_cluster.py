"""Exactly once on a cluster: executors that are killed in the middle, and writes that race."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import pytest

from chasquimq import wire
from tests.chaos.kit.fleet import ROOT
from tests.chaos.kit.wait import eventually
from tests.servers import DialectServer

ROWS = 8_000
EXECUTOR = b"CoarseGrainedExecutorBackend"
PATIENCE_S = 60.0


class Process(NamedTuple):
    parent: int
    born: int


class Family:
    """Every process that came from one of ours, however soon its parent died."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._known: dict[int, Process] = {}

    def look(self) -> None:
        """Remember who is there now."""
        there = _processes()
        self._known |= {pid: there[pid] for pid in there if self._root in _line(pid, there)}

    def executor_of(self, pid: int) -> int:
        """The JVM in which a Python task of ours runs: one of its parents."""
        line = _line(pid, _processes())
        assert self._root in line, "not a process of this test"
        return next(one for one in line if EXECUTOR in _read(one, "cmdline"))

    def left(self) -> list[int]:
        """A pid may be given to another; then it was born at another time."""
        there = _processes()
        return [
            pid for pid, one in self._known.items() if pid in there and there[pid].born == one.born
        ]


def _processes() -> dict[int, Process]:
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        # State, parent, ... born: after the name, which may hold anything.
        told = _read(int(entry.name), "stat").rpartition(b") ")[2].split()
        if told and told[0] != b"Z":
            found[int(entry.name)] = Process(int(told[1]), int(told[19]))
    return found


def _line(pid: int, there: dict[int, Process]) -> list[int]:
    """A process, its parent, and so on."""
    line = [pid]
    while line[-1] in there:
        line.append(there[line[-1]].parent)
    return line


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has just ended
        return b""


class Cluster:
    """The driver, and all that it starts."""

    def __init__(self, home: Path, program: str = "tests.spark.cluster") -> None:
        self._errors = home / "stderr"
        with self._errors.open("wb") as errors:
            self._child = subprocess.Popen(
                [sys.executable, "-m", program, str(home)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.family = Family(self._child.pid)

    def __enter__(self) -> Self:
        assert self.hear() == "ready"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self._errors.read_text(errors="replace")[-3000:])
        self.family.look()
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            self._child.stdin.close()
            assert self._child.wait(PATIENCE_S) in (0, -signal.SIGKILL)
            eventually(lambda: not self.family.left(), or_say=self.family.left)
        finally:
            self._child.stdout.close()
            for pid in self.family.left():
                os.kill(pid, signal.SIGKILL)
            self._child.wait()

    def kill(self) -> None:
        """The driver alone; what it has started ends by itself."""
        self.family.look()
        self._child.kill()
        self._child.wait()
        eventually(lambda: not self.family.left(), PATIENCE_S, or_say=self.family.left)

    def order(self, **order: Any) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(order) + "\n")
        self._child.stdin.flush()

    def hear(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()


class Gate:
    """Where tasks wait in the middle of their work, and what is in the queue meanwhile."""

    def __init__(self, server: DialectServer, queue: str) -> None:
        self._client: Any = server.client()
        self._stream = wire.Keys(queue).stream
        self.name = f"gate:{queue}"

    def waiting(self, count: int) -> list[list[int]]:
        """Attempt and pid of so many tasks, once they are there."""
        eventually(lambda: self._client.llen(self.name) >= count, PATIENCE_S)
        return [json.loads(told) for told in self._client.lrange(self.name, 0, -1)]

    def open(self) -> None:
        self._client.set(f"{self.name}:open", 1)

    def numbers(self) -> list[int]:
        """The payloads in the queue, as they are in Redis."""
        slots = [
            msgspec.msgpack.decode(fields[b"d"]) for _, fields in self._client.xrange(self._stream)
        ]
        assert len({slot[0] for slot in slots}) == len(slots), "ids are unique"
        return sorted(msgspec.msgpack.decode(slot[1])["n"] for slot in slots)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def test_an_executor_that_is_killed_mid_write_leaves_each_job_once(
    cluster: Cluster, server: DialectServer, queue_name: str
) -> None:
    gate = Gate(server, queue_name)
    cluster.order(
        url=server.url,
        queue=queue_name,
        run="one",
        rows=ROWS,
        parts=2,
        times=1,
        gate=gate.name,
    )
    ((attempt, pid),) = gate.waiting(1)
    assert attempt == 0
    of_this_task = lambda: sum(number < ROWS // 2 for number in gate.numbers())  # noqa: E731
    eventually(of_this_task, PATIENCE_S)
    assert of_this_task() < ROWS // 2, "it is in the middle of its work"
    cluster.family.look()
    os.kill(cluster.family.executor_of(pid), signal.SIGKILL)
    assert [attempt for attempt, _ in gate.waiting(2)] == [0, 1]
    gate.open()
    assert cluster.hear() == "done"
    assert gate.numbers() == list(range(ROWS))


def test_two_writes_of_one_run_that_race_are_one(
    cluster: Cluster, server: DialectServer, queue_name: str
) -> None:
    """As two attempts of a task do, of which the first was given up too early."""
    gate = Gate(server, queue_name)
    cluster.order(
        url=server.url,
        queue=queue_name,
        run="one",
        rows=ROWS,
        parts=1,
        times=2,
        gate=gate.name,
    )
    assert len({pid for _, pid in gate.waiting(2)}) == 2, "they run at the same time"
    gate.open()
    assert cluster.hear() == "done"
    assert gate.numbers() == list(range(ROWS))
