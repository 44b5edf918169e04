"""The windows of a report on one even grid of time, coarse enough to be drawn.

1. all queues share one grid, from `begin` to `end`, so that a silent hour is seen as one;
2. where it would have more places than a plot can show, neighbouring windows are merged:
   counts are added, so totals stay what they are; of percentiles the highest is kept, so that
   thinning never hides a peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from chasquimq.spark.report.data import COUNTS, TIMES, ReportData, Row, Rows
from chasquimq.spark.report.show import ms_of, number

MOST_POINTS = 720
MOST_POINTS_IN_ALL = 36_000
FEWEST_POINTS = 60


class Grid(NamedTuple):
    start_ms: int
    step_ms: int
    size: int
    merged: int  # windows in one place

    def place(self, at_ms: int) -> int:
        return (at_ms - self.start_ms) // self.step_ms

    @property
    def stop_ms(self) -> int:
        return self.start_ms + self.step_ms * self.size


class Series(NamedTuple):
    """What happened in each place of the grid, of one queue or of several."""

    counts: dict[str, list[int]]
    times: dict[str, list[float | None]]

    def total(self, measure: str) -> int:
        return sum(self.counts[measure])


def most_points(queues: int) -> int:
    """How many places each queue gets, so that a page with many queues stays small as well."""
    return max(FEWEST_POINTS, min(MOST_POINTS, MOST_POINTS_IN_ALL // max(queues, 1)))


def grid_of(data: ReportData, most: int) -> Grid | None:
    if not data.windows:
        return None
    starts = [ms_of(row["window_start"]) for row in data.windows]
    first, every = min(starts), data.every_ms
    start = first - max(0, first - ms_of(data.begin)) // every * every
    stop = max(ms_of(data.end), max(starts) + 1)
    windows = -(-(stop - start) // every)
    merged = -(-windows // most)
    return Grid(start, every * merged, -(-windows // merged), merged)


def series_of(rows: Iterable[Row], grid: Grid) -> dict[str, Series]:
    """Each queue's own series, by its name."""
    found: dict[str, Series] = {}
    for row in rows:
        queue = str(row["queue"])
        if queue not in found:
            found[queue] = _empty(grid)
        one = found[queue]
        place = grid.place(ms_of(row["window_start"]))
        for measure in COUNTS:
            one.counts[measure][place] += int(row[measure] or 0)
        for measure in TIMES:
            one.times[measure][place] = _higher(one.times[measure][place], number(row[measure]))
    return found


def together(parts: Sequence[Series], grid: Grid) -> Series:
    """The counts of several queues. Percentiles of different queues cannot be added up."""
    whole = _empty(grid)
    for measure, into in whole.counts.items():
        for part in parts:
            for place, value in enumerate(part.counts[measure]):
                into[place] += value
    return whole


def thinned_depth(rows: Rows, most: int) -> list[Row]:
    """At most so many moments of one queue, in order: of neighbours the deepest."""
    ordered = sorted(rows, key=lambda row: row["at"])
    each = -(-len(ordered) // most)
    groups = (ordered[at : at + each] for at in range(0, len(ordered), max(each, 1)))
    return [_deepest(group) for group in groups]


def _deepest(group: Sequence[Row]) -> Row:
    return max(group, key=lambda row: int(row["waiting"] or 0)) | {
        "running": max(int(row["running"] or 0) for row in group)
    }


def _empty(grid: Grid) -> Series:
    return Series(
        {measure: [0] * grid.size for measure in COUNTS},
        {measure: [None] * grid.size for measure in TIMES},
    )


def _higher(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
