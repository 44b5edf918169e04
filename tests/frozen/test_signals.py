"""How our processes end when a signal comes; below zero: it killed them.

Guards "signals" of what must not change, as far as a process shows it from outside. What a signal
does with jobs, and what a second one does: `tests/cli/test_worker.py`, `test_supervisor.py` (the
exchange on SIGHUP too) and `tests/engine/test_run_workers.py`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial

from tests.cli.kit import COMMAND, Chasqui, following
from tests.engine.desk import Desk
from tests.frozen.lists import compare
from tests.house.tree import ROOT
from tests.servers import DIALECTS, Servers

# What runs until a signal comes, and a word of the line that says that it runs.
PROGRAMS = {
    "chasqui events": ([*COMMAND, "events", "frozen", "--from", "0"], "drained"),
    "chasqui server": ([*COMMAND, "server"], "redis://"),
    "chasqui watch": ([*COMMAND, "watch", "--json"], '"queues"'),
    "chasqui worker": ([*COMMAND, "worker", "tests.frozen.app:worker"], " runs "),
    "run_workers": ([sys.executable, "-m", "tests.frozen.app"], "ready"),
}
SIGNALS = (signal.SIGINT, signal.SIGTERM)
started = partial(following, stderr=subprocess.STDOUT, cwd=ROOT)


def test_signals_do_what_the_list_says(servers: Servers) -> None:
    with servers.private(DIALECTS[0]) as server, ExitStack() as stack:
        Desk(server, "frozen").redis.xadd("{chasqui:frozen}:events", {"e": "drained", "id": ""})
        env = Chasqui(server).env | {"PYTHONUNBUFFERED": "1"}
        running = [
            (f"{name}: {number.name}", stack.enter_context(started(argv, env)), ready, number)
            for name, (argv, ready) in PROGRAMS.items()
            for number in SIGNALS
        ]
        lines = [f"{title} {what_follows(*rest)}" for title, *rest in running]
    compare("signals", lines)


def what_follows(process: subprocess.Popen[bytes], ready: str, number: signal.Signals) -> str:
    """How a process ends when a signal comes once it runs."""
    assert process.stdout is not None
    said = ""
    while ready not in said:
        line = process.stdout.readline().decode()
        assert line, f"it ended, or was silent for too long: {said}"
        said += line
    process.send_signal(number)
    process.stdout.read()
    return f"exit code {process.wait()}"
