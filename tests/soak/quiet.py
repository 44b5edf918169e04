"""How processes and server are when nothing happens: what must be as it was before the faults."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chasquimq import wire

# Of ids that were added: they go after their time, which is none of a soak's business.
MARKERS = (b"dlid:", b"didx:", b"idmp:")
LIMITS = {
    "rss_kb": 16_384,  # lists that were longer in an outage leave their pages behind
    "handles": 3,
    "threads": 0,
    "clients": 3,
    "consumers": 0,
    "keys": 1,
    "results": 0,
}


class Quiet(NamedTuple):
    """Of the workers the largest."""

    rss_kb: int
    handles: int
    threads: int
    clients: int
    consumers: int
    keys: int
    results: int

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:,}" for name, value in self._asdict().items())


class Body(NamedTuple):
    """What a process has, as the kernel tells."""

    rss_kb: int
    handles: int
    threads: int


def body(pid: int) -> Body:
    status = Path(f"/proc/{pid}/status").read_text()
    facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    rss = int(facts["VmRSS"].split()[0])
    return Body(rss, len(os.listdir(f"/proc/{pid}/fd")), int(facts["Threads"]))


def look(client: Any, keys: wire.Keys, pids: Sequence[int]) -> Quiet:
    bodies = [body(pid) for pid in pids]
    names = [bytes(name).removeprefix(keys.tag) for name in client.scan_iter(count=1_000)]
    return Quiet(
        rss_kb=max(one.rss_kb for one in bodies),
        handles=max(one.handles for one in bodies),
        threads=max(one.threads for one in bodies),
        clients=len(client.client_list()),
        consumers=len(client.xinfo_consumers(keys.stream, "default")),
        keys=sum(not name.startswith((*MARKERS, b"result:")) for name in names),
        results=sum(name.startswith(b"result:") for name in names),
    )


def worse(before: Quiet, now: Quiet) -> list[str]:
    """What is more than it was, and by how much."""
    found = []
    for name, limit in LIMITS.items():
        grown = getattr(now, name) - getattr(before, name)
        if grown > limit:
            found.append(f"I10 {name}: {grown:+,}, at most {limit:+,}")
    return found
