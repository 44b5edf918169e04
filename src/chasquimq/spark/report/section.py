"""The sections of a page, in their order: what each says, its plots and its table."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from chasquimq.spark.report import course, listing, table
from chasquimq.spark.report.data import ReportData, Rows
from chasquimq.spark.report.figure import Figure
from chasquimq.spark.report.series import Grid, Series, grid_of, most_points, series_of
from chasquimq.spark.report.show import duration
from chasquimq.spark.report.view import APART, MOST_VIEWS, View


class Plot(NamedTuple):
    key: str
    title: str
    figures: list[Figure | None]  # one for each view, or one for all


class Section(NamedTuple):
    key: str
    title: str
    how: str  # to read it
    empty: str
    plots: list[Plot]
    table: str = ""


def sections_of(data: ReportData, views: list[View]) -> list[Section]:
    made = [*_over_time(data, views), *_lists(data, views)]
    if data.deploy:
        made.append(_changes(data, views))
    return made


def _over_time(data: ReportData, views: list[View]) -> list[Section]:
    most = most_points(min(len(views[0].queues), MOST_VIEWS))
    grid = grid_of(data, most)
    series = series_of(data.windows, grid) if grid else {}

    def each(draw: Callable[[View, dict[str, Series], Grid], Figure | None]) -> list[Figure | None]:
        return [draw(view, series, grid) if grid else None for view in views]

    every = _every(grid, data.every_ms)
    several = (
        f"Jobs completed, by queue: the {APART} busiest have a colour of their own. Of one queue "
        "its failed runs, too. "
        if views[0].is_several
        else "Runs that ended, completed or failed. "
    )
    return [
        Section(
            "throughput",
            "Throughput",
            f"{several}{every}",
            "Nothing ran in this time.",
            [Plot("throughput", "", each(course.throughput))],
            _folded("Totals by queue", table.totals(data.totals, _places(views)))
            if data.totals
            else "",
        ),
        Section(
            "latency",
            "Latency",
            "Half of the runs took no longer than p50, 95 of 100 no longer than p95. The scale is "
            f"logarithmic.{_highest(grid)}",
            "No run was timed in this time.",
            [Plot("latency", "", each(course.latency))],
        ),
        Section(
            "failures",
            "Failures and retries",
            "A run that fails is retried, or its job is buried among the dead letters.",
            "No run failed.",
            [Plot("failures", "", each(course.failures))],
        ),
        Section(
            "depth",
            "Depth",
            "Jobs in the queue at the moments when it was looked at.",
            "The depth was not recorded.",
            [Plot("depth", "", [course.depth(view, data.depth, most) for view in views])],
        ),
        Section(
            "heat",
            "Waiting by weekday and hour",
            "p95 of the time until a run starts, all queues together, in UTC.",
            "No run was timed in this time.",
            [Plot("heat", "", [course.heat(data.heat)])],
            _folded("As a table", table.heat(data.heat)) if data.heat else "",
        ),
    ]


def _lists(data: ReportData, views: list[View]) -> list[Section]:
    places = _places(views)
    until = data.end

    def each(rows: Rows, draw: Callable[[Rows, bool], Figure | None]) -> list[Figure | None]:
        return [draw(view.of(rows), view.is_several) for view in views]

    return [
        Section(
            "names",
            "Names",
            "Failed is counted by run: a job that fails three times counts three.",
            "None.",
            [
                Plot("names-slow", "Slowest", each(data.names, listing.slowest)),
                Plot("names-fail", "Most failing", each(data.names, listing.most_failing)),
            ],
            _folded("All names", table.names(data.names, places)) if data.names else "",
        ),
        Section(
            "clusters",
            "Dead letters",
            "Jobs that were given up, grouped by reason, kind of error and message; numbers and "
            "ids in messages are left out of the comparison.",
            "No dead letters.",
            [Plot("clusters", "", each(data.clusters, listing.clusters))],
            _folded("All clusters", table.clusters(data.clusters, places), " open")
            if data.clusters
            else "",
        ),
        Section(
            "schedules",
            "Punctuality of schedules",
            "How long after its time a schedule fired.",
            "No schedule fired.",
            [Plot("schedules", "", each(data.schedules, listing.schedules))],
            _folded("All schedules", table.schedules(data.schedules, places))
            if data.schedules
            else "",
        ),
        Section(
            "stuck",
            "Jobs that do not move",
            "Known, not ended, and without an event for long.",
            "Every job moves.",
            [
                Plot(
                    "stuck",
                    "",
                    each(data.stuck, lambda rows, several: listing.stuck(rows, several, until)),
                )
            ],
            _folded("All of them", table.stuck(data.stuck, places, until)) if data.stuck else "",
        ),
    ]


def _changes(data: ReportData, views: list[View]) -> Section:
    figures = [listing.changes(view.of(data.deploy), view.is_several) for view in views]
    return Section(
        "changes",
        "Before and after",
        "Two stretches of time compared. ▲ is more than a tenth higher, ▼ more than a tenth lower.",
        "No name ran in both.",
        [Plot("changes", "p95 of run", figures)],
        table.changes(data.deploy, _places(views)),
    )


def _places(views: list[View]) -> dict[str, int]:
    """The view of each queue that has one of its own."""
    return {
        view.queues[0]: place
        for place, view in enumerate(views)
        if not view.is_several and view.queues
    }


def _every(grid: Grid | None, every_ms: int) -> str:
    if grid is None or grid.merged == 1:
        return f"Each bar is {duration(every_ms)}."
    return (
        f"Each bar is {duration(grid.step_ms)}: {grid.merged} windows of {duration(every_ms)} "
        "are added up, so that the page stays small."
    )


def _highest(grid: Grid | None) -> str:
    if grid is None or grid.merged == 1:
        return ""
    return f" Of {grid.merged} windows each, the highest is shown."


def _folded(title: str, table: str, state: str = "") -> str:
    return f"<details{state}><summary>{title}</summary>{table}</details>"
