"""How long jobs waited, and how soon they ran again after each fault, by the ledger's clock.

A fault's window lasts from its beginning until a lease and two seconds after its end. What was
added outside of all windows, and a moment before them, waited for nothing but its turn.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.chaos.kit.ledger import Record

S = 1_000_000_000
LATE_NS = S // 4
AFTER_S = 2.0
DELAYED = "later-"  # ids of jobs that wait because they shall


@dataclass(frozen=True)
class Window:
    fault: str
    begin_ns: int
    end_ns: int
    """When the cause was gone: the server was back, the worker dead."""


@dataclass(frozen=True)
class Recovery:
    """What one fault cost, in seconds, the first two counted from its end."""

    fault: str
    lasted_s: float
    still_s: float | None
    """Until a job started again; None: none did."""
    late_s: float
    """Until the last job that started more than a quarter of a second after its add."""
    taken_s: float
    """From a death or a freeze until the last of the runs it cut short began again."""


@dataclass
class Times:
    """The facts of a ledger that have to do with time."""

    asked: dict[str, int] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    """The first start of each job."""
    starts: list[int] = field(default_factory=list)
    taken: list[tuple[int, int]] = field(default_factory=list)
    """When a process died or froze in the middle of a run, and when its job started again."""
    _open: dict[int, dict[str, str]] = field(default_factory=dict)
    _cut: dict[str, int] = field(default_factory=dict)

    def tell(self, facts: Iterable[Record]) -> Times:
        for fact in facts:
            match fact.event:
                case "attempted":
                    self.asked.setdefault(fact.job, fact.at_ns)
                case "start":
                    self._start(fact)
                case "end" | "failed":
                    self._open.get(fact.pid, {}).pop(fact.run, None)
                case "dead" | "frozen":
                    for job in self._open.pop(fact.pid, {}).values():
                        self._cut[job] = fact.at_ns
        return self

    def _start(self, fact: Record) -> None:
        self.begun.setdefault(fact.job, fact.at_ns)
        self.starts.append(fact.at_ns)
        self._open.setdefault(fact.pid, {})[fact.run] = fact.job
        if fact.job in self._cut:
            self.taken.append((self._cut.pop(fact.job), fact.at_ns))

    def waits(self) -> list[tuple[int, int]]:
        """When each job was asked for and how long it waited, in the order of asking."""
        return sorted(
            (at, self.begun[job] - at)
            for job, at in self.asked.items()
            if job in self.begun and not job.startswith(DELAYED)
        )


def calm_waits(times: Times, windows: Sequence[Window], lease_s: float) -> list[float]:
    """The waits of jobs that no fault touched, in milliseconds."""
    after_ns = int((lease_s + AFTER_S) * S)
    closed = [(one.begin_ns - LATE_NS, one.end_ns + after_ns) for one in windows]
    return [
        wait / 1e6
        for at, wait in times.waits()
        if not any(begin <= at <= end for begin, end in closed)
    ]


def recoveries(times: Times, windows: Sequence[Window]) -> list[Recovery]:
    ends = [*(one.begin_ns for one in windows[1:]), 2**63][: len(windows)]
    starts = sorted(times.starts)
    late = [(at, at + wait) for at, wait in times.waits() if wait > LATE_NS]
    return [
        _recovery(one, until, starts, late, times.taken)
        for one, until in zip(windows, ends, strict=True)
    ]


def _recovery(
    one: Window,
    until: int,
    starts: list[int],
    late: list[tuple[int, int]],
    taken: list[tuple[int, int]],
) -> Recovery:
    """`until` is when the next one begins."""
    place = bisect_left(starts, one.end_ns)
    first = starts[place] if place < len(starts) else None
    since = one.begin_ns - LATE_NS
    return Recovery(
        fault=one.fault,
        lasted_s=(one.end_ns - one.begin_ns) / S,
        still_s=None if first is None else (first - one.end_ns) / S,
        late_s=_longest(one.end_ns, [start for at, start in late if since <= at < until]),
        taken_s=max((at - cut for cut, at in taken if since <= cut < until), default=0) / S,
    )


def _longest(since_ns: int, moments: list[int]) -> float:
    return max(0.0, (max(moments, default=since_ns) - since_ns) / S)


def quantile(values: Sequence[float], of_100: int) -> float:
    if len(values) < 2:
        return max(values, default=0.0)
    return statistics.quantiles(values, n=100, method="inclusive")[of_100 - 1]


COLUMNS = "{:<30} {:>5} {:>9} {:>12} {:>12} {:>12}"


def table(found: Sequence[Recovery]) -> list[str]:
    """By fault: how often, the median length, and the worst of each recovery."""
    head = ("fault", "times", "lasted s", "stood still", "late until", "taken over")
    told = [COLUMNS.format(*head)]
    for fault in dict.fromkeys(one.fault for one in found):
        some = [one for one in found if one.fault == fault]
        lasted = statistics.median(one.lasted_s for one in some)
        worst = [
            max(float("inf") if one.still_s is None else one.still_s for one in some),
            max(one.late_s for one in some),
            max(one.taken_s for one in some),
        ]
        cells = [f"{value:.2f}" for value in (lasted, *worst)]
        told.append(COLUMNS.format(fault, len(some), *cells))
    return told
