"""Where commands write: the same sheet in a terminal, in a pipe, as JSON."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys

import pytest
from rich.console import Console

from chasquimq.cli.screen import Screen, as_json, plain, toned
from chasquimq.cli.sheet import Cell, Column, Sheet, sheet
from tests.cli.kit import PATIENCE_S

TRICKY = sheet(
    (Column("queue", wide=True), Column("depth", right=True), Column("who", right=True)),
    [
        ["[red]mail[/red]", 12, "右から"],
        ["日本語キュー", 3_456, "x"],
        ["bell\x07 and \x1b[31mred", Cell("-1", "bad"), None],
        ["emoji 🚀", 0, "[bold]"],
    ],
    title="[blink]all[/blink]",
    notes=["[link=evil]a note[/link]"],
)


def drawn(one: Sheet, width: int) -> str:
    screen = Screen(out=io.StringIO())
    screen.console = Console(file=io.StringIO(), width=width, color_system=None)
    with screen.console.capture() as captured:
        screen.console.print(screen.drawn(one))
    return captured.get()


def test_markup_and_controls_are_shown_as_they_are_and_columns_line_up() -> None:
    assert plain(TRICKY) == (
        "[blink]all[/blink]\n"
        "queue                     depth     who\n"
        "[red]mail[/red]              12  右から\n"
        "日本語キュー              3,456       x\n"
        "bell\\x07 and \\x1b[31mred     -1       -\n"
        "emoji 🚀                      0  [bold]\n"
        "[link=evil]a note[/link]\n"
    )
    text = drawn(TRICKY, 80)
    assert "[red]mail[/red]" in text and "[link=evil]a note[/link]" in text
    assert "\\x1b[31mred" in text and "\x1b" not in text
    assert "[blink]all[/blink]" in text


def test_a_terminal_that_is_too_narrow_costs_the_room_between_words_first() -> None:
    row = ["a" * 20, 1, "b" * 6]
    one = sheet((Column("queue", wide=True), Column("n", right=True), Column("state")), [row])
    assert max(map(len, drawn(one, 37).splitlines())) == 37
    assert "│aaaaaaaaaaaaaaaaaaaa│1│bbbbbb│" in drawn(one, 36)
    assert "│aaaaaaaaaaaaaaaaaaaa│1│bbbbbb│" in drawn(one, 31)
    folded = drawn(one, 25)  # and then the wide column folds: nothing is cut
    assert folded.count("a") == 20 + 1  # the head of the last column has one
    assert "bbbbbb" in folded


def test_an_empty_sheet_says_so() -> None:
    one = sheet(("a", "b"), [], empty="(no queues)")
    assert plain(one) == "a  b\n(no queues)\n"
    assert "(no queues)" in drawn(one, 80)


def test_words_have_tones() -> None:
    line = toned([Cell("a", "bad"), Cell("[b]", "dim")])
    assert line.plain == "a [b]"
    assert [span.style for span in line.spans] == ["bold red", "dim"]


HOSTILE = "\x1b[31m \x9b31m \u202e \u2028 \ud800 ü日"


def test_json_holds_nothing_that_a_terminal_obeys() -> None:
    text = as_json({"name": HOSTILE, "raw": b"\x00"})
    assert json.loads(text) == {"name": HOSTILE, "raw": {"base64": "AA=="}}
    assert text.isprintable()
    assert "ü日" in text


def test_a_file_that_is_not_utf8_gets_it_escaped() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    Screen(out=out).show(sheet(("Δ",), [["ü"]]))
    out.flush()
    assert raw.getvalue() == b"\\u0394\n\\xfc\n"


SHOW = """
from chasquimq.cli.screen import Screen
from chasquimq.cli.sheet import Cell, sheet
screen = Screen()
screen.show(sheet(("name",), [[Cell("dead", "bad")]]))
screen.words([Cell("dead", "bad"), Cell("job")])
print(screen.is_terminal, screen.is_live)
"""


def shown(**env: str) -> str:
    """What a program shows in a terminal with these variables."""
    ours, theirs = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    try:
        command = [sys.executable, "-c", SHOW]
        subprocess.run(command, stdout=theirs, env={**known, **env}, timeout=PATIENCE_S, check=True)
        return os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("env", "colour", "live"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False, True),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    env: dict[str, str], colour: bool, live: bool
) -> None:
    text = shown(**env)
    assert ("31m" in text) == colour
    assert f"True {live}" in text
    assert "dead" in text
