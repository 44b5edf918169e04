"""A queue on a real server, as synchronous tests work with it, and programs that use it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from chasquimq import wire
from chasquimq.sync import Queue
from tests.engine.desk import Desk
from tests.examples.page import ROOT
from tests.servers import DialectServer

PROGRAM_S = 60.0

# As strict as Python can be: what is not closed, or not awaited, is written to stderr.
STRICT = ("-X", "dev", "-W", "error", "-W", "ignore:This process:DeprecationWarning")
SLOW = "Executing <"  # said by asyncio's debug mode where the machine is busy

PRELUDE = """\
import atexit, gc, multiprocessing, os, signal, sys, threading, time
from chasquimq.sync import Queue
from chasquimq import ChasquiError, ShutdownError
from tests.sync.said import ask, say, wait_for_child

def open_queue(name={name!r}, **options):
    return Queue(name, **({{"redis_url": {url!r}, "dialect": {dialect!r}}} | options))

"""


class Counter:
    def __init__(self, server: DialectServer, queue_name: str, folder: Path) -> None:
        self.desk = Desk(server, queue_name)
        self.server = server
        self.redis = self.desk.redis
        self.name = queue_name
        self._folder = folder
        self._others = self.connections()

    def queue(self, **options: Any) -> Queue:
        options.setdefault("redis_url", self.server.url)
        return Queue(self.name, dialect=self.server.forced_dialect, **options)

    def connections(self) -> set[str]:
        return {client["id"] for client in self.redis.client_list()}

    def ours(self) -> set[str]:
        """The connections that were opened since the test began."""
        return self.connections() - self._others

    def added(self) -> list[Any]:
        """The data of all jobs that wait, in order."""
        return [wire.decode(envelope.payload) for envelope in self.desk.envelopes()]

    # -- programs --------------------------------------------------------------------------------

    @contextmanager
    def program(self, code: str, url: str | None = None) -> Iterator[Program]:
        """A program that runs for the block, at least."""
        file = self._folder / "program.py"
        url, dialect = url or self.server.url, self.server.forced_dialect
        file.write_text(PRELUDE.format(name=self.name, url=url, dialect=dialect) + code)
        running = subprocess.Popen(
            [sys.executable, *STRICT, file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{ROOT}"},
        )
        try:
            yield Program(running)
        finally:
            running.kill()
            running.communicate()

    def run(self, code: str, url: str | None = None) -> Ended:
        with self.program(code, url) as program:
            return program.end()


class Ended:
    def __init__(self, code: int, out: str, err: str, took_s: float) -> None:
        self.code = code
        self.out = out.splitlines()
        self.err = "\n".join(line for line in err.splitlines() if not line.startswith(SLOW))
        self.took_s = took_s

    def cleanly(self) -> list[str]:
        """What it said, if it had nothing to complain of."""
        assert (self.code, self.err) == (0, "")
        return self.out


class Program:
    """A program that runs: it says a line and waits for one, by what is in `said.py`."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self.pid = running.pid
        self._running = running
        self._said: list[str] = []

    def until(self, said: str) -> None:
        """Read until it says this."""
        assert self._running.stdout is not None
        for line in self._running.stdout:
            if line.strip() == said:
                return
            self._said.append(line)
        raise AssertionError(f"it never said {said!r}\n{self.end().err}")

    def go_on(self) -> None:
        assert self._running.stdin is not None
        self._running.stdin.write("\n")
        self._running.stdin.flush()

    def signal(self, name: str) -> None:
        self._running.send_signal(signal.Signals[name])

    def end(self) -> Ended:
        begin = time.monotonic()
        out, err = self._running.communicate(timeout=PROGRAM_S)
        took_s = time.monotonic() - begin
        return Ended(self._running.returncode, "".join(self._said) + out, err, took_s)


def eventually(holds: Callable[[], Any], timeout_s: float = 20.0) -> None:
    """Poll until it holds; the timeout only ends a test that would fail anyway."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.01)


def killed(client: redis.Redis, ids: set[str]) -> None:
    for client_id in ids:
        client.client_kill_filter(_id=client_id)
