"""Sheets: whatever is put in comes out as one line of printable text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.cli.sheet import Cell, Column, cell, sheet
from tests.house.tree import SOURCE, name, tree_of

CLI = SOURCE / "cli"
PURE = sorted([*CLI.glob("render*.py"), CLI / "sheet.py", CLI / "trend.py"])
WORLD = (  # what makes a module see or change more than it is given
    *("asyncio", "logging", "os", "pathlib", "random", "secrets", "select", "signal", "socket"),
    *("subprocess", "sys", "threading", "time", "typer", "redis"),
    *("rich.console", "rich.live", "rich.progress", "rich.table"),
    *("chasquimq.queue", "chasquimq.worker", "chasquimq.sync", "chasquimq.native"),
    *("chasquimq.engine", "chasquimq.server", "chasquimq.observe", "chasquimq.store.Store"),
    *("chasquimq.cli.screen", "chasquimq.cli.shell", "chasquimq.cli.app"),
    *("chasquimq.subscribe.QueueEvents", "chasquimq.store.link", "chasquimq.store.dial"),
)
CALLS = {"print", "open", "input", "now", "today", "utcnow"}


def impurities(tree: ast.Module) -> list[str]:
    """What a module imports or calls that is no matter of values."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            function = node.func
            called = function.id if isinstance(function, ast.Name) else None
            called = function.attr if isinstance(function, ast.Attribute) else called
            found += [f"{called}()"] if called in CALLS else []
    return [one for one in found if one.endswith("()") or _opens(one)]


def _opens(imported: str) -> bool:
    return any(imported == door or imported.startswith(f"{door}.") for door in WORLD)


@pytest.mark.parametrize("path", PURE, ids=name)
def test_what_makes_sheets_is_pure(path: Path) -> None:
    assert not impurities(tree_of(path))


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "from os import environ",
        "from chasquimq.queue import Queue",
        "from chasquimq import queue",
        "from chasquimq.subscribe import QueueEvents",
        "print(1)",
        "datetime.now(UTC)",
        "def f():\n    import asyncio",
    ],
)
def test_an_impurity_is_seen(code: str) -> None:
    assert impurities(ast.parse(code))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("", "-"),
        (0, "0"),
        (1_234_567, "1,234,567"),
        (-5, "-5"),
        (True, "yes"),
        (False, "no"),
        (1.5, "1.5"),
        ("[red]mail[/red]", "[red]mail[/red]"),
        ("two\nlines\x1b[31m", "two\\nlines\\x1b[31m"),
        ("\u202eliam", "\\u202eliam"),
        ("\ud800", "\\ud800"),
    ],
)
def test_values_become_text(value: object, text: str) -> None:
    assert cell(value).text == text


@given(st.text())
def test_every_text_of_a_sheet_is_printable_and_one_line(text: str) -> None:
    one = sheet([text, Column(text, right=True)], [[text, Cell("as it is")]], title=text,
                notes=[text])  # fmt: skip
    for part in (*(column.head for column in one.columns), one.rows[0][0].text, one.title):
        assert part.isprintable()
    assert all(note.isprintable() for note in one.notes)
    assert one.columns[1].right


def test_a_tone_stays_with_its_cell() -> None:
    one = sheet(["a", "b"], [[Cell("x", "bad"), None]])
    assert one.rows == ((Cell("x", "bad"), Cell("-", "dim")),)
