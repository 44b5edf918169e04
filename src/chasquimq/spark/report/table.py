"""The tables of a page: all that its plots show of names, clusters, schedules and the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from chasquimq.spark.report.course import DAYS
from chasquimq.spark.report.data import Row, Rows
from chasquimq.spark.report.show import (
    NAMELESS,
    NOTHING,
    count,
    duration,
    moment,
    ms_of,
    number,
    percent,
    text,
)

MOST_ROWS = 200


class Column(NamedTuple):
    title: str
    cell: Callable[[Row], str]  # HTML
    is_number: bool = True


def table(
    columns: Sequence[Column], rows: Sequence[Row], places: Mapping[str, int], caption: str
) -> str:
    """Rows as HTML; each says by a number whose queue it is, for the choice of one."""
    shown = rows[:MOST_ROWS]
    head = "".join(f'<th scope="col"{_kind(one)}>{one.title}</th>' for one in columns)
    body = "".join(
        f'<tr data-queue="{places.get(str(row.get("queue")), -1)}">'
        + "".join(
            f'<td data-label="{one.title}"{_kind(one)}>{one.cell(row)}</td>' for one in columns
        )
        + "</tr>"
        for row in shown
    )
    left = len(rows) - len(shown)
    note = f'<p class="note">{count(left)} more rows are not shown.</p>' if left else ""
    return (
        f'<div class="scroll"><table><caption>{caption}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def totals(rows: Rows, places: Mapping[str, int]) -> str:
    measures = ("jobs", "started", "completed", "failed", "retried", "buried", "events")
    columns = [_queue(), *(Column(one, _counted(one)) for one in measures)]
    ordered = sorted(rows, key=lambda row: -int(row["started"] or 0))
    return table(columns, ordered, places, "What was counted, by queue")


def names(rows: Rows, places: Mapping[str, int]) -> str:
    columns = [
        *(_queue(), _foreign("name", "name")),
        *(Column(one, _counted(one)) for one in ("started", "failed", "buried")),
        Column("failure rate", lambda row: percent(row["failure_rate"])),
        *(_lasting("run p50", "run_p50_ms"), _lasting("run p95", "run_p95_ms")),
        *(_lasting("wait p50", "wait_p50_ms"), _lasting("wait p95", "wait_p95_ms")),
    ]
    ordered = sorted(rows, key=lambda row: -int(row["started"] or 0))
    return table(columns, ordered, places, "Names, the most used first")


def clusters(rows: Rows, places: Mapping[str, int]) -> str:
    def error(row: Row) -> str:
        kind = f"<b>{text(row['error_type'])}</b> " if row["error_type"] else ""
        return f"<span>{kind}{text(row['message'] or NOTHING)}</span>"

    def example(row: Row) -> str:
        held = row["example_payload"]
        return NOTHING if held is None else f"<code>{text(held, 300)}</code>"

    columns = [
        Column("jobs", _counted("jobs")),
        _queue(),
        _foreign("reason", "reason"),
        Column("error", error, is_number=False),
        Column("first seen", lambda row: moment(row["first_seen"])[:16], is_number=False),
        Column("last seen", lambda row: moment(row["last_seen"])[:16], is_number=False),
        Column("example", example, is_number=False),
        _foreign("cluster", "cluster"),
    ]
    ordered = sorted(rows, key=lambda row: -int(row["jobs"] or 0))
    return table(columns, ordered, places, "Dead letters by what killed them")


def schedules(rows: Rows, places: Mapping[str, int]) -> str:
    columns = [
        *(_queue(), _foreign("schedule", "key"), Column("fires", _counted("fires"))),
        *(_lasting("late p50", "late_p50_ms"), _lasting("late p95", "late_p95_ms")),
        _lasting("latest", "late_max_ms"),
    ]
    ordered = sorted(rows, key=lambda row: -(number(row["late_max_ms"]) or 0))
    return table(columns, ordered, places, "Schedules, the least punctual first")


def stuck(rows: Rows, places: Mapping[str, int], until: datetime) -> str:
    columns = [
        *(_queue(), _foreign("job", "job_id"), _foreign("name", "name")),
        _foreign("state", "state"),
        Column("since", lambda row: moment(row["since"]), is_number=False),
        Column("for", lambda row: duration(max(0, ms_of(until) - ms_of(row["since"])))),
    ]
    return table(columns, sorted(rows, key=lambda row: ms_of(row["since"])), places, "Oldest first")


def changes(rows: Rows, places: Mapping[str, int]) -> str:
    columns = [
        *(_queue(), _foreign("name", "name")),
        _before_after("completed", "completed", lambda value: count(value or 0)),
        _before_after("failure rate", "failure_rate", percent),
        _before_after("run p95", "run_p95_ms", duration),
        _before_after("wait p95", "wait_p95_ms", duration),
    ]
    return table(columns, rows, places, "Before → after")


def heat(rows: Rows) -> str:
    cells = {(int(row["weekday"]), int(row["hour"])): row for row in rows}

    def hour_of(day: int, hour: int) -> str:
        row = cells.get((day, hour))
        return NOTHING if row is None else duration(row["wait_p95_ms"])

    head = "".join(f'<th scope="col">{day[:3]}</th>' for day in DAYS)
    body = "".join(
        f'<tr><th scope="row">{hour:02}:00</th>'
        + "".join(f'<td class="number">{hour_of(day, hour)}</td>' for day in range(1, 8))
        + "</tr>"
        for hour in range(24)
    )
    return (
        '<div class="scroll"><table class="grid"><caption>p95 of wait, by hour (UTC) and weekday'
        f'</caption><thead><tr><th scope="col">hour</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _queue() -> Column:
    return _foreign("queue", "queue")


def _foreign(title: str, key: str) -> Column:
    def cell(row: Row) -> str:
        return text(_or_nameless(row[key])).replace("_", "_<wbr>")  # where a line may break

    return Column(title, cell, is_number=False)


def _or_nameless(value: Any) -> Any:
    return NAMELESS if value is None or value == "" else value


def _counted(key: str) -> Callable[[Row], str]:
    return lambda row: count(row[key] or 0)


def _lasting(title: str, key: str) -> Column:
    return Column(title, lambda row: duration(row[key]))


def _before_after(title: str, key: str, show: Callable[[Any], str]) -> Column:
    def cell(row: Row) -> str:
        before, after = number(row[f"before_{key}"]), number(row[f"after_{key}"])
        words = f"{show(before)} → {show(after)}"
        if before is None or after is None or key == "completed":
            return words
        if after > before * 1.1:
            return f'<span class="worse">▲ {words}</span>'
        return f'<span class="better">▼ {words}</span>' if after < before * 0.9 else words

    return Column(title, cell)


def _kind(column: Column) -> str:
    return ' class="number"' if column.is_number else ""
