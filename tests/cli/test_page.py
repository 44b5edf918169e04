"""Help as we lay it out is help as Typer lays it out, to the character, at any usual width."""

from __future__ import annotations

from contextlib import redirect_stdout, suppress
from functools import partial
from io import StringIO
from unittest import mock

import pytest
import typer.rich_utils
from rich.console import Console

from chasquimq.cli.app import build
from chasquimq.cli.page import NARROWEST, find_page, lay_out
from tests.cli.colour import cells
from tools import help_pages

PAGES = help_pages.FILE.read_text()
PATHS = help_pages.paths()
WIDTHS = (NARROWEST, 67, 72, 80, 93, 100, 120, 160, 240)


def by_typer(path: tuple[str, ...], width: int, colour: bool) -> str:
    system = "standard" if colour else None
    console = partial(Console, width=width, force_terminal=colour, color_system=system)
    made = mock.patch.object(
        typer.rich_utils, "Console", lambda theme, highlighter, **_: console(
            theme=theme, highlighter=highlighter
        )
    )  # fmt: skip
    shown = StringIO()
    with made, redirect_stdout(shown), suppress(SystemExit):
        build()(args=[*path, "--help"], prog_name="chasqui")
    return shown.getvalue()


def by_us(path: tuple[str, ...], width: int, colour: bool) -> str:
    page = find_page(PAGES, " ".join(path))
    assert page is not None
    return lay_out(page, width, colour)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_is_the_one_that_typer_makes(width: int) -> None:
    for path in PATHS:
        assert by_us(path, width, colour=False) == by_typer(path, width, colour=False), path


def test_colours_are_those_of_typer() -> None:
    for path in PATHS:
        assert cells(by_us(path, 80, colour=True)) == cells(by_typer(path, 80, colour=True)), path


def test_what_is_no_command_has_no_page() -> None:
    assert find_page(PAGES, "inspekt") is None
    assert find_page(PAGES, "inspect mail") is None
    assert find_page(PAGES, "-") is None
