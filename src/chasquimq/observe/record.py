"""A metrics sink that counts in plain numbers, for whoever shows them: Prometheus, a supervisor.

    Recorder(queue) --snapshot()--> Snapshot --merged()--> Snapshot --> prometheus.exposition

A Snapshot is a value that can be sent as JSON, so that a supervisor can add up what its
processes counted. Counters only ever grow: what a process counted before it ended is kept with
`counted`. No lock is taken: one thread counts, and another that looks may miss the latest few.

Job names come from producers, so their rows are bounded (`Rows`). A row that makes room for
another ends; `Totals` adds up the rows of several recorders that do so at different times.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable

import msgspec

from chasquimq.health import PATIENCE_S, PULSE_S, Health
from chasquimq.job import Reason
from chasquimq.observe.metrics import (
    MAX_NAMES,
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

# When a queue has more names than rows, a name that was not used for STALE_S makes room for a new
# one. Each has about thirty series in Prometheus, and a producer may put an id into every name:
# so at most BURST rows are replaced at once, and then one each REPLACE_S.
STALE_S = 10.0
REPLACE_S = 20.0
BURST = 20
LOOK_S = 1.0  # between two looks which rows are used

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

    series: int = 0  # which row of its recorder: a name that comes back has a new one

    @property
    def count(self) -> int:
        """Of everything: it grows whenever anything is counted."""
        dead = sum(self.dead.values())
        return sum(self.took_us.counts) + self.retried + dead + self.added + self.delayed

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

    def since(self, before: Runs | None) -> Runs:
        """What was counted after `before`, an earlier copy of the same row."""
        if before is None or before.series != self.series:
            return self
        counts = zip(self.took_us.counts, before.took_us.counts, strict=True)
        return Runs(
            Spread([now - then for now, then in counts], self.took_us.total - before.took_us.total),
            completed=self.completed - before.completed,
            failed=self.failed - before.failed,
            timed_out=self.timed_out - before.timed_out,
            retried=self.retried - before.retried,
            dead={reason: n - before.dead.get(reason, 0) for reason, n in self.dead.items()},
            added=self.added - before.added,
            delayed=self.delayed - before.delayed,
        )


class Tally(msgspec.Struct):
    """What was counted for one queue. What only a leader knows is None with all others."""

    names: dict[str, Runs] = {}
    handlers: list[str] = []  # names of the workers' own handlers, as labels
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
        self.handlers = list(dict.fromkeys([*self.handlers, *other.handlers]))
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


class Rows:
    """The rows of a queue's job names: at most `limit`, and `__other__` for all other names.

    Names of the workers' own handlers always have a row. The other rows belong to the names that
    were used last. A row that makes room for another ends, and its counts with it: added to
    `__other__` they would count twice. Only counts that nobody has seen yet are added there.
    """

    def __init__(self, limit: int = MAX_NAMES, clock: Callable[[], float] = time.monotonic) -> None:
        self.rows: dict[str, Runs] = {}
        self.seen: dict[str, Runs] = {}  # a copy of the rows, from when somebody last asked
        self._limit = limit
        self._clock = clock
        self._own: set[str] = set()
        self._strangers: dict[str, None] = {}
        self._used: dict[str, tuple[float, int]] = {}  # when its count last changed, and to what
        self._looked_at = float("-inf")
        self._replace_at = float("-inf")  # not before
        self._spent_until = float("-inf")
        self._made = 0

    def reserve(self, names: Iterable[str]) -> None:
        """These names have handlers: they get rows whatever other names come."""
        self._own.update(shown(name, WIDEST) for name in names)
        for label in self._own.intersection(self._strangers):
            del self._strangers[label]
        self.look()
        while self._strangers and len(self._strangers) + len(self._own) > self._limit:
            self._end(self._oldest())

    def row(self, name: str) -> Runs:
        """The row of a name, or that of all names that have none.

        A name that a label cannot show as it is, is shown escaped and cut.
        """
        label = shown(name, WIDEST)
        if label not in self.rows and not self._has_room(label):
            label = OTHER
        return self.rows.get(label) or self._make(label)

    def look(self) -> None:
        """Note which rows were used since the last look; it matters once all are taken."""
        if not self._is_full():
            return
        self._looked_at = now = self._clock()
        for label in list(self._strangers):
            count = self.rows[label].count
            if self._used[label][1] != count:
                self._used[label] = (now, count)

    def _make(self, label: str) -> Runs:
        self._made += 1
        self.rows[label] = runs = _runs(self._made)
        if label != OTHER and label not in self._own:
            self._strangers[label] = None
            self._used[label] = (self._clock(), 0)
        return runs

    def _is_full(self) -> bool:
        return len(self._strangers) + len(self._own) >= self._limit

    def _has_room(self, label: str) -> bool:
        return label in self._own or label == OTHER or not self._is_full() or self._replace()

    def _replace(self) -> bool:
        """End the row that was not used for longest, if that is long enough ago."""
        now = self._clock()
        if now < self._replace_at or not self._strangers:
            return False
        if now - self._looked_at >= LOOK_S:
            self.look()
        oldest = self._oldest()
        if now - self._used[oldest][0] < STALE_S:
            self._replace_at = now + LOOK_S
            return False
        self._end(oldest)
        self._spent_until = max(self._spent_until, now) + REPLACE_S
        self._replace_at = self._spent_until - (BURST - 1) * REPLACE_S
        return True

    def _oldest(self) -> str:
        return min(self._strangers, key=lambda label: self._used[label])

    def _end(self, label: str) -> None:
        runs = self.rows.pop(label)
        del self._strangers[label], self._used[label]
        unseen = runs.since(self.seen.get(label))
        if unseen.count:
            self.row(OTHER).add(unseen)


class Recorder(MetricsSink):
    """Counts what the workers and producers of one queue tell, in this process."""

    def __init__(self, queue: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.queue = queue
        self._clock = clock
        self._tally = _tally()
        self._rows = Rows(clock=clock)
        self._names = self._tally.names = self._rows.rows
        self._counts = self._tally.counts
        self._seen: dict[str, tuple[float, Health]] = {}

    def snapshot(self) -> Snapshot:
        """What was counted until now; may be asked from any thread."""
        now = self._clock()
        seen = [
            Seen(self.queue, worker, max(now - at, 0.0), health)
            for worker, (at, health) in self._seen.copy().items()
        ]
        tally = _copy(self._tally)
        self._rows.seen = tally.names
        return Snapshot({self.queue: tally}, seen)

    def handler_names(self, names: Iterable[str]) -> None:
        """A worker says for which names it has handlers."""
        labels = [shown(name, WIDEST) for name in names]
        self._tally.handlers = list(dict.fromkeys([*self._tally.handlers, *labels]))
        self._rows.reserve(labels)

    # -- the callbacks -------------------------------------------------------------------------

    def job_outcome(self, outcome: JobOutcome) -> None:
        kind, _, took_us, name = outcome
        runs = self._names.get(name) or self._rows.row(name)
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
        self._rows.row(retry.name).retried += 1
        _note(self._tally.backoff_ms, BACKOFF_MS, retry.backoff_ms)

    def dlq_routed(self, dead: DlqRouted) -> None:
        counts = self._rows.row(dead.name).dead
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
        runs = self._names.get(added.name) or self._rows.row(added.name)
        if added.delayed:
            runs.delayed += 1
        else:
            runs.added += 1

    def refused(self, count: int) -> None:
        self._counts["refused"] += count

    def group_recreated(self) -> None:
        self._counts["groups_recreated"] += 1

    def pulse(self, worker: str, health: Health) -> None:
        self._rows.look()
        self._tally.worked = True
        for connection in health.connections:
            self._tally.reconnects.setdefault(connection, 0)
        if health.state in ("stopped", "failed"):
            self._seen.pop(worker, None)
        else:
            self._seen[worker] = (self._clock(), health)


class Totals:
    """What several recorders count, added up so that each series only grows, or ends.

    Each recorder ends rows at a time of its own. A sum of what they have now would fall then, and
    Prometheus takes a counter that falls for one that began anew. So what each has counted since
    the last look is added to rows of our own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[str, Rows] = {}  # by queue
        self._before: dict[Hashable, Snapshot] = {}  # by recorder

    def add(self, look: Callable[[], Iterable[tuple[Hashable, Snapshot]]]) -> None:
        """Add what recorders have counted since they were last looked at.

        `look` answers each recorder, by a key of its own, and its snapshot. It is called with a
        lock held, so that an older snapshot never comes after a newer one.
        """
        with self._lock:
            self._take(look())

    def page(self, look: Callable[[], Iterable[tuple[Hashable, Snapshot]]]) -> Snapshot:
        """The same, and the sum of all of them: to be shown."""
        with self._lock:
            whole = merged(self._take(look()))
            for queue, rows in self._rows.items():
                tally = whole.queues.setdefault(queue, _tally())
                tally.names = rows.seen = _copy_names(rows.rows)
            return whole

    def forget(self, key: Hashable) -> None:
        """This recorder is gone; what it counted stays."""
        with self._lock:
            self._before.pop(key, None)

    def _take(self, parts: Iterable[tuple[Hashable, Snapshot]]) -> list[Snapshot]:
        taken = list(parts)
        new: list[tuple[str, str, Runs]] = []
        for key, snapshot in taken:
            before = self._before.get(key, Snapshot())
            for queue, tally in snapshot.queues.items():
                new += self._add(queue, tally, before.queues.get(queue, Tally()))
            self._before[key] = snapshot
        # Only now is it known which of the rows are used no longer.
        for rows in self._rows.values():
            rows.look()
        for queue, name, runs in new:
            self._rows[queue].row(name).add(runs)
        return [snapshot for _, snapshot in taken]

    def _add(self, queue: str, tally: Tally, before: Tally) -> list[tuple[str, str, Runs]]:
        """Add to the rows that there are; answers what is new."""
        rows = self._rows.get(queue)
        if rows is None:
            rows = self._rows[queue] = Rows(clock=self._clock)
        rows.reserve(tally.handlers)
        new = []
        for name, runs in tally.names.items():
            more = runs.since(before.names.get(name))
            if not more.count:
                continue
            if name in rows.rows:
                rows.rows[name].add(more)
            else:
                new.append((queue, name, more))
        return new


