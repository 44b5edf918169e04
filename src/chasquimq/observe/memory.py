"""A metrics sink that remembers, for tests: every call in order, and what they add up to."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from chasquimq.errors import ConfigError
from chasquimq.health import Health
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

RECENT = 1_000  # runs per name whose durations are kept
MAX_ATTEMPT = 100  # what a job may claim to be at is up to its producer


class Call(NamedTuple):
    """`value` is what the callback got; for `swept` and `spec_put_aside` the pair."""

    callback: str
    value: Any


class JobRollup(NamedTuple):
    """What became of the runs and jobs of one name, or of all.

    A run is one of `completed`, `failed` and `timed_out`. `attempts` counts them by attempt
    (100 stands for all from there on). `max_us` is of all runs, the percentiles are of the
    latest 1,000; all are None before the first.
    """

    completed: int
    failed: int
    timed_out: int
    retried: int
    dead: Mapping[str, int]
    attempts: Mapping[int, int]
    p50_us: int | None
    p95_us: int | None
    p99_us: int | None
    max_us: int | None

    @property
    def runs(self) -> int:
        return self.completed + self.failed + self.timed_out


class WorkerRollup(NamedTuple):
    """What became of the worker itself. `batches` brought `entries`, `reclaimed` of them old;
    `fired` counts jobs made from specs, `put_aside` the specs that could not be fired."""

    promoted: int = 0
    fired: int = 0
    put_aside: int = 0
    batches: int = 0
    entries: int = 0
    reclaimed: int = 0
    leases_lost: int = 0
    given_back: int = 0
    ghosts: int = 0
    consumers: int = 0
    events_dropped: int = 0
    came_too_late: int = 0
    reconnects: int = 0
    added: int = 0
    refused: int = 0
    groups_recreated: int = 0


class Rollup(NamedTuple):
    """`names` holds the first 200 names that came; the others are `__other__` together."""

    totals: JobRollup
    names: Mapping[str, JobRollup]
    worker: WorkerRollup

    def __str__(self) -> str:
        return _table(self)


class InMemorySink(MetricsSink):
    """Keeps the latest `limit` calls. What they add up to counts the dropped ones as well."""

    def __init__(self, limit: int = 10_000) -> None:
        if limit < 1:
            raise ConfigError(f"limit must be at least 1, got {limit}")
        self._limit = limit
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.dropped = 0
        self.healths: dict[str, Health] = {}  # by worker, as it last said
        self._calls: deque[Call] = deque(maxlen=self._limit)
        self._labels = Names()
        self._totals = _Tally()
        self._names: dict[str, _Tally] = {}
        self._worker: Counter[str] = Counter()

    @property
    def calls(self) -> list[Call]:
        """The calls that are kept, oldest first."""
        return list(self._calls)

    def heard(self, callback: str) -> list[Any]:
        """What one callback was called with, oldest first."""
        return [call.value for call in self._calls if call.callback == callback]

    def rollup(self) -> Rollup:
        """What all calls since the last `clear` add up to."""
        names = {name: tally.rollup() for name, tally in self._names.items()}
        return Rollup(self._totals.rollup(), names, WorkerRollup(**self._worker))

    def __str__(self) -> str:
        return str(self.rollup())

    def __repr__(self) -> str:
        totals = self._totals
        return (
            f"<InMemorySink: {totals.kinds['ok']} completed, {totals.kinds['err']} failed, "
            f"{totals.kinds['timeout']} timed out, {totals.retried} retried, "
            f"{totals.dead.total()} dead; {len(self._calls)} calls kept, {self.dropped} dropped>"
        )

    # -- the callbacks -------------------------------------------------------------------------

    def promoter_tick(self, tick: PromoterTick) -> None:
        self._keep("promoter_tick", tick)
        self._worker["promoted"] += tick.promoted

    def promoter_lock_outcome(self, outcome: LockOutcome) -> None:
        self._keep("promoter_lock_outcome", outcome)

    def reader_batch(self, batch: ReaderBatch) -> None:
        self._keep("reader_batch", batch)
        self._worker["batches"] += 1
        self._worker["entries"] += batch.size
        self._worker["reclaimed"] += batch.reclaimed

    def job_outcome(self, outcome: JobOutcome) -> None:
        self._keep("job_outcome", outcome)
        for tally in self._tallies(outcome.name):
            tally.ran(outcome)

    def retry_scheduled(self, retry: RetryScheduled) -> None:
        self._keep("retry_scheduled", retry)
        for tally in self._tallies(retry.name):
            tally.retried += 1

    def dlq_routed(self, dead: DlqRouted) -> None:
        self._keep("dlq_routed", dead)
        for tally in self._tallies(dead.name):
            tally.dead[dead.reason] += 1

    def scheduler_tick(self, tick: SchedulerTick) -> None:
        self._keep("scheduler_tick", tick)

    def spec_fired(self, fired: SpecFired) -> None:
        self._keep("spec_fired", fired)
        self._worker["fired"] += 1

    def spec_put_aside(self, key: str, problem: str) -> None:
        self._keep("spec_put_aside", (key, problem))
        self._worker["put_aside"] += 1

    def leases_lost(self, count: int) -> None:
        self._count("leases_lost", count)

    def given_back(self, count: int) -> None:
        self._count("given_back", count)

    def swept(self, ghosts: int, consumers: int) -> None:
        self._keep("swept", (ghosts, consumers))
        self._worker["ghosts"] += ghosts
        self._worker["consumers"] += consumers

    def events_dropped(self, count: int) -> None:
        self._count("events_dropped", count)

    def came_too_late(self, count: int) -> None:
        self._count("came_too_late", count)

    def reconnected(self, connection: str) -> None:
        self._keep("reconnected", connection)
        self._worker["reconnects"] += 1

    def job_added(self, added: JobAdded) -> None:
        self._keep("job_added", added)
        self._worker["added"] += 1

    def refused(self, count: int) -> None:
        self._count("refused", count)

    def group_recreated(self) -> None:
        self._keep("group_recreated", None)
        self._worker["groups_recreated"] += 1

    def pulse(self, worker: str, health: Health) -> None:
        """Not among the calls: it comes with time, not because something happened."""
        self.healths[worker] = health
        if len(self.healths) > self._limit:
            del self.healths[next(iter(self.healths))]

    # -- inside --------------------------------------------------------------------------------

    def handler_names(self, names: Iterable[str]) -> None:
        """A worker says for which names it has handlers."""
        self._labels.reserve(names)

    def _keep(self, callback: str, value: Any) -> None:
        if len(self._calls) == self._limit:
            self.dropped += 1
        self._calls.append(Call(callback, value))

    def _count(self, callback: str, count: int) -> None:
        self._keep(callback, count)
        self._worker[callback] += count

    def _tallies(self, name: str) -> tuple[_Tally, _Tally]:
        label = self._labels.label(name)
        tally = self._names.get(label)
        if tally is None:
            tally = self._names[label] = _Tally()
        return self._totals, tally


class _Tally:
    """The counts behind one `JobRollup`."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.attempts: Counter[int] = Counter()
        self.dead: Counter[str] = Counter()
        self.retried = 0
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._max_us: int | None = None

    def ran(self, outcome: JobOutcome) -> None:
        took_us = outcome.handler_duration_us
        self.kinds[outcome.kind] += 1
        self.attempts[min(outcome.attempt, MAX_ATTEMPT)] += 1
        self._recent.append(took_us)
        self._max_us = took_us if self._max_us is None else max(self._max_us, took_us)

    def rollup(self) -> JobRollup:
        ranked = sorted(self._recent)
        return JobRollup(
            completed=self.kinds["ok"],
            failed=self.kinds["err"],
            timed_out=self.kinds["timeout"],
            retried=self.retried,
            dead=dict(self.dead),
            attempts=dict(sorted(self.attempts.items())),
            p50_us=_percentile(ranked, 50),
            p95_us=_percentile(ranked, 95),
            p99_us=_percentile(ranked, 99),
            max_us=self._max_us,
        )


