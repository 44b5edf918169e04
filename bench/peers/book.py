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

PEERS: tuple[Peer, ...] = (
    Peer(
        "saq",
        "saq_child.py",
        (
            "saq[redis]==0.26.4",
            "redis==7.4.1",
            "hiredis==3.5.0",
            "typing_extensions==4.16.0",  # which it imports and does not ask for
            "uvloop==0.23.0",
        ),
        guarantee="kept in a list while its handler runs; what is past its time limit (10 s) is"
        " found within a minute and run again if it has retries, which by default it has not",
        how="Worker on an event loop, `concurrency` tasks; ttl -1: no results kept unless measured",
        jobs={
            "worker-100": 1_500,
            "worker-1": 1_000,
            "sleep": 1_500,
            "def": 1_500,
            "result": 1_500,
            "add": 5_000,
            "concurrent": 5_000,
            "latency": 100,
            "retry": 600,
            "delayed": 1_500,
            "punctual": 100,
        },
    ),
    Peer(
        "streaq",
        "streaq_child.py",
        ("streaq==7.2.0", "coredis==6.9.0", "anyio==4.16.0", "uvloop==0.23.0"),
        guarantee="acked after the handler; what its worker does not renew for 60 s is run again,"
        " three times at most",
        how="Worker on an event loop, as many jobs ahead as it runs at a time (its default);"
        " ttl 0: no results kept unless measured; silent: no lines for a log",
        jobs={
            "worker-100": 1_000,
            "worker-1": 500,
            "sleep": 1_000,
            "def": 800,
            "result": 1_000,
            "add": 3_500,
            "concurrent": 6_000,
            "bulk-50": 10_000,
            "bulk-1000": 15_000,
            "latency": 100,
            "retry": 600,
            "delayed": 1_000,
            "punctual": 100,
        },
    ),
    Peer(
        "huey",
        "huey_child.py",
        ("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0"),
        guarantee="popped before the handler, never acked: lost when the worker dies",
        how="Consumer with `concurrency` threads (greenlets were slower); no results kept unless"
        " measured",
        jobs={
            "worker-100": 5_000,
            "worker-1": 2_500,
            "sleep": 5_000,
            "def": 5_000,
            "result": 3_500,
            "add": 12_000,
            "latency": 100,
            "retry": 1_500,
            "delayed": 3_000,
            "punctual": 100,
        },
    ),
    Peer(
        "bullmq-py",
        "bullmq_py_child.py",
        ("bullmq==3.4.4", "redis==8.1.0", "hiredis==3.5.0", "uvloop==0.23.0"),
        guarantee="locked while its handler runs (30 s, renewed); what loses its lock is run again,"
        " once at most",
        how="Worker on an event loop, plain functions by run_in_executor; removeOnComplete unless"
        " results are measured; its events cannot be turned off",
        jobs={
            "worker-100": 1_500,
            "worker-1": 2_000,
            "sleep": 1_500,
            "def": 1_500,
            "result": 1_500,
            "add": 6_000,
            "concurrent": 6_000,
            "bulk-50": 15_000,
            "bulk-1000": 15_000,
            "latency": 100,
            "retry": 800,
            "delayed": 1_500,
            "punctual": 100,
        },
    ),
    Peer(
        "bullmq",
        "bullmq_child.mjs",
        ("bullmq@6.7.0", "ioredis@6.0.0"),
        guarantee="locked while its handler runs (30 s, renewed); what loses its lock is run again,"
        " once at most",
        how="Worker on Node; removeOnComplete unless results are measured; its events cannot be"
        " turned off",
        node=True,
        jobs={
            "worker-100": 12_000,
            "worker-1": 4_000,
            "sleep": 10_000,
            "result": 12_000,
            "add": 6_000,
            "concurrent": 20_000,
            "bulk-50": 20_000,
            "bulk-1000": 20_000,
            "latency": 100,
            "retry": 2_000,
            "delayed": 4_000,
            "punctual": 100,
        },
    ),
)
