"""Metrics: what happens in a worker, as calls of a sink that counts it.

Who does not care for a callback does not pay for it: which ones a sink has is asked once, when
it is attached, and nothing is looked up per job.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, NamedTuple

from chasquimq import happening as it
from chasquimq.errors import ConfigError
from chasquimq.happening import Announce, Happening
from chasquimq.health import Health

MAX_NAMES = 200
OTHER = "__other__"


class PromoterTick(NamedTuple):
    """`depth` jobs are still delayed; the oldest of them is overdue by `oldest_pending_lag_ms`."""

    promoted: int
    depth: int
    oldest_pending_lag_ms: int


class LockOutcome(NamedTuple):
    """`kind` is "held" when another leads, or nobody: we do no longer. `role` is of what."""

    kind: Literal["acquired", "held"]
    role: str


class ReaderBatch(NamedTuple):
    """`reclaimed` of the entries had been delivered before."""

    size: int
    reclaimed: int


class JobOutcome(NamedTuple):
    """One run of a handler. `attempt` counts runs from 1."""

    kind: Literal["ok", "err", "timeout"]
    attempt: int
    handler_duration_us: int
    name: str


class RetryScheduled(NamedTuple):
    """`attempt` is the coming run."""

    attempt: int
    backoff_ms: int
    name: str


class DlqRouted(NamedTuple):
    """`attempt` is how often it ran; 0 where the entry could not be read."""

    reason: str
    attempt: int
    name: str


class SchedulerTick(NamedTuple):
    """`depth` specs there are; the oldest that was due was overdue by `lag_ms`."""

    fired: int
    depth: int
    lag_ms: int


class SpecFired(NamedTuple):
    """A job made from a spec, `late_ms` after it was due."""

    key: str
    name: str
    late_ms: int


class JobAdded(NamedTuple):
    """A job that a producer added. Not `delayed`: it runs at once."""

    name: str
    delayed: bool


class MetricsSink:
    """Hears what a worker or a producer does. Override what you want to know; the rest is never
    called.

    Callbacks are plain functions on the event loop: count and return. One that raises is logged
    and changes nothing.
    """

    def promoter_tick(self, tick: PromoterTick) -> None:
        """A leading promoter looked at the delayed set."""

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None:
        """A lock became ours, or is so no longer."""

    def reader_batch(self, batch: ReaderBatch) -> None:
        """A read brought entries."""

    def job_outcome(self, outcome: JobOutcome) -> None:
        """A handler ended."""

    def retry_scheduled(self, retry: RetryScheduled) -> None:
        """A failed job was put into the delayed set, to run again."""

    def dlq_routed(self, dead: DlqRouted) -> None:
        """A job was buried."""

    def scheduler_tick(self, tick: SchedulerTick) -> None:
        """A leading scheduler looked at the specs."""

    def spec_fired(self, fired: SpecFired) -> None:
        """A spec made a job."""

    def spec_put_aside(self, key: str, problem: str) -> None:
        """A spec that cannot be fired was put aside; it fires no more."""

    def leases_lost(self, count: int) -> None:
        """Deliveries we held were taken over by others."""

    def given_back(self, count: int) -> None:
        """Deliveries that we will not run were handed back, for others to take at once."""

    def swept(self, ghosts: int, consumers: int) -> None:
        """Pending entries without a body, and names of dead consumers, were removed."""

    def events_dropped(self, count: int) -> None:
        """Rows that the events stream will not have."""

    def came_too_late(self, count: int) -> None:
        """Outcomes of jobs that somebody else had settled meanwhile."""

    def reconnected(self, connection: str) -> None:
        """A broken connection was mended."""

    def job_added(self, added: JobAdded) -> None:
        """A producer's job came in."""

    def refused(self, count: int) -> None:
        """Jobs that could not be added: the queue is full, or the server out of memory."""

    def group_recreated(self) -> None:
        """The stream or its group was gone, and was made again."""

    def pulse(self, worker: str, health: Health) -> None:
        """How a worker is; told each second, and once more when it has ended."""


# Every job has one of these; this way it takes half as long to make as by its class.
_outcome = partial(tuple.__new__, JobOutcome)

Method = Callable[..., None]
Call = Callable[[Method, Any], None]  # how a method of a sink is called with a happening