def _percentile(ranked: Sequence[int], percent: int) -> int | None:
    """The smallest value that so many percent do not exceed."""
    return ranked[-(-len(ranked) * percent // 100) - 1] if ranked else None


# -- the text ----------------------------------------------------------------------------------

_WIDEST = 40


def _table(rollup: Rollup) -> str:
    head = ("name", "completed", "failed", "timed out", "retried", "dead", "p50 us", "p95 us")
    rows: list[tuple[str, ...]] = [(*head, "p99 us", "max us", "by attempt")]
    named = sorted(rollup.names.items(), key=lambda item: (item[0] == OTHER, item[0]))
    rows += [_row(shown(name, _WIDEST) or "(no name)", row) for name, row in named]
    rows.append(_row("total", rollup.totals))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths) for row in rows]
    if rollup.totals.dead:
        lines += ["", "dead: " + _counts(rollup.totals.dead)]
    counts = {name: count for name, count in rollup.worker._asdict().items() if count}
    lines += ["", "worker: " + (_counts(counts) or "nothing")]
    return "\n".join(lines)


def _row(name: str, row: JobRollup) -> tuple[str, ...]:
    counts = (row.completed, row.failed, row.timed_out, row.retried, sum(row.dead.values()))
    times = (row.p50_us, row.p95_us, row.p99_us, row.max_us)
    return (
        name,
        *map(str, counts),
        *("-" if time is None else str(time) for time in times),
        " ".join(f"{attempt}:{count}" for attempt, count in row.attempts.items()),
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Names and attempts to the left, numbers to the right."""
    first, *numbers, last = row
    middle = (cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=False))
    return "  ".join((first.ljust(widths[0]), *middle, last)).rstrip()


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
