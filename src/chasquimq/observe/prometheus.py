"""What was recorded, as Prometheus reads it. Needs the extra `metrics`.

    Recorder ... --> Snapshot --> exposition(): a page of text, for whoever serves it
    PrometheusSink --> a collector in a registry of prometheus_client, for programs that have one

Names are those of the reference where it has them, with a `queue` label each; the rest is ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from chasquimq.errors import ConfigError
from chasquimq.observe.probe import Depths, Probe
from chasquimq.observe.record import (
    BACKOFF_MS,
    BATCH,
    HANDLER_US,
    LATE_MS,
    Recorder,
    Runs,
    Seen,
    Snapshot,
    Spread,
    Tally,
    Totals,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

COUNTERS = {  # of a Tally's `counts`
    "promoted": ("promoter_promoted", "Delayed jobs and retries that were moved to the stream."),
    "read": ("consumer_read", "Entries that reads and claims brought."),
    "reclaimed": ("consumer_reclaimed", "Entries that had been delivered before."),
    "fired": ("scheduler_fired", "Jobs made from specs."),
    "put_aside": ("scheduler_put_aside", "Specs that cannot be fired and were put aside."),
    "leases_lost": ("leases_lost", "Jobs that others took over while they ran here."),
    "given_back": ("jobs_given_back", "Jobs handed back unrun, or not run to their end."),
    "ghosts": ("ghosts_swept", "Pending entries without a body that were removed."),
    "consumers": ("consumers_swept", "Names of dead consumers that were removed."),
    "events_dropped": ("events_dropped", "Rows that the events stream will not have."),
    "came_too_late": ("jobs_came_too_late", "Outcomes of jobs that others had settled."),
    "refused": ("adds_refused", "Jobs not added: queue full, or server out of memory."),
    "groups_recreated": ("groups_recreated", "Times that stream or group were gone."),
}

# One page at a time. Many together would not be ready sooner, and each takes its turn of the
# interpreter: the thread that answers probes would wait for all of them.
_encoding = threading.Lock()


def exposition(
    snapshot: Snapshot, queues: Iterable[Depths] = (), accept: str = ""
) -> tuple[str, bytes]:
    """Content type and page: OpenMetrics where an Accept header asks for it, else plain text."""
    from prometheus_client.exposition import choose_encoder

    try:
        encode, kind = choose_encoder(accept)
    except Exception:  # a header that makes no sense
        encode, kind = choose_encoder("")
    with _encoding:
        return kind, encode(_Page(snapshot, queues))


def require_client() -> Any:
    """The library, or an error that says how to get it."""
    try:
        import prometheus_client
    except ImportError:
        raise ConfigError(
            "metrics for Prometheus need its client library: pip install 'chasquimq-py[metrics]'"
        ) from None
    return prometheus_client


class PrometheusSink(Recorder):
    """A sink for `Worker(metrics=...)` and `Queue(metrics=...)` whose figures a registry of
    prometheus_client shows: the given one, else the library's own.

    Sinks of several queues share a registry, and several sinks of one queue are added up. With a
    `probe` the registry also shows how full its queues are.
    """

    def __init__(
        self, queue: str, registry: CollectorRegistry | None = None, *, probe: Probe | None = None
    ) -> None:
        client = require_client()
        super().__init__(queue)
        _collector(client.REGISTRY if registry is None else registry).add(self, probe)


class _Collector:
    """Everything of ours in one registry."""

    def __init__(self) -> None:
        self._sinks: list[PrometheusSink] = []
        self._probes: list[Probe] = []
        self._totals = Totals()

    def add(self, sink: PrometheusSink, probe: Probe | None) -> None:
        self._sinks.append(sink)
        if probe is not None and probe not in self._probes:
            self._probes.append(probe)

    def describe(self) -> Iterator[Metric]:
        return families(Snapshot(), ())

    def collect(self) -> Iterator[Metric]:
        sinks = list(self._sinks)
        snapshot = self._totals.page(lambda: [(sink, sink.snapshot()) for sink in sinks])
        return families(snapshot, [row for probe in list(self._probes) for row in probe.look()])


_collectors: WeakKeyDictionary[Any, _Collector] = WeakKeyDictionary()
_lock = threading.Lock()


def _collector(registry: CollectorRegistry) -> _Collector:
    with _lock:
        ours = _collectors.get(registry)
        if ours is None:
            ours = _Collector()
            registry.register(ours)
            _collectors[registry] = ours
        return ours


class _Page:
    def __init__(self, snapshot: Snapshot, queues: Iterable[Depths]) -> None:
        self._snapshot = snapshot
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        return families(self._snapshot, self._queues)


# -- the families ----------------------------------------------------------------------------------


def families(snapshot: Snapshot, queues: Iterable[Depths]) -> Iterator[Metric]:
    """Every metric there is, those without a value, too."""
    tallies = snapshot.queues
    yield from _jobs(tallies)
    yield from _queue_counters(tallies)
    yield from _leaders(tallies)
    yield from _workers(tallies, snapshot.workers)
    yield from _depths(queues)


def _jobs(tallies: dict[str, Tally]) -> Iterator[Metric]:
    rows = [(queue, name, runs) for queue, t in tallies.items() for name, runs in t.names.items()]
    both = ("queue", "name")
    added = _counter("jobs_added", "Jobs that producers added.", *both, "delayed")
    completed = _counter("jobs_completed", "Runs that ended well.", *both)
    failed = _counter("jobs_failed", "Runs that raised, or ran into their limit.", *both, "kind")
    retried = _counter("retries_scheduled", "Failed jobs that will run again.", *both)
    dead = _counter("dlq_routed", "Jobs that were put into the DLQ.", *both, "reason")
    took = _histogram("handler_duration_seconds", "How long handlers ran.", *both)
    for queue, name, runs in rows:
        if runs.added or runs.delayed:
            added.add_metric((queue, name, "no"), runs.added)
            added.add_metric((queue, name, "yes"), runs.delayed)
        if not runs.worked:
            continue  # a producer's: as many series for nothing as a worker has
        completed.add_metric((queue, name), runs.completed)
        for kind, count in _failures(runs).items():
            failed.add_metric((queue, name, kind), count)
        retried.add_metric((queue, name), runs.retried)
        for reason, count in runs.dead.items():
            dead.add_metric((queue, name, reason), count)
        _fill(took, (queue, name), runs.took_us, HANDLER_US, 1e6)
    yield from (added, completed, failed, retried, dead, took)


def _failures(runs: Runs) -> dict[str, int]:
    return {"error": runs.failed, "timeout": runs.timed_out}


def _queue_counters(tallies: dict[str, Tally]) -> Iterator[Metric]:
    for key, (name, text) in COUNTERS.items():
        family = _counter(name, text, "queue")
        for queue, tally in tallies.items():
            family.add_metric((queue,), tally.counts.get(key, 0))
        yield family
    lock = ("queue", "role")
    acquired = _counter("promoter_lock_acquired", "Times that a leader's lock became ours.", *lock)
    lost = _counter("promoter_lock_lost", "Times that a leader's lock was ours no longer.", *lock)
    mended = _counter("reconnects", "Broken connections that came back.", "queue", "connection")
    batch = _histogram("consumer_batch_size", "Entries that a read brought.", "queue")
    backoff = _histogram("retry_backoff_seconds", "How long retries wait.", "queue")
    late = _histogram("scheduler_late_seconds", "How late specs fired.", "queue")
    for queue, tally in tallies.items():
        for family, counts in (
            (acquired, tally.acquired),
            (lost, tally.lost),
            (mended, tally.reconnects),
        ):
            for label, count in counts.items():
                family.add_metric((queue, label), count)
        _fill(batch, (queue,), tally.batch, BATCH, 1)
        _fill(backoff, (queue,), tally.backoff_ms, BACKOFF_MS, 1e3)
        _fill(late, (queue,), tally.late_ms, LATE_MS, 1e3)
    yield from (acquired, lost, mended, batch, backoff, late)


def _leaders(tallies: dict[str, Tally]) -> Iterator[Metric]:
    """What only a leader knows, from whoever leads."""
    held = _gauge("lock_held", "Leaders' locks that are ours.", "queue", "role")
    depth = _gauge("delayed_zset_depth", "Delayed jobs, as the leading promoter saw.", "queue")
    lag = _gauge(
        "promoter_oldest_pending_lag_ms", "How overdue the next delayed job is, in ms.", "queue"
    )
    specs = _gauge("scheduler_specs", "Specs, as the leading scheduler saw.", "queue")
    behind = _gauge("scheduler_lag_seconds", "How overdue the next spec is.", "queue")
    for queue, tally in tallies.items():
        for role, count in tally.held.items():
            held.add_metric((queue, role), count)
        for family, value, scale in (
            (depth, tally.delayed, 1),
            (lag, tally.promoter_lag_ms, 1),
            (specs, tally.specs, 1),
            (behind, tally.scheduler_lag_ms, 1e3),
        ):
            if value is not None:
                family.add_metric((queue,), value / scale)
    yield from (held, depth, lag, specs, behind)


def _workers(tallies: dict[str, Tally], seen: Sequence[Seen]) -> Iterator[Metric]:
    """How workers are: sums over those of a queue, and the worst loop."""
    workers: dict[str, list[Seen]] = {queue: [] for queue, t in tallies.items() if t.worked}
    for one in seen:
        workers.setdefault(one.queue, []).append(one)
    sums = (
        ("workers", "Workers that run here.", lambda one: 1),
        ("workers_healthy", "Workers that run here and have no problems.", lambda one: one.healthy),
        ("workers_paused", "Workers that start nothing, as the queue is paused.", _paused),
        ("handlers_running", "Handlers that run now.", lambda one: one.health.running),
        ("jobs_queued", "Jobs read ahead and not started.", lambda one: one.health.queued),
        ("jobs_held", "Jobs pending under our names.", lambda one: one.health.held),
        (
            "threads_busy",
            "Plain functions that run, those given up included.",
            lambda one: one.health.threads_busy,
        ),
        (
            "threads_stuck",
            "Plain functions that were given up and still run.",
            lambda one: one.health.threads_stuck,
        ),
    )
    for name, text, value in sums:
        family = _gauge(name, text, "queue")
        for queue, ours in workers.items():
            family.add_metric((queue,), sum(value(one) for one in ours))
        yield family
    lag = _gauge("event_loop_lag_seconds", "Longest block of an event loop, lately.", "queue")
    for queue, ours in workers.items():
        if ours:
            lag.add_metric((queue,), max(one.loop_lag_s for one in ours))
    yield lag


def _paused(one: Seen) -> int:
    return int(one.health.paused)


def _depths(queues: Iterable[Depths]) -> Iterator[Metric]:
    """How full queues are: the same from every process that is asked, so never add them up."""
    rows = {(row.queue, row.group): row for row in queues}
    first = {queue: row for (queue, _), row in reversed(rows.items())}
    for name, text, field in (
        ("queue_waiting", "Jobs that wait to be started.", "waiting"),
        ("queue_pending", "Jobs that a worker holds.", "pending"),
        ("queue_oldest_waiting_seconds", "Wait of the next job; 0: none.", "oldest_waiting_s"),
    ):
        family = _gauge(name, text, "queue", "group")
        for labels, row in rows.items():
            family.add_metric(labels, getattr(row, field))
        yield family
    for name, text, field in (
        ("queue_delayed", "Jobs that will run later, retries included.", "delayed"),
        ("queue_dead", "Jobs in the DLQ.", "dead"),
        ("queue_repeatables", "Specs, those that do not fire included.", "repeatables"),
        ("queue_paused", "1 while the queue is paused.", "paused"),
        ("queue_limit", "Length of the stream at which adds are refused.", "limit"),
    ):
        family = _gauge(name, text, "queue")
        for queue, row in first.items():
            if getattr(row, field) is not None:
                family.add_metric((queue,), getattr(row, field))
        yield family


# -- what the library calls them -------------------------------------------------------------------


def _counter(name: str, text: str, *labels: str) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(f"chasquimq_{name}", text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"chasquimq_{name}", text, labels=labels)


def _histogram(name: str, text: str, *labels: str) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(f"chasquimq_{name}", text, labels=labels)


def _fill(
    family: Any, labels: tuple[str, ...], spread: Spread, bounds: tuple[int, ...], scale: float
) -> None:
    """A bound is inclusive in both, and what is beyond the last is infinite here."""
    from prometheus_client.utils import floatToGoString

    text: Callable[[float], str] = floatToGoString
    edges = [*(text(bound / scale) for bound in bounds), "+Inf"]
    buckets = list(zip(edges, accumulate(spread.counts), strict=True))
    family.add_metric(labels, buckets=buckets, sum_value=spread.total / scale)
