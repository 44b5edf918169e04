"""The ledger: what producers were told and what handlers did, one JSON line per fact.

Many processes append to one file. A line is one `write` to an O_APPEND descriptor, shorter than
a page: it is there whole or not at all, also when its writer is killed, and the order of the
lines is the order of the facts. Only who reads at that very moment may see no more of the last
one than what lies on the page before. Standard library only, because programs without our package
write here too.

    attempted job          a producer is about to add
    accepted job           ... and was told yes
    refused job            ... was told no: nothing was written
    unconfirmed job        ... was told neither
    start job run          a handler began
    end job run            ... and did its work
    failed job run         ... and raised, or was cancelled
    lost job run           ... and had been told, before, that this run counts no longer
    dead                   this process is gone: the runs it left open are closed
    frozen                 this process stands still: what it runs may be taken over
    thawed                 ... goes on, and has had the time to hear of that
    fault what             something was broken here
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

PAGE = 4096
MOMENT_S = 1.0  # in which a write that has begun is over, on any machine


@dataclass(frozen=True)
class Record:
    event: str
    job: str
    run: str
    pid: int
    at_ns: int


class Ledger:
    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._runs = count(1)

    def attempted(self, job: str) -> None:
        self._write("attempted", job)

    def accepted(self, job: str) -> None:
        self._write("accepted", job)

    def refused(self, job: str) -> None:
        self._write("refused", job)

    def unconfirmed(self, job: str) -> None:
        self._write("unconfirmed", job)

    def start(self, job: str) -> str:
        """Note that a handler began; returns the token that names this run."""
        run = f"{os.getpid()}.{next(self._runs)}"
        self._write("start", job, run)
        return run

    def end(self, job: str, run: str) -> None:
        self._write("end", job, run)

    def failed(self, job: str, run: str) -> None:
        self._write("failed", job, run)

    def lost(self, job: str, run: str) -> None:
        self._write("lost", job, run)

    def dead(self, pid: int) -> None:
        self._write("dead", pid=pid)

    def frozen(self, pid: int) -> None:
        self._write("frozen", pid=pid)

    def thawed(self, pid: int) -> None:
        self._write("thawed", pid=pid)

    def fault(self, what: str) -> None:
        self._write("fault", what)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, event: str, job: str = "", run: str = "", pid: int = 0) -> None:
        fact = (event, job, run, pid or os.getpid(), time.monotonic_ns())
        line = json.dumps(fact).encode() + b"\n"
        if len(line) > PAGE:
            raise ValueError(f"a ledger line has {len(line)} bytes, limit is {PAGE}")
        if os.write(self._file, line) != len(line):
            raise OSError(f"{self.path} took only a part of a line")


def read(path: Path | str) -> Iterator[Record]:
    """Every fact, in order. A line that cannot be read is an error: the ledger is evidence."""
    for number, line in enumerate(_lines(path), 1):
        try:
            yield Record(*json.loads(line))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}:{number} is not a fact: {line[:80]!r}") from error


def open_runs(path: Path | str, pid: int) -> int:
    """How many handlers a process is in the middle of, as far as it has told."""
    begun, over = set(), set()
    # The process waits, stopped, for this answer: only its own lines are worth parsing.
    for line in filter(lambda line: b", %d, " % pid in line, _lines(path)):
        event, _, run, *_ = json.loads(line)
        if event == "start":
            begun.add(run)
        elif event in ("end", "failed"):
            over.add(run)
    return len(begun - over)


def tally(path: Path | str) -> Counter[str]:
    """How many facts of each kind there are so far; the cheap question to poll on."""
    kinds: Counter[str] = Counter()
    for line in _lines(path):
        kinds[line[2 : line.index(b'"', 2)].decode()] += 1
    return kinds


def _lines(path: Path | str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while line := file.readline():
            deadline = time.monotonic() + MOMENT_S
            while not line.endswith(b"\n") and time.monotonic() < deadline:
                time.sleep(0.001)
                line += file.readline()
            yield line
