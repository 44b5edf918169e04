"""End the programs that tests left running.

Servers and workers end by themselves when whoever started them is gone. A plain program does not:
should one of several test processes crash, or be interrupted in the middle of an example, it would
stay for ever. So every program inherits the name of the test run, by which the process that tells
the run's end finds it (on Linux; elsewhere this does nothing).
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path

import pytest

RUN = "CHASQUI_TEST_RUN"
PATIENCE_S = 7.0  # most end by themselves; a guard gives its server five seconds


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # which only those have that were started by another
        config.pluginmanager.register(Orphans(uuid.uuid4().hex), "orphans")


class Orphans:
    def __init__(self, run: str) -> None:
        self._named = f"{RUN}={run}\0".encode()
        self._ended: list[str] = []
        os.environ[RUN] = run

    @pytest.hookimpl(trylast=True)  # when fixtures are closed and other processes are told to end
    def pytest_sessionfinish(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for program in left:
            self._ended.append(f"{program.name} {_read(program / 'cmdline').decode()}")
            try:
                os.kill(int(program.name), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._ended:
            terminalreporter.section("programs that tests left running, and that were killed")
            for program in self._ended:
                terminalreporter.line(program.replace("\0", " "))

    def _left(self) -> list[Path]:
        # What this process was given is what /proc shows of it: it does not find itself.
        return [it for it in Path("/proc").glob("[0-9]*") if self._named in _read(it / "environ")]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has just ended, or is somebody else's
        return b""
