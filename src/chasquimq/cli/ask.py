"""Ask before something that cannot be undone. Questions go to stderr: stdout is for answers."""

from __future__ import annotations

import select
import sys
from typing import NoReturn

import typer

from chasquimq.cli.exits import Exit
from chasquimq.text import shown

LOOK_S = 0.1  # between two looks whether something was typed


def confirm(question: str, yes: bool, *, piped: bool = False) -> None:
    """Go on only after `y` or `yes`, in any case; everything else ends the command.

    `piped`: an answer may also come from a pipe. Elsewhere a program must say `--yes`: one that
    reads a pipe to its end would take the first line of its data for an answer.
    """
    if yes:
        return
    if not piped and not sys.stdin.isatty():
        refuse(f"{question}: stdin is no terminal to ask at; say --yes")
    sys.stderr.write(f"{shown(question)}? [y/N] ")
    sys.stderr.flush()
    answer = _typed()
    if not sys.stdin.isatty() or not answer.endswith("\n"):
        sys.stderr.write("\n")  # nobody has pressed Enter on this screen
    if answer.strip().lower() not in ("y", "yes"):
        refuse("aborted")


def _typed() -> str:
    """A line from stdin. A Ctrl-C that comes just before a read begins would wait until that ends:
    so at a terminal none begins before there is something to read."""
    while sys.stdin.isatty() and not select.select([sys.stdin], [], [], LOOK_S)[0]:
        pass
    return sys.stdin.readline()


def refuse(why: str) -> NoReturn:
    """End the command: what was asked for is not done."""
    print(f"chasqui: {shown(why)}", file=sys.stderr)
    raise typer.Exit(Exit.FAILED)
