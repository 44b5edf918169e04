"""What a command shows, as a value: a table with its words and their tones. Pure.

`render.py` makes sheets out of what the doors answer, `screen.py` puts them on a terminal or
into a pipe. Every text in a cell is safe to show: `shown` has taken out what a terminal would
obey.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from chasquimq.text import shown

Tone = Literal["", "good", "warn", "bad", "dim", "strong"]


class Cell(NamedTuple):
    text: str
    tone: Tone = ""


Line = tuple[Cell, ...]  # words in a row, each in its tone, a space between them


class Column(NamedTuple):
    """`right`: numbers. `wide`: the column that gives way when a terminal is narrow."""

    head: str
    right: bool = False
    wide: bool = False


class Sheet(NamedTuple):
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()  # lines under the table
    empty: str = "(none)"  # what stands there when there are no rows


def cell(value: object, tone: Tone = "") -> Cell:
    """Whatever it is, as one line of printable text; nothing at all is `-`."""
    if value is None or value == "":
        return Cell("-", tone or "dim")
    if isinstance(value, bool):
        return Cell("yes" if value else "no", tone)
    if isinstance(value, int):
        return Cell(f"{value:,}", tone)
    return Cell(shown(str(value)), tone)


def sheet(
    columns: Iterable[Column | str],
    rows: Iterable[Iterable[object]],
    *,
    title: str = "",
    notes: Iterable[str] = (),
    empty: str = "(none)",
) -> Sheet:
    """A sheet of plain values; what is a Cell already stays as it is."""
    return Sheet(
        tuple(map(_column, columns)),
        tuple(tuple(one if isinstance(one, Cell) else cell(one) for one in row) for row in rows),
        shown(title),
        tuple(shown(note) for note in notes),
        empty,
    )


def _column(one: Column | str) -> Column:
    column = Column(one) if isinstance(one, str) else one
    return column._replace(head=shown(column.head))