def merged(parts: Iterable[Snapshot]) -> Snapshot:
    """All of them added up. Each queue has at most 200 names, then `__other__`.

    Whoever asks again and again needs `Totals`, whose rows stay the same.
    """
    labels: dict[str, Names] = {}
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


def _runs(series: int = 0) -> Runs:
    # Every reason from the start: a series that begins at 1 has never risen, for Prometheus.
    return Runs(_spread(HANDLER_US), dead={str(reason): 0 for reason in Reason}, series=series)


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
        names=_copy_names(tally.names),
        counts=tally.counts.copy(),
        acquired=tally.acquired.copy(),
        lost=tally.lost.copy(),
        reconnects=tally.reconnects.copy(),
        held=tally.held.copy(),
        batch=_copy_spread(tally.batch),
        backoff_ms=_copy_spread(tally.backoff_ms),
        late_ms=_copy_spread(tally.late_ms),
    )


def _copy_names(names: dict[str, Runs]) -> dict[str, Runs]:
    return {name: _copy_runs(runs) for name, runs in names.copy().items()}


def _copy_runs(runs: Runs) -> Runs:
    took_us, dead = _copy_spread(runs.took_us), runs.dead.copy()
    return msgspec.structs.replace(runs, took_us=took_us, dead=dead)


def _copy_spread(spread: Spread) -> Spread:
    return Spread(spread.counts.copy(), spread.total)
