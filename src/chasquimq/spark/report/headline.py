"""The figures at the head of a page, of each view."""

from __future__ import annotations

from typing import NamedTuple

from chasquimq.spark.report.data import COUNTS, ReportData, Rows
from chasquimq.spark.report.show import NOTHING, count, duration, moment, number, percent
from chasquimq.spark.report.view import View


class Tile(NamedTuple):
    title: str
    value: str
    said: str
    is_bad: bool = False


def failure_rate(failed: int, completed: int) -> float | None:
    """The share of finished runs that failed."""
    return failed / (failed + completed) if failed + completed else None


def tiles(data: ReportData, view: View) -> list[Tile]:
    rows = view.of(data.totals)
    sums = {key: sum(int(row[key] or 0) for row in rows) for key in ("jobs", *COUNTS)}
    seconds = (data.end - data.begin).total_seconds()
    each_second = f"{sums['completed'] / seconds:,.2f} a second" if seconds else ""
    rate = failure_rate(sums["failed"], sums["completed"])
    windows = view.of(data.windows)
    return [
        Tile("jobs completed", count(sums["completed"]), each_second),
        Tile(
            "failure rate",
            percent(rate),
            f"{count(sums['failed'])} runs failed, {count(sums['retried'])} retried",
            is_bad=rate is not None and rate >= 0.05,
        ),
        _typical(windows, "wait"),
        _typical(windows, "run"),
        Tile(
            "dead letters",
            count(sums["buried"]),
            f"of {count(sums['jobs'])} jobs",
            is_bad=sums["buried"] > 0,
        ),
    ]


def differences(data: ReportData) -> list[str]:
    """What the plots show and the totals do not, or the other way round."""
    said = []
    for measure in COUNTS:
        plotted = sum(int(row[measure] or 0) for row in data.windows)
        counted = sum(int(row[measure] or 0) for row in data.totals)
        if plotted != counted:
            said.append(
                f"The plots show {count(plotted)} {measure}, the totals {count(counted)}: "
                "the report was made of two different states, make it again."
            )
    return said


def _typical(windows: Rows, what: str) -> Tile:
    """The median of the windows' p95, each counted by its runs: no percentile can be made of
    percentiles, but which one half of the runs met can be told, and the worst."""
    key = f"{what}_p95_ms"
    found = [(value, row) for row in windows if (value := number(row[key])) is not None]
    if not found:
        return Tile(f"p95 {what}", NOTHING, "no runs")
    found.sort(key=lambda pair: pair[0])
    half = sum(int(row["started"] or 0) for _, row in found) / 2
    passed, middle = 0, found[-1][0]
    for value, row in found:
        passed += int(row["started"] or 0)
        if passed >= half:
            middle = value
            break
    worst, row = found[-1]
    at = moment(row["window_start"])[5:16]
    return Tile(f"p95 {what}, typical", duration(middle), f"at most {duration(worst)}, {at}")
