"""What the commands of the lake show. Pure: rows in, sheets and words out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from chasquimq.cli.fit import fit
from chasquimq.cli.render import brief, number
from chasquimq.cli.sheet import Cell, Column, Sheet, Tone, cell, sheet

Row = Mapping[str, Any]

GIVE_WAY = ("run p99", "wait p99", "run p50", "wait p50", "retried", "buried", "queue", "started")
_FIGURES = ("run_p50_ms", "run_p95_ms", "run_p99_ms", "wait_p50_ms", "wait_p95_ms", "wait_p99_ms")


def brought_in(lake: str, counted: Mapping[str, int]) -> str:
    told = " and ".join(f"{rows:,} {_of(table)}" for table, rows in counted.items())
    return f"brought {told} into {lake}"


def batch(table: str, told: Row) -> str:
    return f"{table}: batch {told['batchId']}, {told['numInputRows']:,} {_of(table)}"


def compacted(done: Row) -> str:
    if not any(done.values()):
        return "nothing to do: few folders, and none that is superseded or too old"
    words = (
        f"put {done['put_together']:,} folders together into {done['written']:,}",
        f"removed {done['removed']:,} that were superseded",
        f"and {done['days']:,} days",
    )
    return ", ".join(words)


def windows(rows: Sequence[Row], by: Sequence[str], width: int | None, left: int) -> Sheet:
    """A row per window and group."""
    columns: list[Column | str] = ["window (UTC)", *map(_wide, by), *_HEADS[1:]]
    lines = [
        [minute(row["window_start"]), *(row[one] for one in by), *_figures(row)] for row in rows
    ]
    return fit(sheet(columns, lines, notes=_more(left)), width, GIVE_WAY, "use --json")


def totals(rows: Sequence[Row], by: Sequence[str], width: int | None, left: int) -> Sheet:
    """The same over the whole time."""
    columns: list[Column | str] = [*map(_wide, by), *(h for h in _HEADS[1:] if _head(h) != "per s")]
    lines = [[*(row[one] for one in by), *_figures(row, rate=False)] for row in rows]
    return fit(sheet(columns, lines, notes=_more(left)), width, GIVE_WAY, "use --json")


def summary(rows: Sequence[Row]) -> Sheet:
    """A report's totals."""
    counts = ("jobs", "started", "completed", "failed", "retried", "buried", "events")
    lines = [[row["queue"], *(row[one] for one in counts)] for row in rows]
    return sheet(["queue", *map(number, counts)], lines, empty="(no events)")


def clusters(rows: Sequence[Row]) -> Sheet:
    """What jobs died of, the most first."""
    columns: list[Column | str] = ["cluster", "queue", number("jobs"), "reason"]
    lines = [
        [row["cluster"], row["queue"], row["jobs"], row["reason"], _error(row)] for row in rows[:8]
    ]
    columns.append(Column("error", wide=True))
    return sheet(columns, lines, notes=_more(len(rows) - 8), empty="(nobody died)")


def lives(rows: Sequence[Row], now_ms: int, width: int | None, left: int) -> Sheet:
    columns: list[Column | str] = [
        "queue",
        Column("job", wide=True),
        Column("name", wide=True),
        "state",
        number("starts"),
        number("first seen"),
        number("last heard"),
        number("total"),
        number("run"),
        Column("reason", wide=True),
    ]
    lines = [
        [
            row["queue"],
            row["job_id"],
            row["name"],
            _state(row),
            row["starts"],
            _ago(row["first_seen"], now_ms),
            _ago(row["last_seen"], now_ms),
            span(row["total_ms"]),
            span(row["run_ms"]),
            row["error"] or row["reason"],
        ]
        for row in rows
    ]
    give_way = ("run", "first seen", "queue", "reason", "name")
    return fit(sheet(columns, lines, notes=_more(left)), width, give_way, "use --json")


def compared(rows: Sequence[Row], by: Sequence[str], width: int | None) -> Sheet:
    """Before and after, and how many times as much."""
    heads = ("done per s", "failed", "run p50", "run p95", "wait p95")
    figures = ("per_second", "failure_rate", "run_p50_ms", "run_p95_ms", "wait_p95_ms")
    columns: list[Column | str] = [*map(_wide, by), *map(number, heads)]
    lines = [
        [*(row[one] for one in by), *(_change(row, figure) for figure in figures)] for row in rows
    ]
    notes = ("before → after, and how many times as much",)
    return fit(sheet(columns, lines, notes=notes), width, ("run p50", "queue"), "use --json")


def minute(moment: datetime) -> str:
    text = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return text.removesuffix(":00")


def span(ms: float | None) -> str | None:
    """A duration that may be less than a millisecond."""
    if ms is None:
        return None
    if ms < 0.95:
        return f"{ms * 1000:.0f}µs"
    return f"{ms:.1f}ms" if ms < 100 else brief(round(ms))


def share(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:.1%}"


# -- inside ----------------------------------------------------------------------------------------

_STATES: dict[str, Tone] = {"completed": "good", "dead": "bad"}
_HEADS: tuple[Column | str, ...] = (
    "",
    number("started"),
    number("done"),
    number("per s"),
    number("failed"),
    number("retried"),
    number("buried"),
    *(number(one.removesuffix("_ms").replace("_", " ")) for one in _FIGURES),
)


def _figures(row: Row, *, rate: bool = True) -> Iterable[object]:
    yield row["started"]
    yield row["completed"]
    if rate:
        yield f"{row['per_second']:,.1f}"
    yield Cell(share(row["failure_rate"]) or "-", _tone(row["failure_rate"]))
    yield share(row["retry_rate"])
    yield Cell(f"{row['buried']:,}", "bad" if row["buried"] else "dim")
    yield from (span(row[figure]) for figure in _FIGURES)


def _tone(rate: float | None) -> Tone:
    if not rate:
        return "dim"
    return "bad" if rate >= 0.1 else "warn" if rate >= 0.01 else ""


def _change(row: Row, figure: str) -> Cell:
    before, after = row[f"before_{figure}"], row[f"after_{figure}"]
    times = f" ({after / before:.2f}×)" if before and after is not None else ""
    worse = before and after is not None and figure != "per_second" and after > 1.5 * before
    return Cell(
        f"{_figure(before, figure)} → {_figure(after, figure)}{times}", "bad" if worse else ""
    )


def _figure(value: float | None, figure: str) -> str:
    if value is None:
        return "-"
    if figure == "per_second":
        return f"{value:,.2f}"
    return (share(value) if figure == "failure_rate" else span(value)) or "-"


def _state(row: Row) -> Cell:
    if row["stuck"]:
        return Cell(f"{row['state']}, stuck", "bad")
    return cell(row["state"], _STATES.get(row["state"], ""))


def _ago(moment: datetime | None, now_ms: int) -> str | None:
    if moment is None:
        return None
    return brief(max(0, now_ms - round(moment.astimezone(UTC).timestamp() * 1000)))


def _error(row: Row) -> str:
    return ": ".join(part for part in (row["error_type"], row["message"]) if part)


def _more(left: int) -> tuple[str, ...]:
    return (f"{left:,} more; --limit shows them, --json and --out have all",) if left > 0 else ()


def _wide(name: str) -> Column:
    return Column(name, wide=name == "name")


def _head(column: Column | str) -> str:
    return column if isinstance(column, str) else column.head


def _of(table: str) -> str:
    return "events" if table == "events" else "dead jobs"
