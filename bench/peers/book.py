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
    Peer(
        "celery",
        "celery_child.py",
        ("celery[redis]==5.7.0", "redis==8.1.0", "hiredis==3.5.0"),
        guarantee="acked just before its handler starts (`acks_late` is off by default): lost when"
        " the worker dies; what was fetched and not started is run again after 1 h",
        how="worker with `concurrency` threads, the solo pool for one at a time; no gossip, mingle"
        " and heartbeat; no results kept unless measured",
        jobs={
            "worker-100": 2_000,
            "worker-1": 2_000,
            "sleep": 1_500,
            "def": 2_000,
            "result": 1_200,
            "add": 3_000,
            "latency": 100,
            "retry": 350,
            "delayed": 1_500,
            "punctual": 100,
        },
    ),
    Peer(
        "arq",
        "arq_child.py",
        ("arq==0.28.0", "redis==5.3.1", "hiredis==3.5.0", "uvloop==0.23.0"),
        guarantee="stays queued until its handler has ended; a dead worker's mark on it lasts for"
        " `job_timeout` + 10 s (310 s by default), then it is run again",
        how="Worker on an event loop that polls each 10 ms (default: 500 ms, less than half as"
        " fast); one at a time means one job a poll; no results kept unless measured",
        jobs={
            "worker-100": 2_500,
            "worker-1": 100,
            "sleep": 2_500,
            "def": 2_500,
            "result": 2_500,
            "add": 4_500,
            "concurrent": 6_000,
            "latency": 100,
            "retry": 1_200,
            "delayed": 2_000,
            "punctual": 100,
        },
    ),
    Peer(
        "taskiq",
        "taskiq_child.py",
        (
            "taskiq==0.13.0",
            "taskiq-redis==1.2.4",
            "redis==8.1.0",
            "hiredis==3.5.0",
            "uvloop==0.23.0",
        ),
        guarantee="acked after the handler; another worker claims what is not acked for 10 min",
        how="RedisStreamBroker, receiver on an event loop, 100 ahead; it never trims its stream"
        " here; its scheduler for delayed jobs looks each second, in the same process; no results"
        " kept unless measured",
        jobs={
            "worker-100": 4_500,
            "worker-1": 4_000,
            "sleep": 4_500,
            "def": 3_500,
            "result": 2_700,
            "add": 5_000,
            "concurrent": 7_000,
            "latency": 100,
            "retry": 1_500,
            "delayed": 1_000,
            "punctual": 100,
        },
    ),
    Peer(
        "dramatiq",
        "dramatiq_child.py",
        ("dramatiq[redis]==2.2.1", "redis==8.1.0", "hiredis==3.5.0"),
        guarantee="acked after the handler; what a worker held is run again when it has not been"
        " heard of for 60 s",
        how="Worker with `concurrency` threads, 200 messages ahead (default: two a thread), a"
        " connection for each thread; it looks each 50 ms when idle (default: 1 s); no results"
        " kept unless measured",
        jobs={
            "worker-100": 7_000,
            "worker-1": 10_000,
            "sleep": 6_000,
            "def": 7_000,
            "result": 4_000,
            "add": 10_000,
            "latency": 100,
            "retry": 1_500,
            "delayed": 1_500,
            "punctual": 100,
        },
    ),
    Peer(
        "rq",
        "rq_child.py",
        ("rq==2.12.0", "redis==8.1.0", "hiredis==3.5.0"),
        guarantee="leaves the queue before the handler; the job of a dead worker is found when its"
        " mark expires and run again if it has retries, else marked as failed",
        how="SimpleWorker, six times as fast as one that forks, by its own page; one job at a"
        " time, whatever the concurrency; its scheduler, a process of its own, looks each second"
        " and drops fractions of seconds; no results kept unless measured",
        jobs={
            "worker-100": 700,
            "worker-1": 700,
            "sleep": 350,
            "def": 700,
            "result": 750,
            "add": 4_500,
            "bulk-50": 15_000,
            "bulk-1000": 15_000,
            "latency": 100,
            "retry": 350,
            "delayed": 500,
            "punctual": 100,
        },
    ),
)
