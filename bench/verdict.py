"""Whether a change of our own moved a figure, or only noise did. Pure.

    rounds of new and old  ->  ratios new / old  ->  suspected?  ->  more rounds  ->  sure?

What is suspected is measured again, and only the fresh rounds can confirm it: of sixteen figures
one looks moved by chance in most runs, but hardly ever twice in the same direction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import comb
from statistics import median
from typing import Any, Literal

SUSPECTED, SURE = 0.85, 0.98  # how sure one must be of the side on which the median lies
BAR = 0.03  # what is nearer to 1 than this is nothing to act upon
AGAIN = 2  # times as many rounds for what is suspected
SAME, TOO_FEW = "same within noise", "too few rounds"

Side = Literal["above", "below"]
Pair = tuple[dict[str, Any], dict[str, Any]]  # results of new and old in one round


@dataclass(frozen=True)
class Measure:
    key: str
    label: str
    above: str  # what a ratio above 1 is called
    below: str
    worse: Side


RATE = Measure("rate", "jobs/s", "faster", "slower", "below")
CPU = Measure("cpu_per_100k", "CPU", "more CPU", "less CPU", "above")
MEASURES = (RATE, CPU)


def side_of(ratios: list[float], confidence: float) -> Side | None:
    """On which side of 1 the median lies, if it does so surely and by more than the bar."""
    between = median_between(ratios, confidence)
    if between is None or abs(median(ratios) - 1) < BAR:
        return None
    low, high = between
    if low > 1:
        return "above"
    return "below" if high < 1 else None


def median_between(values: list[float], confidence: float) -> tuple[float, float] | None:
    """Where the true median is, by the sign test; None where the values are too few to say.

    Each value is above the true median with probability 1/2, however the noise is spread, so
    how many fall on one side is binomial. It is the interval between the k-th smallest and the
    k-th largest value, with the largest k that leaves it often enough right.
    """
    count, outside, k = len(values), 0, 0
    while k < count // 2:
        outside += 2 * comb(count, k)
        if outside / 2**count > 1 - confidence:
            break
        k += 1
    ordered = sorted(values)
    return (ordered[k - 1], ordered[-k]) if k else None


@dataclass
class Change:
    """One scenario with the new code and with the old one."""

    scenario: str
    first: list[Pair] = field(default_factory=list)
    again: list[Pair] = field(default_factory=list)  # only of what was suspected
    cannot: str = ""  # why the old code does not run it

    def add(self, new: dict[str, Any], old: dict[str, Any]) -> None:
        """One round; an old result may say that it cannot."""
        self.cannot = old.get("cannot", "")
        if not self.cannot:
            self.first.append((new, old))

    def add_again(self, new: dict[str, Any], old: dict[str, Any]) -> None:
        if "cannot" not in old:
            self.again.append((new, old))

    def ratios(self, measure: Measure) -> list[float]:
        """Of the rounds that count: the fresh ones, where there are any."""
        return _ratios(self.again or self.first, measure)

    def is_suspected(self) -> bool:
        if self.cannot:
            return False
        return any(side_of(_ratios(self.first, one), SUSPECTED) for one in MEASURES)

    def side(self, measure: Measure) -> Side | None:
        """Above or below, once suspected and then confirmed."""
        suspected = side_of(_ratios(self.first, measure), SUSPECTED)
        confirmed = side_of(_ratios(self.again, measure), SURE)
        return confirmed if confirmed == suspected else None

    def verdict(self, measure: Measure) -> str:
        if median_between(_ratios(self.first, measure), SUSPECTED) is None:
            return TOO_FEW
        side = self.side(measure)
        return getattr(measure, side) if side else SAME

    def is_worse(self) -> bool:
        return any(self.side(one) == one.worse for one in MEASURES)

    def to_dict(self) -> dict[str, Any]:
        if self.cannot:
            return {"scenario": self.scenario, "cannot": self.cannot}
        told: dict[str, Any] = {"scenario": self.scenario}
        for one in MEASURES:
            ratios = self.ratios(one)
            told[one.key] = {
                "verdict": self.verdict(one),
                "median": round(median(ratios), 3),
                "first": [round(ratio, 3) for ratio in _ratios(self.first, one)],
                "again": [round(ratio, 3) for ratio in _ratios(self.again, one)],
            }
        return told


def rows(changes: Iterable[Change]) -> list[list[str]]:
    """The cells of a table, its head first."""
    head = ["new / old", "rounds"]
    for one in MEASURES:
        head += [one.label, "min–max", "verdict"]
    return [head, *(_row(change) for change in changes)]


def moved(changes: Iterable[Change]) -> list[str]:
    """One line for each figure that is not what it was."""
    return [
        f"{change.scenario}: {change.verdict(one)}, {_ratio(change.ratios(one))}"
        for change in changes
        for one in MEASURES
        if change.side(one)
    ] or ["nothing moved by more than noise"]


def _row(change: Change) -> list[str]:
    if change.cannot:
        return [change.scenario, "0", *["", "", "the old one fails"] * len(MEASURES)]
    row = [change.scenario, str(len(change.again or change.first))]
    for one in MEASURES:
        ratios = change.ratios(one)
        row += [_ratio(ratios), f"{min(ratios):.2f}–{max(ratios):.2f}", change.verdict(one)]
    return row


def _ratio(ratios: list[float]) -> str:
    return f"{median(ratios):.2f}x"


def _ratios(pairs: list[Pair], measure: Measure) -> list[float]:
    return [new[measure.key] / old[measure.key] for new, old in pairs]
