"""Worker processes: started, killed and mourned by pid.

A process says `ready` on its standard output; what it writes on its standard error is kept and
shown when something goes wrong. Its standard input is a pipe from here, so it also ends when
this process is killed. Every death is noted in the ledger after the kernel confirmed it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chaos.kit.handler import Behaviour
from tests.chaos.kit.ledger import Ledger, open_runs
from tests.chaos.kit.wait import eventually

ROOT = Path(__file__).parents[3]
OUR_WORKER = "tests.chaos.kit.program"
WEAK_WORKER = "tests.chaos.kit.weak"
SENTRY = "tests.chaos.kit.sentry"


@dataclass(frozen=True)
class Orders:
    """All a worker process is told; its one argument, as JSON."""

    url: str
    queue: str
    ledger: str
    concurrency: int = 8
    max_attempts: int = 25
    claim_min_idle_ms: int = 1000
    consumer_id: str | None = None
    dialect: str | None = None
    behaviour: Behaviour = field(default_factory=Behaviour)
    weakness: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    """More options of the Worker, by name. What follows is for a sentry."""
    tune: dict[str, float] = field(default_factory=dict)
    """Constants of the engine to change, `module.NAME`."""
    dies: str = ""
    """The loop of the engine that raises when the gate `die` is open."""
    sets_out: str = ""
    """The gate before which it waits, ready, until it may run."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Orders:
        told = json.loads(text)
        told["behaviour"] = Behaviour(**told["behaviour"])
        told["weakness"] = tuple(told["weakness"])
        return cls(**told)


def obey_parent() -> None:
    """In a worker process: end, hard, when the other end of standard input closes."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(3)

    threading.Thread(target=watch, name="obey_parent", daemon=True).start()


class Process:
    """A child that said it is ready."""

    def __init__(
        self, command: Sequence[str], stderr: Path, environment: dict[str, str] | None = None
    ) -> None:
        self._stderr = stderr
        with stderr.open("ab") as errors:
            self._child = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.pid = self._child.pid

    def wait_ready(self) -> None:
        assert self._child.stdout is not None
        if self._child.stdout.readline().strip() != b"ready":
            self.kill()
            raise AssertionError(f"a worker process did not become ready:\n{self.errors}")

    @property
    def is_alive(self) -> bool:
        return self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._child.poll()

    @property
    def errors(self) -> str:
        """The end of what it wrote on its standard error."""
        return self._stderr.read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        self._child.kill()
        self._gone(None)

    def ask_to_stop(self) -> None:
        self._child.terminate()

    def terminate(self, timeout: float = 30.0) -> int:
        """Ask it to stop and wait; returns its exit code, fails if it will not go."""
        self.ask_to_stop()
        try:
            return self._gone(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            message = f"pid {self.pid} was still there {timeout:g} s after SIGTERM"
            raise AssertionError(f"{message}:\n{self.errors}") from None

    def pause(self) -> None:
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def _gone(self, timeout: float | None) -> int:
        code = self._child.wait(timeout)
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        return code


class Fleet:
    """The worker processes of one run; leaving the block kills what still lives."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._members: list[Process] = []
        self._buried: set[int] = set()

    def start(
        self, orders: Orders, *, module: str = OUR_WORKER, python: str | None = None
    ) -> Process:
        """Start a worker of ours, or `module` under another interpreter; returns once ready."""
        return self.start_many([orders], module=module, python=python)[0]

    def start_many(
        self, orders: Sequence[Orders], *, module: str = OUR_WORKER, python: str | None = None
    ) -> list[Process]:
        started = []
        for order in orders:
            command = [python or sys.executable, "-m", module, order.to_json()]
            stderr = Path(f"{self.ledger.path}.stderr-{len(self._members)}")
            member = Process(command, stderr, environment(ours=python is None))
            self._members.append(member)
            started.append(member)
        for member in started:
            member.wait_ready()
        return started

    @property
    def alive(self) -> list[Process]:
        return [member for member in self._members if member.is_alive]

    @property
    def errors(self) -> str:
        return "\n".join(member.errors for member in self._members)[-8000:]

    def kill(self, member: Process) -> None:
        """kill -9, and the note that its runs are over."""
        self.ledger.fault(f"kill -9 {member.pid}")
        member.kill()
        self._bury(member)

    def kill_at_work(self, member: Process) -> int:
        """kill -9 at a moment when handlers are running; returns how many that cut short."""

        def caught_working() -> int:
            member.pause()
            cut_short = open_runs(self.ledger.path, member.pid)
            if not cut_short:
                member.resume()
            return cut_short

        cut_short = eventually(caught_working, or_say=lambda: member.errors)
        self.kill(member)
        return cut_short

    def terminate(self, member: Process, timeout: float = 30.0) -> int:
        self.ledger.fault(f"SIGTERM {member.pid}")
        code = member.terminate(timeout)
        self._bury(member)
        return code

    def bury_the_dead(self) -> list[Process]:
        """Note those that ended by themselves since last asked, and return them."""
        gone = [m for m in self._members if not m.is_alive and m.pid not in self._buried]
        for member in gone:
            member.kill()
            self._bury(member)
        return gone

    def stop(self) -> None:
        for member in self._members:
            member.kill()
            self._bury(member)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is not None and self.errors.strip():
            error.add_note(f"what the workers said:\n{self.errors}")
        self.stop()

    def _bury(self, member: Process) -> None:
        if member.pid not in self._buried:
            self._buried.add(member.pid)
            self.ledger.dead(member.pid)


def environment(*, ours: bool) -> dict[str, str]:
    """Ours finds the package in the source tree, or where we were told to find it, as with a
    defect (`tests/mutants`); another interpreter must not find it."""
    if ours:
        inherited = os.environ.get("PYTHONPATH", "")
        path = os.pathsep.join(filter(None, [inherited, str(ROOT / "src")]))
        return {**os.environ, "PYTHONPATH": path}
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
