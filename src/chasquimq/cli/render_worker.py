"""What `chasqui worker` says when it begins and when it ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chasquimq.cli.render import ago
from chasquimq.text import shown


class Start(NamedTuple):
    """What there is to say of a crew that has begun."""

    version: str
    target: str
    servers: Sequence[tuple[str, str]]  # the address without its secret, and the dialect
    queues: Sequence[tuple[str, int]]  # with the concurrency of each process
    processes: int
    loop: str
    metrics: str | None = None
    watched: Sequence[str] = ()
    burst: bool = False
    notes: Sequence[str] = ()


def banner(start: Start) -> str:
    servers = dict.fromkeys(f"{shown(address)} ({dialect})" for address, dialect in start.servers)
    queues = ", ".join(f"{shown(name, 80)} ({count} at a time)" for name, count in start.queues)
    processes = f"{start.processes} process{'' if start.processes == 1 else 'es'}, {start.loop}"
    rows = [
        ("server", ", ".join(servers)),
        ("queue" if len(start.queues) == 1 else "queues", queues),
        ("runs in", processes + (", until the queue is empty" if start.burst else "")),
    ]
    if start.metrics:
        rows.append(("metrics", f"{start.metrics}/metrics, {start.metrics}/readyz"))
    if start.watched:
        rows.append(("reloads", "when a Python file changes in " + ", ".join(start.watched)))
    rows += [("note", shown(note)) for note in dict.fromkeys(start.notes)]
    if not start.burst:
        rows.append(("stop", "Ctrl-C: running jobs may end. Twice: they are given back"))
    wide = max(len(name) for name, _ in rows)
    lines = [f"chasqui {start.version} runs {shown(start.target)}"]
    return "\n".join([*lines, *(f"  {name.ljust(wide)}  {text}" for name, text in rows)])


def summary(jobs: int, failed: int, crashes: int, took_s: float) -> str:
    """`jobs` are runs that ended, `failed` those of them that failed."""
    crashed = f", {crashes} crash{'' if crashes == 1 else 'es'}" if crashes else ""
    done = jobs - failed
    return (
        f"{done} job{'' if done == 1 else 's'} done, {failed} run{'' if failed == 1 else 's'} "
        f"failed{crashed}, in {ago(int(took_s * 1000))}"
    )
