"""What the full benchmark measures, and which ratios it is after.

A case is measured with every side that takes part in it, one after the other in each round. Sides
get different numbers of jobs, so that each run lasts about a second: what is compared are rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from arena import QUEUE, Fill
from scenarios import PAYLOAD

OURS, OURS_UVLOOP, OURS_VALKEY = "ours", "ours on uvloop", "ours on Valkey"
REFERENCE, TUNED = "reference", "reference tuned"
LIMIT, LOOP = "limit", "event loop alone"
BEHIND = 20_000  # jobs that are handled while a backlog waits behind them
LARGEST = 1_000_000
MUCH = 40_000_000  # bytes of all payloads of one run
FEWEST = 10


@dataclass(frozen=True)
class Case:
    key: str
    title: str
    orders: Mapping[str, Any]
    jobs: Mapping[str, int]  # in one run of each side; of peers the book knows them
    group: str = ""  # of cases that differ in one thing only, `step`
    step: int = 0

    def orders_of(self, jobs: int) -> dict[str, Any]:
        return {"payload": PAYLOAD, "jobs": jobs, **self.orders}

    def fill(self, jobs: int) -> Fill | None:
        """What waits in the queue of ours, the reference and the limit; peers fill their own."""
        what, payload = self.orders["what"], self.orders.get("payload")
        if what == "worker":
            return Fill(jobs, payload)
        if what == "backlog":
            return Fill(jobs + self.step, payload)
        if what == "queues":
            names = tuple(f"{QUEUE}-{number}" for number in range(self.step))
            return Fill(jobs // self.step, payload, names)
        return None

    def scaled(self, scale: float) -> Case:
        unit = self.step if self.group == "queues" else self.orders.get("size", 1)
        fewest = max(unit, FEWEST)
        jobs = {side: max(int(count * scale), fewest) // unit * unit for side, count in self.sides}
        return replace(self, jobs=jobs)

    @property
    def is_seldom(self) -> bool:
        """What takes long, and does not swing, is measured in fewer rounds."""
        return bool(self.group) or self.orders.get("what") == "idle"

    @property
    def sides(self) -> list[tuple[str, int]]:
        return list(self.jobs.items())


def both(ours: int, reference: int, *more: str, limit: int = 0) -> dict[str, int]:
    """Jobs of ours and the reference, and of their like that take part as well."""
    like = {OURS_UVLOOP: ours, TUNED: reference, OURS_VALKEY: ours, LIMIT: limit, LOOP: limit}
    return {OURS: ours, REFERENCE: reference, **{side: like[side] for side in more}}


def _worker(concurrency: int = 100, **more: Any) -> dict[str, Any]:
    return {"what": "worker", "concurrency": concurrency, **more}


FAST = (OURS_UVLOOP, TUNED)
EVENTS_OFF = {"events_enabled": False}
CASES = (
    Case(
        "worker-100",
        "worker, 100 at a time, events on",
        _worker(),
        both(120_000, 15_000, *FAST, OURS_VALKEY, LIMIT, limit=200_000),
    ),
    Case(
        "worker-100-off",
        "worker, 100 at a time, events off",
        _worker(options=EVENTS_OFF),
        both(200_000, 25_000, *FAST, OURS_VALKEY, LIMIT, limit=400_000),
    ),
    Case("worker-1", "worker, 1 at a time, events on", _worker(1), both(120_000, 4_000, *FAST)),
    Case(
        "sleep",
        "handler that sleeps 1 ms, 100 at a time",
        _worker(handler="sleep"),
        both(50_000, 12_000, *FAST, LOOP, limit=60_000),
    ),
    # With 100 at a time nobody can do more than 100,000 a second, however little it costs: this one
    # tells what suspending handlers cost.
    Case(
        "sleep-1000",
        "handler that sleeps 1 ms, 1,000 at a time",
        _worker(1000, handler="sleep"),
        both(100_000, 12_000, *FAST, LOOP, limit=400_000),
    ),
    Case("def", "plain `def`, 100 at a time", _worker(handler="def"), both(70_000, 10_000)),
    Case(
        "result", "results stored, 100 at a time", _worker(handler="result"), both(60_000, 12_000)
    ),
    Case(
        "add",
        "add, one after another",
        {"what": "add"},
        both(12_000, 5_000, *FAST, OURS_VALKEY, LIMIT, limit=20_000),
    ),
    Case(
        "concurrent",
        "add, 100 at once, in new tasks",
        {"what": "concurrent", "size": 100},
        both(90_000, 12_000, *FAST, LOOP, limit=200_000),
    ),
    Case(
        "callers",
        "add, by 100 tasks at once",
        {"what": "callers", "size": 100},
        both(150_000, 12_000, *FAST),
    ),
    Case(
        "bulk-50",
        "add_bulk of 50",
        {"what": "bulk", "size": 50},
        both(200_000, 80_000, *FAST, OURS_VALKEY, LIMIT, limit=400_000),
    ),
    Case(
        "bulk-1000",
        "add_bulk of 1000",
        {"what": "bulk", "size": 1000},
        both(250_000, 100_000, *FAST, OURS_VALKEY, LIMIT, limit=400_000),
    ),
    Case("latency", "an idle queue, one job each 10 ms", {"what": "latency"}, both(150, 150)),
    Case("retry", "each job fails once", _worker() | {"what": "retry"}, both(20_000, 4_000)),
    Case(
        "delayed",
        "all due at one moment",
        _worker() | {"what": "delayed"},
        both(40_000, 6_000, OURS_VALKEY),
    ),
    Case(
        "punctual",
        "due over three seconds",
        _worker() | {"what": "punctual"},
        both(300, 300, OURS_VALKEY),
    ),
    Case(
        "schedules",
        "specs that are due at one moment",
        _worker() | {"what": "schedules"},
        both(5_000, 1_000, OURS_VALKEY),
    ),
)


def _grown() -> Iterator[Case]:
    for step in (1_000, 10_000, 100_000, LARGEST):
        orders = _worker() | {"what": "backlog"}
        jobs = {OURS: BEHIND, REFERENCE: BEHIND // 4}
        yield Case(f"backlog-{step}", f"{step:,} queued behind", orders, jobs, "backlog", step)
    for step in (1, 10, 100, 1_000):
        orders = {"what": "queues", "concurrency": 10, "size": step}
        # The reference has seven connections for each.
        jobs = {OURS: max(40_000, 100 * step)} | ({REFERENCE: 10_000} if step <= 100 else {})
        title = f"{step:,} queues" if step > 1 else "1 queue"
        yield Case(f"queues-{step}", title, orders, jobs, "queues", step)
    for step in (1, 10, 100, 1_000):
        orders, jobs = _worker(step), both(40_000, 3_000 if step == 1 else 8_000)
        yield Case(f"at-once-{step}", f"{step:,} at a time", orders, jobs, "concurrency", step)
    for step in (100, 1_000, 10_000, 100_000, LARGEST):
        payload, most = "x" * step, MUCH // step
        for what, orders in (("worker", _worker()), ("add", {"what": "add"})):
            usual = both(40_000, 8_000) if what == "worker" else both(5_000, 2_500)
            jobs = {side: min(count, most) for side, count in usual.items()}
            given = orders | {"payload": payload}
            title = f"{what}, {step:,} bytes"
            yield Case(f"{what}-by-{step}", title, given, jobs, f"payload, {what}", step)


GROWTH = tuple(_grown())
ALONE = {"delayed_enabled": False, "run_scheduler": False}
IDLE_MS = 5_000
IDLE = (
    Case(
        "idle",
        "an idle worker, with promoter and scheduler",
        _worker() | {"what": "idle", "spread_ms": IDLE_MS},
        both(1, 1),
    ),
    Case(
        "idle-alone",
        "an idle worker, without them",
        _worker() | {"what": "idle", "spread_ms": IDLE_MS, "options": ALONE},
        both(1, 1),
    ),
)


class Aim(NamedTuple):
    """Ours over theirs in one figure of a case; without a bound it is told, and nothing more."""

    case: str
    mine: str
    theirs: str
    figure: str = "rate"
    bound: float | None = None

    @property
    def more_is_better(self) -> bool:
        return self.figure == "rate"

    def met(self, ratio: float) -> bool | None:
        if self.bound is None:
            return None
        return ratio >= self.bound if self.more_is_better else ratio <= self.bound


INSTALLED = (
    Aim("worker-100", OURS, REFERENCE, bound=10),
    Aim("worker-100-off", OURS, REFERENCE, bound=10),
    Aim("worker-1", OURS, REFERENCE, bound=25),
    Aim("sleep", OURS_UVLOOP, REFERENCE, bound=5),
    Aim("sleep-1000", OURS_UVLOOP, REFERENCE),
    Aim("def", OURS, REFERENCE),
    Aim("result", OURS, REFERENCE),
    Aim("add", OURS, REFERENCE, bound=1.9),
    Aim("concurrent", OURS, REFERENCE, bound=10),
    Aim("callers", OURS, REFERENCE, bound=10),
    Aim("bulk-50", OURS, REFERENCE, bound=2),
    Aim("bulk-1000", OURS, REFERENCE, bound=3),
    Aim("retry", OURS, REFERENCE, bound=5),
    Aim("delayed", OURS, REFERENCE, bound=5),
    Aim("schedules", OURS, REFERENCE),
    Aim("latency", OURS, REFERENCE, "p50", 0.5),
    Aim("latency", OURS, REFERENCE, "p99", 1),
    Aim("punctual", OURS, REFERENCE, "p99"),
    Aim("worker-100", OURS, REFERENCE, "cpu_per_100k", 1 / 8),
    Aim("worker-100-off", OURS, REFERENCE, "cpu_per_100k", 1 / 8),
)
AGAINST_TUNED = (
    Aim("worker-100", OURS_UVLOOP, TUNED, bound=6),
    Aim("worker-100-off", OURS_UVLOOP, TUNED, bound=4.5),
    Aim("worker-1", OURS_UVLOOP, TUNED, bound=18),
    Aim("sleep", OURS_UVLOOP, TUNED, bound=4),
    Aim("sleep-1000", OURS_UVLOOP, TUNED),
    Aim("add", OURS_UVLOOP, TUNED, bound=1.3),
    Aim("concurrent", OURS_UVLOOP, TUNED, bound=7),
    Aim("callers", OURS_UVLOOP, TUNED, bound=7),
    Aim("bulk-50", OURS_UVLOOP, TUNED, bound=1.7),
    Aim("bulk-1000", OURS_UVLOOP, TUNED, bound=2.2),
    Aim("worker-100", OURS_UVLOOP, TUNED, "cpu_per_100k", 1 / 4),
    Aim("worker-100-off", OURS_UVLOOP, TUNED, "cpu_per_100k", 1 / 4),
)
OF_THE_LIMIT = (
    Aim("worker-100", OURS, LIMIT, bound=0.6),
    Aim("worker-100-off", OURS, LIMIT, bound=0.5),
    Aim("add", OURS, LIMIT),
    Aim("bulk-50", OURS, LIMIT, bound=0.4),
    Aim("bulk-1000", OURS, LIMIT, bound=0.5),
)
OF_THE_LOOP = (
    Aim("sleep", OURS_UVLOOP, LOOP),
    Aim("sleep-1000", OURS_UVLOOP, LOOP),
    Aim("concurrent", OURS_UVLOOP, LOOP),
)
ON_VALKEY = (
    Aim("worker-100", OURS_VALKEY, OURS, bound=0.8),
    Aim("worker-100-off", OURS_VALKEY, OURS),
    Aim("add", OURS_VALKEY, OURS),
    Aim("bulk-50", OURS_VALKEY, OURS),
    Aim("bulk-1000", OURS_VALKEY, OURS),
    Aim("delayed", OURS_VALKEY, OURS),
    Aim("schedules", OURS_VALKEY, OURS),
)


@dataclass(frozen=True)
class OwnBound:
    """What one figure of ours may be at most, whoever else is measured."""

    title: str
    case: str
    figure: str
    at_most: float
    unit: str = field(default="")


OWN = (
    OwnBound("a delayed job starts after it is due, p99", "punctual", "p99", 20, "ms"),
    OwnBound("commands a second of an idle worker", "idle", "sent_per_s", 2),
    OwnBound("memory of a worker", "worker-100", "rss_mb", 40, "MB"),
)
FLAT = 0.10  # what a job may cost more or less with a long backlog
