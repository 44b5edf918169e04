"""Where a command writes: a terminal, a pipe, or a program that asked for JSON.

A terminal gets boxes, colours and the width it has. A pipe gets the same words in plain columns,
as wide as they are, so that `grep` and `cut` find whole lines. `--json` gets one document, or one
line per row where there is no end.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from chasquimq.cli.sheet import Sheet

STYLES = {
    "": "",
    "good": "green",
    "warn": "yellow",
    "bad": "bold red",
    "dim": "dim",
    "strong": "bold",
}


class Screen:
    def __init__(self, *, as_json: bool = False, out: TextIO | None = None) -> None:
        self.as_json = as_json
        self._out = out or sys.stdout
        self.is_terminal = not as_json and self._out.isatty()
        self.console = Console(file=self._out, highlight=False)

    def show(self, *sheets: Sheet) -> None:
        for place, one in enumerate(sheets):
            if place:
                self.console.print()
            if self.is_terminal:
                self.console.print(self.drawn(one))
            else:
                self._out.write(plain(one))

    def say(self, text: str) -> None:
        """One line of ours; nothing in it is markup."""
        self.console.print(Text(text), soft_wrap=True)

    def json(self, value: Any) -> None:
        """One document: indented for eyes, on one line for programs."""
        indent = 2 if self._out.isatty() else None
        self._out.write(as_json(value, indent) + "\n")
        self._out.flush()

    def line(self, value: Any) -> None:
        """One of many documents, each on its own line."""
        self._out.write(as_json(value) + "\n")
        self._out.flush()

    def drawn(self, one: Sheet) -> RenderableType:
        """A sheet as a terminal shows it."""
        table = Table(box=box.ROUNDED, header_style="bold", title_justify="left")
        if one.title:
            table.title = Text(one.title)
        for column in one.columns:
            table.add_column(
                Text(column.head),
                justify="right" if column.right else "left",
                no_wrap=not column.wide,
                overflow="fold" if column.wide else "ellipsis",
            )
        for row in one.rows:
            table.add_row(*(Text(cell.text, STYLES[cell.tone]) for cell in row))
        if not one.rows:
            table.add_row(Text(one.empty, "dim"))
        return Group(table, *(Text(note) for note in one.notes))


def plain(one: Sheet) -> str:
    """A sheet as a pipe gets it: columns two spaces apart, nothing cut, nothing behind a line."""
    rows = [[column.head for column in one.columns]]
    rows += [[cell.text for cell in row] for row in one.rows]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = [one.title] if one.title else []
    for row in rows:
        cells = []
        for text, width, column in zip(row, widths, one.columns, strict=True):
            room = " " * (width - cell_len(text))
            cells.append(room + text if column.right else text + room)
        lines.append("  ".join(cells).rstrip())
    lines += [one.empty] if not one.rows else []
    return "\n".join((*lines, *one.notes)) + "\n"


def as_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "_asdict"):
        return value._asdict()
    return str(value)
