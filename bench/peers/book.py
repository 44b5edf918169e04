"""Who is measured beside us: by name and version, and what each promises of a job.

`guarantee` stands beside every number: an acknowledged job and one that is gone when its worker
dies are not the same work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Peer:
    name: str
    child: str  # the programme in this folder
    packages: tuple[str, ...]  # from PyPI, or from npm where `node` is set; exact versions
    guarantee: str
    how: str  # how its worker is run here, as its own pages recommend
    node: bool = False
    # Jobs in one run of about a second, by a name of MEASURED; what is missing it does not do.
    jobs: Mapping[str, int] = field(default_factory=dict)


# What peers are measured in: the child's orders without the address, the payload and the jobs.
MEASURED: dict[str, dict[str, Any]] = {
    "worker-100": {"what": "worker", "concurrency": 100},
    "worker-1": {"what": "worker", "concurrency": 1},
    "sleep": {"what": "worker", "concurrency": 100, "handler": "sleep"},
    "def": {"what": "worker", "concurrency": 100, "handler": "def"},
    "result": {"what": "worker", "concurrency": 100, "handler": "result"},
    "add": {"what": "add"},
    "concurrent": {"what": "concurrent", "size": 100},
    "bulk-50": {"what": "bulk", "size": 50},
    "bulk-1000": {"what": "bulk", "size": 1000},
    "latency": {"what": "latency"},
    "retry": {"what": "retry", "concurrency": 100},
    "delayed": {"what": "delayed", "concurrency": 100},
    "punctual": {"what": "punctual", "concurrency": 100},
}

PEERS: tuple[Peer, ...] = ()
