"""Where a command writes: a terminal, a pipe, or a program that asked for JSON.

A terminal gets boxes, colours and the width it has. A pipe gets the same words in plain columns,
as wide as they are, so that `grep` and `cut` find whole lines. `--json` gets one document, or one
line per row where there is no end.
"""

from __future__ import annotations

import base64
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from chasquimq.cli.sheet import Cell, Sheet
from chasquimq.text import shown_json

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
        if isinstance(self._out, io.TextIOWrapper):
            # A terminal or a file that is not UTF-8 gets what it cannot hold escaped.
            self._out.reconfigure(errors="backslashreplace")
        self.is_terminal = not as_json and self._out.isatty()
        self.console = Console(file=self._out, highlight=False)

    @property
    def width(self) -> int | None:
        """How wide what is shown may be; None: as wide as it is."""
        return self.console.width if self.is_terminal else None

    @property
    def is_live(self) -> bool:
        """Can be drawn over and over again: a terminal that knows how to move its cursor."""
        return self.is_terminal and not self.console.is_dumb_terminal

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

    def write(self, text: str) -> None:
        """Text as it is, and at once."""
        self._out.write(text)
        self._out.flush()

    def words(self, line: Iterable[Cell]) -> None:
        """One line, its words in their tones; never wrapped, so that it can be copied whole."""
        if self.is_terminal:
            self.console.print(toned(line), soft_wrap=True)
        else:
            self.write(" ".join(word.text for word in line) + "\n")

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
        if sum(widths(one)) + 3 * len(one.columns) + 1 > self.console.width:
            table.padding = (0, 0)  # the room beside the words is what it can do without first
        return Group(table, *(Text(note) for note in one.notes))

    @contextmanager
    def until_nobody_reads(self) -> Iterator[None]:
        """End the block quietly when whoever read our output has gone: `chasqui events | head`."""
        try:
            yield
            self._out.flush()
        except BrokenPipeError:
            # Python writes the rest at its end, and would complain then.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())


def toned(line: Iterable[Cell]) -> Text:
    """Words in their tones."""
    return Text(" ").join(Text(word.text, STYLES[word.tone]) for word in line)


def plain(one: Sheet) -> str:
    """A sheet as a pipe gets it: columns two spaces apart, nothing cut, nothing behind a line."""
    lines = [one.title] if one.title else []
    room_for = widths(one)
    for row in _texts(one):
        cells = []
        for text, width, column in zip(row, room_for, one.columns, strict=True):
            room = " " * (width - cell_len(text))
            cells.append(room + text if column.right else text + room)
        lines.append("  ".join(cells).rstrip())
    lines += [one.empty] if not one.rows else []
    return "\n".join((*lines, *one.notes)) + "\n"


def widths(one: Sheet) -> list[int]:
    """How many places of a terminal each column wants; some characters take two."""
    return [max(map(cell_len, column)) for column in zip(*_texts(one), strict=True)]


def _texts(one: Sheet) -> list[list[str]]:
    heads = [column.head for column in one.columns]
    return [heads, *([cell.text for cell in row] for row in one.rows)]


def as_json(value: Any, indent: int | None = None) -> str:
    return shown_json(json.dumps(value, ensure_ascii=False, indent=indent, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "_asdict"):
        return value._asdict()
    return str(value)
