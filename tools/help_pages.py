"""What Typer shows as help, as `src/chasquimq/cli/pages.txt` has it; `cli_reference.py` writes it.

Typer is let to make each page on a console that keeps what it is given instead of showing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import typer.rich_utils
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from chasquimq.cli.app import build, build_whole

FILE = Path(__file__).parents[1] / "src" / "chasquimq" / "cli" / "pages.txt"
NOTE = (
    "# Written by `make cli-reference` from the code; do not edit. `page.py` tells how to read it."
)
_CONSOLE = typer.rich_utils._get_rich_console()  # knows the names of styles
_ATTRIBUTES = {"bold": "1", "dim": "2"}


class _Keeper:
    def __init__(self) -> None:
        self.kept: list[tuple[Any, str]] = []

    def print(self, shown: Any, style: str = "") -> None:
        self.kept.append((shown, style))


def pages() -> str:
    lines = [line for path in paths() for line in ("", f"=\t{' '.join(path)}", *_page(path))]
    return "\n".join((NOTE, *lines, ""))


def paths() -> list[tuple[str, ...]]:
    return list(_paths(build_whole()))


def _paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, one in getattr(command, "commands", {}).items():
        yield from _paths(one, (*path, name))


def _page(path: tuple[str, ...]) -> Iterator[str]:
    keeper = _Keeper()
    with (
        mock.patch.object(typer.rich_utils, "_get_rich_console", return_value=keeper),
        redirect_stdout(StringIO()),
        suppress(SystemExit),
    ):
        build()(args=[*path, "--help"], prog_name="chasqui")
    for shown, style in keeper.kept:
        yield from _texts(shown, style) if isinstance(shown, Padding) else _panel(shown)


def _texts(padding: Padding, style: str) -> Iterator[str]:
    inner: Any = padding.renderable
    if isinstance(inner, Text):
        yield f"usage\t{_marked(inner, style)}"
    elif isinstance(inner.renderable, Text):
        yield from (f"example\t{_marked(line)}" for line in _lines(inner.renderable))
    else:
        parts = [line for one in inner.renderable.renderables for line in _lines(one)]
        yield from (f"about\t{_marked(line)}" for line in parts)


def _panel(panel: Any) -> Iterator[str]:
    columns = panel.renderable.columns
    rows = list(zip(*(column.cells for column in columns), strict=True))
    if columns[0].width is not None:
        yield f"commands\t{panel.title}\t{columns[0].width}"
        for name, about in rows:
            yield f"command\t{_marked(name, columns[0].style)}\t{_marked(about)}"
        return
    yield f"options\t{panel.title}"
    for *cells, notes in rows:
        if len(notes.renderables) > 2:
            raise ValueError(f"{panel.title}: page.py lays out a help and one note behind it")
        written = [*map(_marked, cells), *map(_marked, notes.renderables)]
        yield "\t".join(("option", str(len(cells)), *written))


def _lines(text: Text) -> list[Text]:
    whole = Text("").join([text])  # its own style becomes one of its parts
    return list(whole.split("\n", allow_blank=True))


def _marked(text: Text | str, style: Any = "") -> str:
    """The words, with marks around what is coloured."""
    found: list[tuple[str, str]] = []
    whole = Text("").join([text if isinstance(text, Text) else Text(text)])
    whole.stylize_before(style)
    for words, look, _ in whole.render(_CONSOLE):
        codes = _codes(look)
        if found and found[-1][1] == codes:
            found[-1] = found[-1][0] + words, codes
        else:
            found.append((words, codes))
    written = "".join(f"⟦{codes}|{words}⟧" if codes else words for words, codes in found)
    if any(ord(one) < 32 or ord(one) > 126 for one in whole.plain):
        raise ValueError(f"cannot lay out {whole.plain!r}: it has more than plain characters")
    return written


def _codes(look: Style | None) -> str:
    if look is None:
        return ""
    codes = [code for name, code in _ATTRIBUTES.items() if getattr(look, name)]
    if look.color is not None:
        assert look.color.number is not None and look.color.number < 8, look
        codes.append(str(30 + look.color.number))
    return ";".join(codes)
