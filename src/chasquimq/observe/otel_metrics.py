"""OpenTelemetry's metrics: a sink that counts with the instruments of a meter.

The names are those of the Prometheus exposition with dots, and times are in seconds; exported to
Prometheus, `chasquimq.handler.duration` is `chasquimq_handler_duration_seconds`.

All sinks of one provider share their instruments, because a second gauge of the same name would
never be asked. What only a leader knows is reported while it leads, what a worker is like while it
runs.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from chasquimq._version import version
from chasquimq.errors import ConfigError
from chasquimq.health import Health
from chasquimq.observe.metrics import (
    DlqRouted,
    JobAdded,
    JobOutcome,
    LockOutcome,
    MetricsSink,
    Names,
    PromoterTick,
    ReaderBatch,
    RetryScheduled,
    SchedulerTick,
    SpecFired,
)
from chasquimq.observe.record import Seen
from chasquimq.text import shown

try:
    from opentelemetry import metrics
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
except ImportError as error:
    raise ConfigError("OpenTelemetry is not installed: pip install 'chasquimq-py[otel]'") from error

WIDEST = 120  # characters of a job's name that become an attribute
MAX_ATTRIBUTES = 1_000  # sets of attributes that are kept ready

COUNTERS = {
    "jobs.added": "Jobs that were added, by name, to run at once or delayed.",
    "adds.refused": "Jobs that were not added: the queue is full, or the server out of memory.",
    "jobs.completed": "Runs of handlers that went well, by name.",
    "jobs.failed": "Runs of handlers that did not, by name and kind: error or timeout.",
    "jobs.given_back": "Jobs that were handed back unrun, or not run to their end.",
    "jobs.came_too_late": "Outcomes of jobs that somebody else had settled meanwhile.",
    "retries.scheduled": "Failed jobs that are to run again, by name.",
    "dlq.routed": "Jobs that were buried, by name and reason.",
    "consumer.read": "Entries that were read.",
    "consumer.reclaimed": "Entries that had been delivered before.",
    "leases.lost": "Jobs that others took over while we ran or held them.",
    "promoter.promoted": "Delayed jobs that were moved to the stream.",
    "promoter.lock.acquired": "How often we became the leader, by role.",
    "promoter.lock.lost": "How often we were so no longer, by role.",
    "scheduler.fired": "Jobs that were made from specs.",
    "scheduler.put_aside": "Specs that cannot be fired, and were put aside.",
    "ghosts.swept": "Pending entries without a body that were removed.",
    "consumers.swept": "Names of dead consumers that were removed.",
    "events.dropped": "Events that the stream will not have.",
    "groups.recreated": "How often the stream or its group was gone and made again.",
    "reconnects": "Broken connections that were mended, by what they are for.",
}
# Upper bounds as those of `observe/record.py`: see there why these.
HISTOGRAMS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "handler.duration": (
        "s",
        "How long handlers ran, by name.",
        (
            *(0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
            *(1, 2.5, 5, 10, 30, 60, 300),
        ),
    ),
    "retry.backoff": (
        "s",
        "How long failed jobs wait for their next run.",
        (0.1, 0.5, 1, 5, 15, 30, 60, 300, 900, 3600),
    ),
    "scheduler.late": (
        "s",
        "How long after it was due a spec made its job.",
        (0.005, 0.025, 0.1, 0.5, 1, 5, 30, 60, 300, 3600),
    ),
    "consumer.batch.size": (
        "{entry}",
        "How many entries a read brought.",
        (1, 2, 4, 8, 16, 32, 64, 128, 256),
    ),
}
GAUGES = {
    "delayed.zset.depth": ("{job}", "Delayed jobs, as the leading promoter sees them."),
    "promoter.oldest_pending_lag": ("s", "By how much the oldest delayed job is overdue."),
    "scheduler.specs": ("{spec}", "Specs, as the leading scheduler sees them."),
    "scheduler.lag": ("s", "By how much the first spec was overdue."),
    "lock.held": ("{lock}", "Leaders' locks that are held here, by role."),
    "workers": ("{worker}", "Workers that run."),
    "workers.healthy": ("{worker}", "Those of them that have no problems."),
    "workers.paused": ("{worker}", "Those that start nothing, because their queue is paused."),
    "handlers.running": ("{job}", "Handlers that run now."),
    "jobs.queued": ("{job}", "Jobs that were read ahead and not started."),
    "jobs.held": ("{job}", "Jobs that are pending under their names."),
    "threads.busy": ("{thread}", "Plain functions that run, those given up included."),
    "threads.stuck": ("{thread}", "Those that were given up at their time limit and still run."),
    "event_loop.lag": ("s", "For how long the worst event loop was blocked lately."),
}
_LEADERS = {  # what a role knows while it leads
    "promoter": ("delayed.zset.depth", "promoter.oldest_pending_lag"),
    "scheduler": ("scheduler.specs", "scheduler.lag"),
}

Attributes = dict[str, str]


class OpenTelemetrySink(MetricsSink):
    """Counts what the workers and producers of one queue tell, for OpenTelemetry.

    Without a `meter_provider` it is the program's own, also if that is set later.
    """

    def __init__(
        self,
        queue: str,
        meter_provider: MeterProvider | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._given = meter_provider
        self._clock = clock
        self._instruments = instruments = _instruments(meter_provider)
        self._queue = {"queue": queue}
        self._labels = Names()
        self._ready: dict[tuple[str, str, str], Attributes] = {}
        self._seen: dict[str, float] = {}  # by gauge: what a leader saw last
        self._pulses: dict[str, tuple[float, Health]] = {}  # by worker: when, and how it was
        self._leads: dict[str, int] = {}  # by role: workers here that lead
        self._count = instruments.count
        self._record = instruments.record
        instruments.watch(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """For a process that is spawned: it begins to count anew."""
        return OpenTelemetrySink, (self._queue["queue"], self._given)

    def handler_names(self, names: Iterable[str]) -> None:
        """A worker says for which names it has handlers."""
        self._labels.reserve(shown(name, WIDEST) for name in names)
        self._ready.clear()  # some of these may have been among all others

    # -- the callbacks -------------------------------------------------------------------------

    def job_outcome(self, outcome: JobOutcome) -> None:
        kind, _, took_us, name = outcome
        named = self._named(name)
        if kind == "ok":
            self._count("jobs.completed", 1, named)
        else:
            failed = "timeout" if kind == "timeout" else "error"
            self._count("jobs.failed", 1, self._named(name, "kind", failed))
        self._record("handler.duration", took_us / 1e6, named)

    def retry_scheduled(self, retry: RetryScheduled) -> None:
        self._count("retries.scheduled", 1, self._named(retry.name))
        self._record("retry.backoff", retry.backoff_ms / 1000, self._queue)

    def dlq_routed(self, dead: DlqRouted) -> None:
        self._count("dlq.routed", 1, self._named(dead.name, "reason", dead.reason))

    def reader_batch(self, batch: ReaderBatch) -> None:
        self._count("consumer.read", batch.size, self._queue)
        if batch.reclaimed:
            self._count("consumer.reclaimed", batch.reclaimed, self._queue)
        self._record("consumer.batch.size", batch.size, self._queue)

    def promoter_tick(self, tick: PromoterTick) -> None:
        if tick.promoted:
            self._count("promoter.promoted", tick.promoted, self._queue)
        self._seen["delayed.zset.depth"] = tick.depth
        self._seen["promoter.oldest_pending_lag"] = tick.oldest_pending_lag_ms / 1000

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None:
        ours, role = outcome.kind == "acquired", outcome.role
        which = "promoter.lock.acquired" if ours else "promoter.lock.lost"
        self._count(which, 1, {**self._queue, "role": role})
        self._leads[role] = max(self._leads.get(role, 0) + (1 if ours else -1), 0)
        if not self._leads[role]:  # it is for another to say now
            for gauge in _LEADERS.get(role, ()):
                self._seen.pop(gauge, None)

    def scheduler_tick(self, tick: SchedulerTick) -> None:
        self._seen["scheduler.specs"] = tick.depth
        self._seen["scheduler.lag"] = tick.lag_ms / 1000

    def spec_fired(self, fired: SpecFired) -> None:
        self._count("scheduler.fired", 1, self._queue)
        self._record("scheduler.late", fired.late_ms / 1000, self._queue)

    def spec_put_aside(self, key: str, problem: str) -> None:
        self._count("scheduler.put_aside", 1, self._queue)

    def leases_lost(self, count: int) -> None:
        self._count("leases.lost", count, self._queue)

    def given_back(self, count: int) -> None:
        self._count("jobs.given_back", count, self._queue)

    def swept(self, ghosts: int, consumers: int) -> None:
        if ghosts:
            self._count("ghosts.swept", ghosts, self._queue)
        if consumers:
            self._count("consumers.swept", consumers, self._queue)

    def events_dropped(self, count: int) -> None:
        self._count("events.dropped", count, self._queue)

    def came_too_late(self, count: int) -> None:
        self._count("jobs.came_too_late", count, self._queue)

    def reconnected(self, connection: str) -> None:
        self._count("reconnects", 1, {**self._queue, "connection": connection})

    def job_added(self, added: JobAdded) -> None:
        delayed = "yes" if added.delayed else "no"
        self._count("jobs.added", 1, self._named(added.name, "delayed", delayed))

    def refused(self, count: int) -> None:
        self._count("adds.refused", count, self._queue)

    def group_recreated(self) -> None:
        self._count("groups.recreated", 1, self._queue)

    def pulse(self, worker: str, health: Health) -> None:
        if health.state in ("stopped", "failed"):
            self._pulses.pop(worker, None)
        else:
            self._pulses[worker] = (self._clock(), health)

    # -- inside --------------------------------------------------------------------------------

    def observe(self, gauge: str) -> Iterator[Observation]:
        """What a gauge says of this queue now; the reader asks from a thread of its own."""
        value = self._seen.get(gauge)
        if value is not None:
            yield Observation(value, self._queue)
        elif gauge == "lock.held":
            for role, held in self._leads.copy().items():
                yield Observation(held, {**self._queue, "role": role})
        elif gauge in _WORKERS:
            now, queue = self._clock(), self._queue["queue"]
            seen = [
                Seen(queue, worker, max(now - at, 0.0), health)
                for worker, (at, health) in self._pulses.copy().items()
            ]
            if seen:
                yield Observation(_WORKERS[gauge](seen), self._queue)

    def _named(self, name: str, key: str = "", value: str = "") -> Attributes:
        """The same attributes for the same job name, so that nothing is built per job."""
        known = self._ready.get((name, key, value))
        if known is not None:
            return known
        made = {**self._queue, "name": self._labels.label(shown(name, WIDEST))}
        if key:
            made[key] = value
        if len(self._ready) < MAX_ATTRIBUTES:  # names come from producers
            self._ready[name, key, value] = made
        return made


# What the workers of a queue are like together, by what each told last.
_WORKERS: dict[str, Callable[[list[Seen]], float]] = {
    "workers": len,
    "workers.healthy": lambda seen: sum(one.healthy for one in seen),
    "workers.paused": lambda seen: sum(one.health.paused for one in seen),
    "handlers.running": lambda seen: sum(one.health.running for one in seen),
    "jobs.queued": lambda seen: sum(one.health.queued for one in seen),
    "jobs.held": lambda seen: sum(one.health.held for one in seen),
    "threads.busy": lambda seen: sum(one.health.threads_busy for one in seen),
    "threads.stuck": lambda seen: sum(one.health.threads_stuck for one in seen),
    "event_loop.lag": lambda seen: max(one.loop_lag_s for one in seen),
}


class Instruments:
    """What all sinks of one provider count with."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = metrics.get_meter("chasquimq", version(), provider)
        self._watched: tuple[weakref.ref[OpenTelemetrySink], ...] = ()
        self._counters = {
            name: meter.create_counter(f"chasquimq.{name}", _unit(name), text)
            for name, text in COUNTERS.items()
        }
        self._histograms = {
            name: meter.create_histogram(
                f"chasquimq.{name}", unit, text, explicit_bucket_boundaries_advisory=bounds
            )
            for name, (unit, text, bounds) in HISTOGRAMS.items()
        }
        for name, (unit, text) in GAUGES.items():
            look = partial(self._observe, name)
            meter.create_observable_gauge(f"chasquimq.{name}", [look], unit, text)

    def count(self, name: str, count: int, attributes: Attributes) -> None:
        self._counters[name].add(count, attributes)

    def record(self, name: str, value: float, attributes: Attributes) -> None:
        self._histograms[name].record(value, attributes)

    def watch(self, sink: OpenTelemetrySink) -> None:
        """Ask it for its gauges while it lives. The tuple is a new one: a reader in another
        thread may be at the old one."""
        alive = tuple(other for other in self._watched if other() is not None)
        self._watched = (*alive, weakref.ref(sink))

    def _observe(self, gauge: str, options: CallbackOptions) -> Iterable[Observation]:
        for reference in self._watched:
            sink = reference()
            if sink is not None:
                yield from sink.observe(gauge)


def _unit(name: str) -> str:
    return "{job}" if name.startswith("jobs.") else "1"


_of_program: list[Instruments] = []  # at most one
_of_others: weakref.WeakKeyDictionary[MeterProvider, Instruments] = weakref.WeakKeyDictionary()


def _instruments(provider: MeterProvider | None) -> Instruments:
    if provider is None or provider is metrics.get_meter_provider():
        if not _of_program:
            _of_program.append(Instruments(None))
        return _of_program[0]
    found = _of_others.get(provider)
    if found is None:
        found = _of_others[provider] = Instruments(provider)
    return found
