"""`chasqui worker` as tests run it: a real supervisor, its real processes, and what they did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from chasquimq.sync import Queue
from tests.cli.kit import COMMAND, PATIENCE_S, Chasqui
from tests.servers import DialectServer

ROOT = Path(__file__).parents[2]
TARGET = "tests.cli.crew_app:worker"


class Run(NamedTuple):
    pid: int
    job_id: str
    name: str


def add(
    server: DialectServer, queue: str, name: str, count: int = 1, data: Any = None
) -> list[str]:
    with Queue(queue, redis_url=server.url, dialect=server.forced_dialect) as door:
        return [job.id for job in door.add_bulk([{"name": name, "data": data}] * count)]


def until(holds: Callable[[], Any], what: str = "") -> Any:
    """Wait until it holds; answers what it answered."""
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := holds()):
        assert time.monotonic() < deadline, f"it never came true: {what or holds}"
        time.sleep(0.02)
    return answer


class Crew:
    """A `chasqui worker` that runs; leaving it ends it."""

    def __init__(
        self,
        chasqui: Chasqui,
        queue: str,
        *args: str,
        target: str = TARGET,
        folder: Path = ROOT,
        command: str = "worker",
        out: Path,
    ) -> None:
        self.queue = queue
        self.server = chasqui.server
        self.client = chasqui.server.client()
        self._log = out / "crew.log"
        self._home = folder
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, command, target, *args],
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**chasqui.env, "CREW_QUEUE": queue},
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def hears(self, text: str) -> None:
        until(lambda: text in self.said or self.has_ended(), text)
        assert text in self.said, self.said

    def begins(self) -> Self:
        self.hears("stop     Ctrl-C")
        return self

    def port(self) -> int:
        """Of its endpoint, as the banner says it."""
        return int(self.said.partition("metrics  http://127.0.0.1:")[2].partition("/")[0])

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def ends(self) -> int:
        until(self.has_ended, f"it has not ended:\n{self.said}")
        return self.process.returncode

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def children(self) -> list[int]:
        """The processes of the crew that live."""
        return [pid for pid in all_processes() if parent_of(pid) == self.process.pid]

    # -- jobs --------------------------------------------------------------------------------------

    def add(self, name: str, count: int = 1, data: Any = None) -> list[str]:
        return add(self.server, self.queue, name, count, data)

    def let_go(self) -> None:
        self.client.set(f"{self.queue}:go", 1)

    @property
    def seen(self) -> list[Run]:
        return self._runs("seen")

    @property
    def ended(self) -> list[Run]:
        return self._runs("ended")

    def _runs(self, what: str) -> list[Run]:
        rows = [row.decode().split() for row in self.client.lrange(f"{self.queue}:{what}", 0, -1)]
        return [Run(int(pid), job_id, name) for pid, job_id, name in rows]

    def waiting(self) -> int:
        return int(self.client.xlen(f"{{chasqui:{self.queue}}}:stream"))

    def pending(self) -> int:
        return int(self.client.xpending(f"{{chasqui:{self.queue}}}:stream", "default")["pending"])

    def reading(self) -> int:
        """How many connections wait for the next job."""
        return sum("b" in one["flags"] for one in self.client.client_list())

    def stops_reading(self, processes: int) -> None:
        """Wait until every process has heard that it ends, and takes no other job.

        That nobody reads is not enough: a process that has not heard it yet reads nothing for a
        moment after each read, and on a busy machine that moment is long.
        """

        def states() -> list[str]:
            told = json.loads(page(self.port(), "/readyz")[1])["processes"]
            return [one["state"] for process in told for one in process.get("workers", ())]

        until(lambda: states() == ["stopping"] * processes, "somebody has not heard it")
        self.nobody_reads()

    def nobody_reads(self) -> None:
        """Wait until no connection waits for a job: for one moment, or for good."""
        until(lambda: not self.reading(), "somebody still reads")

    def consumers(self) -> set[str]:
        rows = self.client.xinfo_consumers(f"{{chasqui:{self.queue}}}:stream", "default")
        return {row["name"].decode() for row in rows}

    # -- its end -----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            print(self.said)
        family = [self.process.pid, *self.children()]
        for pid in family if self.process.poll() is None else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def all_processes() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def parent_of(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[1])


def is_alive(pid: int) -> bool:
    return parent_of(pid) is not None


def page(port: int, path: str) -> tuple[int, str]:
    """A page of the endpoint: its status, and its text; 0 while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def problems(port: int) -> list[str]:
    """What /readyz complains about."""
    status, text = page(port, "/readyz")
    return json.loads(text)["problems"] if status in (200, 503) else ["no answer"]
