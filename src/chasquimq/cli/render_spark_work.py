"""What `chasqui spark work` shows. Pure: values in, sheets out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chasquimq.cli.fit import fit
from chasquimq.cli.render import number
from chasquimq.cli.sheet import Cell, Column, Sheet, Tone, cell, sheet
from chasquimq.text import shown

Told = Mapping[str, Any]  # as chasquimq.spark.task.summary tells it

GIVE_WAY = ("p50", "p95", "given back", "lost")
COLUMNS = [
    Column("name", wide=True),
    number("runs"),
    number("completed"),
    number("retried"),
    number("buried"),
    number("lost"),
    number("given back"),
    number("p50"),
    number("p95"),
]
WIDEST = 100


def sheets(queue: str, told: Told, width: int | None) -> Iterator[Sheet]:
    yield fit(_names(queue, told), width, GIVE_WAY)
    if told["errors"]:
        yield _errors(told)


def _names(queue: str, told: Told) -> Sheet:
    rows = [_line(one["name"], one, one["p50_ms"], one["p95_ms"]) for one in told["names"]]
    if len(rows) > 1:
        rows.append(_line("all", {**told["outcomes"], "runs": told["runs"]}, None, None))
    return sheet(
        COLUMNS,
        rows,
        title=f"{queue}: runs of handlers",
        notes=list(_notes(told)),
        empty="(nothing to run)",
    )


def _line(name: str, of: Mapping[str, int], p50: float | None, p95: float | None) -> list[object]:
    return [
        name or "(no name)",
        of["runs"],
        _count(of["completed"], "good"),
        _count(of["retried"], "warn"),
        _count(of["buried"], "bad"),
        _count(of["lost"], "warn"),
        _count(of["given_back"], ""),
        _time(p50),
        _time(p95),
    ]


def _count(value: int, tone: Tone) -> Cell:
    return cell(value, tone) if value else cell(None)


def _time(ms: float | None) -> str | None:
    if ms is None:
        return None
    return f"{ms:.1f} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"


def _notes(told: Told) -> Iterator[str]:
    if told["stopped"]:
        yield "stopped before its end: what was not run is in the queue"
    if told["out"]:
        yield f"rows are in {told['out']}"


def _errors(told: Told) -> Sheet:
    columns: list[Column | str] = [
        "name",
        "error",
        number("runs"),
        Column("for example", wide=True),
    ]
    rows = [
        [
            one["name"] or "(no name)",
            cell(one["error_type"], "bad"),
            one["runs"],
            shown(one["example"] or "", WIDEST),
        ]
        for one in told["errors"]
    ]
    return sheet(columns, rows, title="what went wrong")
