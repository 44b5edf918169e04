"""One side of the river: a process that adds, inspects and works with one implementation.

The same `driver` runs under our interpreter and under the reference's, and with an earlier version
of ours; whatever one side can be asked, the others can be asked too.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.chaos.kit.fleet import ROOT, environment
from tests.chaos.kit.wait import eventually
from tests.interop.driver import pack, unpack
from tests.interop.earlier import source
from tests.interop.reference import interpreter


class Seen(NamedTuple):
    """A job as a handler saw it, or as `add` returned it. A native one's data are bytes."""

    id: str
    name: str
    data: Any
    attempt: int
    created_at_ms: int


class Told(NamedTuple):
    """An event as a follower got it."""

    name: str
    job_id: str | None
    job_name: str
    fields: dict[str, Any]


class Side:
    """A process on one queue: producer, inspector and, when asked, worker."""

    def __init__(self, name: str, url: str, queue: str, stderr: Path) -> None:
        self.is_ours = name != "reference"
        self._name = name
        self._stderr = stderr
        python = sys.executable if self.is_ours else str(interpreter())
        environ = environment(ours=self.is_ours)
        if name == "earlier":
            environ["PYTHONPATH"] = str(source())
        with stderr.open("ab") as errors:
            self._child = subprocess.Popen(
                [python, "-m", "tests.interop.driver", url, queue],
                cwd=ROOT,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        if self._read_line().strip() != "ready":
            raise AssertionError(f"{self._name} did not start:\n{self.errors}")

    @property
    def errors(self) -> str:
        return self._stderr.read_text(errors="replace")[-2000:]

    def about(self) -> dict[str, str]:
        """The version that answers, and the file it was imported from."""
        return dict(self._ask("about"))

    def add(self, name: str, data: Any, **options: Any) -> Seen:
        return Seen(**self._ask("add", name=name, data=data, **options))

    def add_unique(self, name: str, data: Any, **options: Any) -> Seen:
        return Seen(**self._ask("add_unique", name=name, data=data, **options))

    def add_bulk(self, jobs: list[dict[str, Any]]) -> list[Seen]:
        return [Seen(**job) for job in self._ask("add_bulk", jobs=jobs)]

    def cancel_delayed(self, job_id: str) -> bool:
        return bool(self._ask("cancel_delayed", job_id=job_id))

    def reschedule(self, job_id: str, delay_ms: int) -> bool:
        """As only ours can; and so with `run_now`."""
        return bool(self._ask("reschedule", job_id=job_id, delay_ms=delay_ms))

    def run_now(self, job_id: str) -> bool:
        return bool(self._ask("run_now", job_id=job_id))

    def peek_dlq(self, limit: int = 20) -> list[dict[str, Any]]:
        return list(self._ask("peek_dlq", limit=limit))

    def replay_dlq(self, limit: int = 100) -> int:
        return int(self._ask("replay_dlq", limit=limit))

    def get_job_result(self, job_id: str) -> Any:
        return self._ask("get_job_result", job_id=job_id)

    def get_job_result_bulk(self, ids: list[str]) -> list[Any]:
        return list(self._ask("get_job_result_bulk", ids=ids))

    def wait_for_result(self, job: Seen, **options: Any) -> Any:
        """Wait for a job that `add` returned to this side."""
        return self._ask("wait_for_result", job_id=job.id, **options)

    def work(self, *, fail_below: int = 0, unrecoverable: bool = False, **options: Any) -> None:
        """Start a worker whose attempts below `fail_below`, or all for good, fail."""
        self._ask("work", fail_below=fail_below, unrecoverable=unrecoverable, **options)

    def produce(self, method: str, *arguments: Any) -> Any:
        """Call a method of the native producer."""
        return self._ask("produce", method=method, arguments=list(arguments))

    def consume(
        self, returns: list[tuple[bytes, Any]] | None = None, *, fail_below: int = 0, **options: Any
    ) -> None:
        """Start a native consumer; its handler finds by its payload what it returns."""
        self._ask("consume", returns=returns or [], fail_below=fail_below, **options)

    def promote(self, **options: Any) -> None:
        """Start a promoter of ours."""
        self._ask("promote", **options)

    def upsert(self, name: str | None, data: Any, **options: Any) -> str:
        """Write a spec; answers its key."""
        return str(self._ask("upsert", name=name, data=data, **options))

    def repeatables(self) -> list[dict[str, Any]]:
        return list(self._ask("repeatables"))

    def remove_repeatable(self, key: str) -> bool:
        return bool(self._ask("remove_repeatable", key=key))

    def pause_repeatable(self, key: str) -> bool:
        """As only ours can; and so with `resume_repeatable` and `run_repeatable_now`."""
        return bool(self._ask("pause_repeatable", key=key))

    def resume_repeatable(self, key: str) -> bool:
        return bool(self._ask("resume_repeatable", key=key))

    def run_repeatable_now(self, key: str) -> str:
        return str(self._ask("run_repeatable_now", key=key))

    def schedule(self, **options: Any) -> None:
        """Start a native scheduler."""
        self._ask("schedule", **options)

    def rest_scheduler(self) -> None:
        """Stop the native scheduler as a user would."""
        self._ask("rest_scheduler")

    def ended(self) -> str | None:
        """How the scheduler ended by itself; None: it runs."""
        answer = self._ask("ended")
        return None if answer is None else str(answer)

    def freeze(self) -> None:
        """Let the process stand still, as on a machine that is swapped out."""
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def seen(self) -> list[Seen]:
        return [Seen(**job) for job in self._ask("seen")]

    def wait_seen(self, runs: int, timeout: float = 20.0) -> list[Seen]:
        """What its handler saw, once it has run that often."""
        eventually(lambda: len(self.seen()) >= runs, timeout, or_say=lambda: self.seen())
        return self.seen()

    def follow(self, **options: Any) -> None:
        """Start to follow the queue's events."""
        self._ask("follow", **options)

    def told(self) -> list[Told]:
        """What its follower got so far."""
        return [Told(**event) for event in self._ask("told")]

    def rest(self) -> None:
        """Stop the worker as a user would."""
        self._ask("rest")

    def stop(self) -> None:
        """End the process, hard: a reference worker that was closed reads on for a while."""
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self.errors.strip():
            error.add_note(f"what {self._name} said:\n{self.errors}")
        self.stop()

    def _ask(self, do: str, **arguments: Any) -> Any:
        assert self._child.stdin is not None
        self._child.stdin.write(pack({"do": do, "with": arguments}) + "\n")
        self._child.stdin.flush()
        line = self._read_line()
        if not line:
            raise AssertionError(f"{self._name} ended during {do!r}:\n{self.errors}")
        answer = unpack(line)
        if "error" in answer:
            raise RuntimeError(f"{self._name}: {do!r} failed: {answer['error']}")
        return answer["value"]

    def _read_line(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline()
