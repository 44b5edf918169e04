"""What a row costs in small and in large queues: inside a task, and in a whole job."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import spark_field
from spark_cases import Stand, drain

TASK = Path(__file__).with_name("spark_task.py")
WARM, IN = "bench-warm", "bench-task"
WARM_ROWS = 100_000  # until a process has taken the memory of its pages, which it keeps
ONE = 1
CHEAP = {"maxStreamLen": "10000000"}
TASKS: dict[str, tuple[str, dict[str, str]]] = {
    "read, JSON": ("read", {}),
    "read, binary": ("read", {"payloadFormat": "binary"}),
    "write, direct": ("write", CHEAP),
    "write, staged": ("write", CHEAP | {"commitMode": "staged"}),
}


class Cost(NamedTuple):
    what: str
    rows: int
    seconds: float
    cpu: float  # of the task's process; 0 where there are many


def queue_of(rows: int) -> str:
    return f"bench-read-{rows}"


def fill(stand: Stand, sizes: list[int]) -> None:
    spark_field.fill(stand.url, WARM, "jobs", WARM_ROWS)
    for rows in (ONE, *sizes):
        if not stand.client.exists(f"{{chasqui:{queue_of(rows)}}}:stream"):
            spark_field.fill(stand.url, queue_of(rows), "jobs", rows)


def in_a_task(stand: Stand, sizes: list[int]) -> list[Cost]:
    """One after the other, sizes by turns: a fresh process each; one row tells what every task
    costs (with none there would be no task)."""
    found = []
    for rows in (ONE, *sizes):
        for what, (kind, options) in TASKS.items():
            queues = (queue_of(rows), WARM) if kind == "read" else (IN, f"{IN}-warm")
            told = _run(stand, kind, queues, rows, options)
            found.append(Cost(what, rows, told["seconds"], told["cpu"]))
            spark_field.clear(stand.client, IN)
            spark_field.clear(stand.client, f"{IN}-warm")
    return found


def in_a_job(stand: Stand, sizes: list[int]) -> list[Cost]:
    """All of it, from planning to the last row; 0 rows tell what every job costs."""
    found = []
    for rows in (0, *sizes):
        frame = stand.frame("jobs", queue=queue_of(rows))
        begin = time.perf_counter()
        drain(frame)
        found.append(Cost("read, JSON", rows, time.perf_counter() - begin, 0.0))
        if rows:
            found.append(Cost("write, direct", rows, stand.write(rows).seconds, 0.0))
    return found


def _run(
    stand: Stand, kind: str, queues: tuple[str, str], rows: int, options: dict[str, str]
) -> dict[str, Any]:
    queue, warm = queues
    orders = {"what": kind, "url": stand.url, "queue": queue, "warm": warm, "rows": rows}
    orders |= {"warm_rows": WARM_ROWS}
    command = [sys.executable, TASK, json.dumps({**orders, "options": options})]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told
