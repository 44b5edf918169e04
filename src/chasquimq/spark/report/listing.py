"""The figures that list things: names, clusters of dead letters, schedules, stuck jobs, changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from chasquimq.spark.report.data import Row, Rows
from chasquimq.spark.report.figure import Figure, Line, bars, ranges
from chasquimq.spark.report.show import clipped, count, duration, ms_of, number, percent

MOST_LINES = 12
P95 = ("p95", "@p95", "circle")
P50 = ("p50", "@p50", "line-ns-open")
TOP = ("@p99", "diamond")
_WIDEST = 120


def slowest(rows: Rows, several: bool) -> Figure | None:
    found = _highest(rows, "run_p95_ms")
    lines = [
        Line(
            _named(row, "name", several),
            f"p95 {duration(row['run_p95_ms'])}",
            {key: number(row[key]) for key in ("run_p50_ms", "run_p95_ms", "run_p99_ms")},
        )
        for row in found
    ]
    marks = [("run_p50_ms", *P50), ("run_p95_ms", *P95), ("run_p99_ms", "p99", *TOP)]
    return ranges(lines, marks, f"Slowest by p95 of run: {_first(lines)}.") if lines else None


def most_failing(rows: Rows, several: bool) -> Figure | None:
    return _counted(
        [row for row in rows if row["failed"]],
        "failed",
        "@failed",
        lambda row: _named(row, "name", several),
        lambda row: f"{count(row['failed'])}, {percent(row['failure_rate'])}",
        "Most failed runs",
    )


def clusters(rows: Rows, several: bool) -> Figure | None:
    def name(row: Row) -> str:
        what = str(row["error_type"] or row["reason"])
        error = f"{what}: {row['message']}" if row["message"] else what
        return clipped(f"{row['queue']} · {error}" if several else error, _WIDEST)

    return _counted(
        rows, "jobs", "@buried", name, lambda row: count(row["jobs"]), "Most dead letters"
    )


def schedules(rows: Rows, several: bool) -> Figure | None:
    lines = [
        Line(
            _named(row, "key", several),
            f"at most {duration(row['late_max_ms'])}",
            {key: number(row[key]) for key in ("late_p50_ms", "late_p95_ms", "late_max_ms")},
        )
        for row in _highest(rows, "late_max_ms")
    ]
    marks = [("late_p50_ms", *P50), ("late_p95_ms", *P95), ("late_max_ms", "latest", *TOP)]
    return ranges(lines, marks, f"Least punctual: {_first(lines)}.") if lines else None


def stuck(rows: Rows, several: bool, until: datetime) -> Figure | None:
    ages = [row | {"age_ms": max(0, ms_of(until) - ms_of(row["since"]))} for row in rows]
    lines = [
        Line(
            _named(row, "name", several),
            f"{clipped(row['state'], 12)} {duration(row['age_ms'])}",
            {"age_ms": row["age_ms"]},
        )
        for row in _highest(ages, "age_ms")
    ]
    if not lines:
        return None
    alt = f"{count(len(rows))} jobs do not move; the oldest: {_first(lines)}."
    return bars(lines, "age_ms", "@retried", alt)


def changes(rows: Rows, several: bool) -> Figure | None:
    """Names whose p95 of run changed most between two windows."""
    compared = [
        row
        for row in rows
        if number(row["before_run_p95_ms"]) is not None
        and number(row["after_run_p95_ms"]) is not None
    ]
    compared.sort(key=lambda row: -abs(_times_as_long(row) - 1))
    lines = [
        Line(
            _named(row, "name", several),
            f"{duration(row['before_run_p95_ms'])} → {duration(row['after_run_p95_ms'])}",
            {key: number(row[key]) for key in ("before_run_p95_ms", "after_run_p95_ms")},
        )
        for row in compared[:MOST_LINES]
    ]
    marks = [
        ("before_run_p95_ms", "before", "@p50", "circle-open"),
        ("after_run_p95_ms", "after", "@p95", "circle"),
    ]
    return ranges(lines, marks, f"Most changed p95 of run: {_first(lines)}.") if lines else None


def _counted(
    rows: Sequence[Row],
    measure: str,
    colour: str,
    name: Callable[[Row], str],
    said: Callable[[Row], str],
    what: str,
) -> Figure | None:
    """A bar for each of the highest, and one for all the others, so that nothing is missing."""
    if not rows:
        return None
    ordered = sorted(rows, key=lambda row: -int(row[measure]))
    shown = ordered if len(ordered) <= MOST_LINES else ordered[: MOST_LINES - 1]
    lines = [Line(name(row), said(row), {measure: int(row[measure])}) for row in shown]
    alt = f"{what}: {_first(lines)}."
    left = ordered[len(shown) :]
    more = sum(int(row[measure]) for row in left)
    rest = Line(f"{count(len(left))} more", count(more), {measure: more}) if left else None
    return bars(lines, measure, colour, alt, rest)


def _highest(rows: Sequence[Row], key: str) -> list[Row]:
    known = [row for row in rows if number(row[key]) is not None]
    return sorted(known, key=lambda row: -_value(row[key]))[:MOST_LINES]


def _value(value: Any) -> float:
    return number(value) or 0.0


def _times_as_long(row: Row) -> float:
    before, after = _value(row["before_run_p95_ms"]), _value(row["after_run_p95_ms"])
    return max(before, after) / max(min(before, after), 0.01)


def _named(row: Row, key: str, several: bool) -> str:
    name = str(row[key] or "(no name)")
    return clipped(f"{row['queue']} · {name}" if several else name, _WIDEST)


def _first(lines: Sequence[Line]) -> str:
    return f"{lines[0].name}, {lines[0].said}" if lines else ""
