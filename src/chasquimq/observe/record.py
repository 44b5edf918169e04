"""A metrics sink that counts in plain numbers, for whoever shows them: Prometheus, a supervisor.

    Recorder(queue) --snapshot()--> Snapshot --merged()--> Snapshot --> prometheus.exposition

A Snapshot is a value that can be sent as JSON, so that a supervisor can add up what its
processes counted. Counters only ever grow: what a process counted before it ended is kept with
`counted`. No lock is taken: one thread counts, and another that looks may miss the latest few.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable

import msgspec

from chasquimq.health import PATIENCE_S, PULSE_S, Health
from chasquimq.job import Reason
from chasquimq.observe.metrics import (
    OTHER,
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
from chasquimq.text import shown

WIDEST = 120  # characters of a job's name that become a label

# Upper bounds, inclusive. A handler may take from 100 us to minutes, and each bound is a series
# for every job name: these are as few as still tell 2 ms from 5 ms, and 20 s from a minute.
HANDLER_US = (
    *(100, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000, 300_000_000),
)
BATCH = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BACKOFF_MS = (100, 500, 1_000, 5_000, 15_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)
LATE_MS = (5, 25, 100, 500, 1_000, 5_000, 30_000, 60_000, 300_000, 3_600_000)

COUNTS = (
    *("promoted", "reclaimed", "read", "fired", "put_aside", "leases_lost", "given_back"),
    *("ghosts", "consumers", "events_dropped", "came_too_late", "refused", "groups_recreated"),
)


class Spread(msgspec.Struct):
    """How values are spread over bounds: one count per bound, and one for what is beyond."""

    counts: list[int]
    total: int = 0

    def add(self, other: Spread) -> None:
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class Runs(msgspec.Struct):
    """What became of the jobs of one name."""

    took_us: Spread
    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    retried: int = 0
    dead: dict[str, int] = {}
    added: int = 0  # by producers, to run at once
    delayed: int = 0  # ... or later

    @property
    def worked(self) -> bool:
        """Whether a worker has told anything of it."""
        return any((self.completed, self.failed, self.timed_out, self.retried, *self.dead.values()))

    def add(self, other: Runs) -> None:
        self.took_us.add(other.took_us)
        self.completed += other.completed
        self.failed += other.failed
        self.timed_out += other.timed_out
        self.retried += other.retried
        _add(self.dead, other.dead)
        self.added += other.added
        self.delayed += other.delayed


class Tally(msgspec.Struct):
    """What was counted for one queue. What only a leader knows is None with all others."""

    names: dict[str, Runs] = {}
    counts: dict[str, int] = {}  # by COUNTS
    acquired: dict[str, int] = {}  # locks, by role
    lost: dict[str, int] = {}
    reconnects: dict[str, int] = {}  # by connection
    batch: Spread = msgspec.field(default_factory=lambda: _spread(BATCH))
    backoff_ms: Spread = msgspec.field(default_factory=lambda: _spread(BACKOFF_MS))
    late_ms: Spread = msgspec.field(default_factory=lambda: _spread(LATE_MS))
    held: dict[str, int] = {}  # locks that are ours now, by role
    delayed: int | None = None
    promoter_lag_ms: int | None = None
    specs: int | None = None
    scheduler_lag_ms: int | None = None
    worked: bool = False  # a worker of this queue has been here

    def add(self, other: Tally, names: Names) -> None:
        for name, runs in other.names.items():
            label = name if name == OTHER else names.label(name)
            self.names.setdefault(label, _runs()).add(runs)
        for mine, theirs in (
            (self.counts, other.counts),
            (self.acquired, other.acquired),
            (self.lost, other.lost),
            (self.reconnects, other.reconnects),
            (self.held, other.held),
        ):
            _add(mine, theirs)
        self.batch.add(other.batch)
        self.backoff_ms.add(other.backoff_ms)
        self.late_ms.add(other.late_ms)
        self.delayed = _most(self.delayed, other.delayed)
        self.promoter_lag_ms = _most(self.promoter_lag_ms, other.promoter_lag_ms)
        self.specs = _most(self.specs, other.specs)
        self.scheduler_lag_ms = _most(self.scheduler_lag_ms, other.scheduler_lag_ms)
        self.worked = self.worked or other.worked


class Seen(msgspec.Struct, frozen=True):
    """How a worker was when its event loop last said so, `age_s` ago."""

    queue: str
    worker: str
    age_s: float
    health: Health

    @property
    def loop_lag_s(self) -> float:
        """A loop that is blocked does not say so: its silence does."""
        return max(self.health.loop_lag_s, self.age_s - PULSE_S)

    @property
    def healthy(self) -> bool:
        return self.health.healthy and self.loop_lag_s <= PATIENCE_S


class Snapshot(msgspec.Struct):
    """What one process, or several, counted until now."""

    queues: dict[str, Tally] = {}
    workers: list[Seen] = []


class Recorder(MetricsSink):
    """Counts what the workers and producers of one queue tell, in this process."""

    def __init__(self, queue: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.queue = queue
        self._clock = clock
        self._labels = Names()
        self._tally = _tally()
        self._names = self._tally.names
        self._counts = self._tally.counts
        self._seen: dict[str, tuple[float, Health]] = {}

    def snapshot(self) -> Snapshot:
        """What was counted until now; may be asked from any thread."""
        now = self._clock()
        seen = [
            Seen(self.queue, worker, max(now - at, 0.0), health)
            for worker, (at, health) in self._seen.copy().items()
        ]
        return Snapshot({self.queue: _copy(self._tally)}, seen)

    # -- the callbacks -------------------------------------------------------------------------

    def job_outcome(self, outcome: JobOutcome) -> None:
        kind, _, took_us, name = outcome
        runs = self._names.get(name) or self._runs(name)
        took = runs.took_us
        took.counts[bisect_left(HANDLER_US, took_us)] += 1
        took.total += took_us
        if kind == "ok":
            runs.completed += 1
        elif kind == "timeout":
            runs.timed_out += 1
        else:
            runs.failed += 1

    def retry_scheduled(self, retry: RetryScheduled) -> None:
        self._runs(retry.name).retried += 1
        _note(self._tally.backoff_ms, BACKOFF_MS, retry.backoff_ms)

    def dlq_routed(self, dead: DlqRouted) -> None:
        counts = self._runs(dead.name).dead
        counts[dead.reason] = counts.get(dead.reason, 0) + 1

    def reader_batch(self, batch: ReaderBatch) -> None:
        self._counts["read"] += batch.size
        self._counts["reclaimed"] += batch.reclaimed
        _note(self._tally.batch, BATCH, batch.size)

    def promoter_tick(self, tick: PromoterTick) -> None:
        self._counts["promoted"] += tick.promoted
        self._tally.delayed = tick.depth
        self._tally.promoter_lag_ms = tick.oldest_pending_lag_ms

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None:
        tally, role, ours = self._tally, outcome.role, outcome.kind == "acquired"
        _add(tally.acquired, {role: int(ours)})
        _add(tally.lost, {role: int(not ours)})
        tally.held[role] = max(tally.held.get(role, 0) + (1 if ours else -1), 0)
        if not tally.held[role]:  # what we saw as the leader is for another to say now
            if role == "promoter":
                tally.delayed = tally.promoter_lag_ms = None
            else:
                tally.specs = tally.scheduler_lag_ms = None

    def scheduler_tick(self, tick: SchedulerTick) -> None:
        self._tally.specs = tick.depth
        self._tally.scheduler_lag_ms = tick.lag_ms

    def spec_fired(self, fired: SpecFired) -> None:
        self._counts["fired"] += 1
        _note(self._tally.late_ms, LATE_MS, fired.late_ms)

    def spec_put_aside(self, key: str, problem: str) -> None:
        self._counts["put_aside"] += 1

    def leases_lost(self, count: int) -> None:
        self._counts["leases_lost"] += count

    def given_back(self, count: int) -> None:
        self._counts["given_back"] += count

    def swept(self, ghosts: int, consumers: int) -> None:
        self._counts["ghosts"] += ghosts
        self._counts["consumers"] += consumers

    def events_dropped(self, count: int) -> None:
        self._counts["events_dropped"] += count

    def came_too_late(self, count: int) -> None:
        self._counts["came_too_late"] += count

    def reconnected(self, connection: str) -> None:
        _add(self._tally.reconnects, {connection: 1})

    def job_added(self, added: JobAdded) -> None:
        runs = self._names.get(added.name) or self._runs(added.name)
        if added.delayed:
            runs.delayed += 1
        else:
            runs.added += 1

    def refused(self, count: int) -> None:
        self._counts["refused"] += count

    def group_recreated(self) -> None:
        self._counts["groups_recreated"] += 1

    def pulse(self, worker: str, health: Health) -> None:
        self._tally.worked = True
        for connection in health.connections:
            self._tally.reconnects.setdefault(connection, 0)
        if health.state in ("stopped", "failed"):
            self._seen.pop(worker, None)
        else:
            self._seen[worker] = (self._clock(), health)

    # -- inside --------------------------------------------------------------------------------

    def _runs(self, name: str) -> Runs:
        """The row of a name, or of all that come after the first so many.

        What a label cannot show as it is, is shown escaped and cut; such names are not
        remembered themselves, or they would be without a bound.
        """
        label = self._labels.label(shown(name, WIDEST))
        runs = self._names.get(label)
        if runs is None:
            runs = self._names[label] = _runs()
        return runs


def merged(parts: Iterable[Snapshot], names: dict[str, Names] | None = None) -> Snapshot:
    """All of them added up. Each queue has at most 200 names, then `__other__`.

    Who asks again and again gives the same `names` each time: then a name that has a series
    keeps it, whatever names other processes come up with.
    """
    labels = {} if names is None else names
    whole = Snapshot({}, [])
    for part in parts:
        whole.workers.extend(part.workers)
        for queue, tally in part.queues.items():
            into = whole.queues.get(queue)
            if into is None:
                into = whole.queues[queue] = _tally()
            into.add(tally, labels.setdefault(queue, Names()))
    return whole


def counted(snapshot: Snapshot) -> Snapshot:
    """What remains of a process that has ended: its counters, and nothing that is only so now."""
    kept = merged([snapshot])
    kept.workers.clear()
    for tally in kept.queues.values():
        tally.held.clear()
        tally.delayed = tally.promoter_lag_ms = tally.specs = tally.scheduler_lag_ms = None
    return kept


def _spread(bounds: tuple[int, ...]) -> Spread:
    return Spread([0] * (len(bounds) + 1))


def _runs() -> Runs:
    # Every reason from the start: a series that begins at 1 has never risen, for Prometheus.
    return Runs(_spread(HANDLER_US), dead={str(reason): 0 for reason in Reason})


def _tally() -> Tally:
    return Tally(counts=dict.fromkeys(COUNTS, 0))


def _note(spread: Spread, bounds: tuple[int, ...], value: int) -> None:
    spread.counts[bisect_left(bounds, value)] += 1
    spread.total += value


def _add(into: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        into[name] = into.get(name, 0) + count


def _most(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)


def _copy(tally: Tally) -> Tally:
    """A deep copy; each `copy` of a dict is one step, which a counting thread cannot break."""
    return msgspec.structs.replace(
        tally,
        names={name: _copy_runs(runs) for name, runs in tally.names.copy().items()},
        counts=tally.counts.copy(),
        acquired=tally.acquired.copy(),
        lost=tally.lost.copy(),
        reconnects=tally.reconnects.copy(),
        held=tally.held.copy(),
        batch=_copy_spread(tally.batch),
        backoff_ms=_copy_spread(tally.backoff_ms),
        late_ms=_copy_spread(tally.late_ms),
    )


def _copy_runs(runs: Runs) -> Runs:
    took_us, dead = _copy_spread(runs.took_us), runs.dead.copy()
    return msgspec.structs.replace(runs, took_us=took_us, dead=dead)


def _copy_spread(spread: Spread) -> Spread:
    return Spread(spread.counts.copy(), spread.total)
