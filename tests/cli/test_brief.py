"""Help and version without Typer: only where it would say the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chasquimq.cli import brief
from tests.cli.colour import cells
from tests.cli.kit import COMMAND, Terminal

SOURCE = str(Path(brief.__file__).parents[2])
ASKS = (
    "import sys; from chasquimq.cli import main; main(sys.argv[1:]); print('typer' in sys.modules)"
)


def asked(*argv: str, **environment: str) -> tuple[str, bool]:
    """What it said, and whether Typer was needed for it."""
    done = subprocess.run(
        [sys.executable, "-c", ASKS, *argv],
        env={"PYTHONPATH": SOURCE, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    said, _, needed = done.stdout.rstrip("\n").rpartition("\n")
    return said, needed == "True"


@pytest.mark.parametrize("argv", [("--help",), ("worker", "-h"), ("spark", "work", "--help")])
@pytest.mark.parametrize("columns", ["80", "133"])
def test_both_ways_say_the_same(argv: tuple[str, ...], columns: str) -> None:
    ours, needed = asked(*argv, COLUMNS=columns)
    assert not needed
    assert "Usage: chasqui" in ours
    assert asked(*argv, COLUMNS=columns, TERMINAL_WIDTH=columns) == (ours, True)


@pytest.mark.parametrize(
    "environment",
    [
        {"COLUMNS": "40"},
        {"FORCE_COLOR": "1"},
        {"GITHUB_ACTIONS": "true"},
        {"TYPER_USE_RICH": "0"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=str,
)
def test_what_is_unusual_is_left_to_typer(environment: dict[str, str]) -> None:
    said, needed = asked("inspect", "--help", **environment)
    assert needed
    assert "Usage: " in said


@pytest.mark.parametrize(
    "argv", [("inspect", "mail", "--help"), ("--redis-url", "redis://h", "inspect", "--help")]
)
def test_a_longer_command_line_is_left_to_typer(argv: tuple[str, ...]) -> None:
    said, needed = asked(*argv)
    assert needed
    assert "Usage: chasqui inspect" in said


def test_a_shell_that_completes_is_left_to_typer() -> None:
    said, needed = asked("--version", _CHASQUI_COMPLETE="complete_bash", COMP_WORDS="chasqui insp",
                         COMP_CWORD="1")  # fmt: skip
    assert needed
    assert "inspect" in said


def test_a_pipe_that_is_closed_is_no_failure() -> None:
    program = (
        "import os, sys; end, start = os.pipe(); os.close(end); os.dup2(start, 1);"
        "from chasquimq.cli import main; sys.exit(main(['--help']))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={"PYTHONPATH": SOURCE}, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def in_a_terminal(argv: tuple[str, ...], **environment: str) -> str:
    env = {"PYTHONPATH": SOURCE, "TERM": "xterm-256color", **environment}
    with Terminal([*COMMAND, *argv], env, 100, 50, None) as terminal:
        assert terminal.end() == 0
        return terminal.raw.decode()


@pytest.mark.parametrize("argv", [("--help",), ("worker", "--help")])
def test_a_terminal_shows_the_same_in_both_ways(argv: tuple[str, ...]) -> None:
    ours = in_a_terminal(argv)
    assert cells(ours) == cells(in_a_terminal(argv, TERMINAL_WIDTH="100"))
    assert "\x1b[1;36m--help" in ours


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_who_wants_no_colours_gets_none(variable: dict[str, str]) -> None:
    shown = in_a_terminal(("--help",), **variable)
    assert "Print the version." in shown
    assert not {"33", "36"} & {code for _, codes in cells(shown) for code in codes}
