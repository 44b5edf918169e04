"""How much memory a Python worker of Spark takes at most while it reads or writes.

Workers are forked by a daemon and end with their task (`spark.python.worker.reuse=false`), so each
has a high-water mark of its own; a thread looks at them while the job runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from spark_cases import Stand, drain
from spark_growth import queue_of

CONF = {"spark.python.worker.reuse": "false"}
LOOK_S = 0.01
SIZES = ("1000", "5000", "20000")  # of fetches


class Watch:
    """The highest mark of any Python worker below this process, in MB."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(LOOK_S):
            marks = [_high_water_mb(pid) for pid in _workers(os.getpid())]
            self.peak_mb = max([self.peak_mb, *marks])


def _workers(root: int) -> list[int]:
    """Children of daemons, somewhere below: the daemons themselves run no task."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        told = _read(entry / "stat").rpartition(b") ")[2].split()
        if told:
            parents[int(entry.name)] = int(told[1])

    def is_ours(pid: int) -> bool:
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return [
        pid
        for pid, parent in parents.items()
        if is_ours(pid) and _is_daemon(pid) and _is_daemon(parent)
    ]


def _is_daemon(pid: int) -> bool:
    return b"pyspark.worker" in _read(Path(f"/proc/{pid}/cmdline"))


def _high_water_mb(pid: int) -> float:
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has just ended
        return b""


def peak_mb(run: Callable[[], object]) -> float:
    with Watch() as watch:
        run()
    return watch.peak_mb


def measure(stand: Stand, few: int, many: int) -> list[tuple[str, int, str, float]]:
    """(what, rows, fetchSize, MB) of each trial; `stand` has a session with `CONF`."""
    found = []
    for rows in (few, many):
        for size in SIZES:
            frame = stand.frame("jobs", queue=queue_of(rows), fetchSize=size)
            found.append(("read, JSON", rows, size, peak_mb(partial(drain, frame))))
        found.append(("write, direct", rows, "", peak_mb(partial(stand.write, rows))))
    return sorted(found, key=lambda one: (one[0], one[1], int(one[2] or 0)))