_CALLS: dict[type, tuple[str, Call]] = {
    it.Ticked: (
        "promoter_tick",
        lambda tell, what: tell(PromoterTick(what.promoted, what.depth, what.lag_ms)),
    ),
    it.LockTurned: (
        "promoter_lock_outcome",
        lambda tell, what: tell(LockOutcome("acquired" if what.held else "held", what.role)),
    ),
    it.Read: ("reader_batch", lambda tell, what: tell(ReaderBatch(what.size, what.reclaimed))),
    it.Completed: (
        "job_outcome",
        lambda tell, what: tell(_outcome(("ok", what.attempt, what.duration_us, what.name))),
    ),
    it.Failed: (
        "job_outcome",
        lambda tell, what: tell(
            JobOutcome(
                "timeout" if what.timed_out else "err", what.attempt, what.duration_us, what.name
            )
        ),
    ),
    it.RetryScheduled: (
        "retry_scheduled",
        lambda tell, what: tell(RetryScheduled(what.attempt, what.backoff_ms, what.name)),
    ),
    it.Buried: (
        "dlq_routed",
        lambda tell, what: tell(DlqRouted(str(what.reason), what.attempt, what.name)),
    ),
    it.SpecsTicked: (
        "scheduler_tick",
        lambda tell, what: tell(SchedulerTick(what.fired, what.depth, what.lag_ms)),
    ),
    it.Fired: (
        "spec_fired",
        lambda tell, what: tell(SpecFired(what.key, what.name, what.late_ms)),
    ),
    it.PutAside: ("spec_put_aside", lambda tell, what: tell(what.key, what.problem)),
    it.LeasesLost: ("leases_lost", lambda tell, what: tell(what.count)),
    it.GivenBack: ("given_back", lambda tell, what: tell(what.count)),
    it.Swept: ("swept", lambda tell, what: tell(what.ghosts, what.consumers)),
    it.EventsDropped: ("events_dropped", lambda tell, what: tell(what.count)),
    it.CameTooLate: ("came_too_late", lambda tell, what: tell(what.count)),
    it.Reconnected: ("reconnected", lambda tell, what: tell(what.connection)),
    it.Added: ("job_added", lambda tell, what: tell(JobAdded(what.name, what.delayed))),
    it.Refused: ("refused", lambda tell, what: tell(what.count)),
    it.GroupRecreated: ("group_recreated", lambda tell, what: tell()),
    it.Pulsed: ("pulse", lambda tell, what: tell(what.worker, what.health)),
}


def listening(sink: object) -> Announce:
    """Attach a sink: any object with some of the callbacks of a `MetricsSink`."""
    if isinstance(sink, type):
        raise ConfigError(f"metrics takes a sink, not its class: {sink.__name__}()")
    calls: dict[type, Callable[[Any], None]] = {}
    for kind, (name, call) in _CALLS.items():
        method = _method(sink, name)
        if method is not None:
            calls[kind] = partial(call, method)
    if not calls and not isinstance(sink, MetricsSink):
        raise ConfigError(f"{type(sink).__name__} has none of the callbacks of a MetricsSink")

    def hear(happening: Happening) -> None:
        call = calls.get(type(happening))
        if call is not None:
            call(happening)

    return hear


def attached(metrics: object) -> list[Announce]:
    """One sink, several, or None: as the doors take them."""
    if metrics is None:
        return []
    several = metrics if isinstance(metrics, list | tuple) else (metrics,)
    return [listening(sink) for sink in several]


def _method(sink: object, name: str) -> Method | None:
    """The callback, if the sink has one that does something."""
    method: Method | None = getattr(sink, name, None)
    if not callable(method):
        return None  # a counter of the same name, say
    if getattr(method, "__func__", None) is getattr(MetricsSink, name):
        return None
    if inspect.iscoroutinefunction(method):
        raise ConfigError(f"{type(sink).__name__}.{name} must be a plain function, not async")
    return method


def attached_names(metrics: object) -> list[Callable[[list[str]], None]]:
    """How to tell these sinks for which names a worker has handlers, those that want to know."""
    several = metrics if isinstance(metrics, list | tuple) else (metrics,)
    methods = [getattr(sink, "handler_names", None) for sink in several]
    return [method for method in methods if callable(method)]


class Names:
    """Job names as labels, bounded: whoever comes after the first `limit` is `__other__`.

    Names come from producers, and a sink that keeps a series for each would grow for ever. Names
    that are reserved have a label of their own whatever other names come before them.
    """

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def reserve(self, names: Iterable[str]) -> None:
        self._known.update(names)

    def label(self, name: str) -> str:
        known = self._known
        if name in known:
            return name
        if len(known) >= self._limit:
            return OTHER
        known.add(name)
        return name
