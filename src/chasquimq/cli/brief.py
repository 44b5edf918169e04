"""What is answered before anything is loaded that reads a command line: the version, and help.

Where it is not certain that the answer is the one Typer would give, there is none: an unusual
terminal, a setting that rich or Typer obey, anything else on the command line.
"""

from __future__ import annotations

import os
import sys

from chasquimq._version import __version__

TYPE_CHECKING = False  # `typing` would take as long as the answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PAGES = os.path.join(os.path.dirname(__file__), "pages.txt")
_COMPLETING = "_CHASQUI_COMPLETE"  # a shell asks what could follow
_OBEYED = (  # by rich and Typer, in ways that are not ours to know
    *("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "TYPER_USE_RICH"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "_TYPER_FORCE_DISABLE_TERMINAL"),
)
_USUAL_WIDTH = 80


def answered(argv: Sequence[str]) -> bool:
    """Whether that was all; else the command line has to be read in earnest."""
    if _COMPLETING in os.environ:
        return False
    if list(argv) == ["--version"]:
        return _written(f"chasqui {__version__}\n")
    if argv and argv[-1] in ("--help", "-h"):
        return _helped(" ".join(argv[:-1]))
    return False


def _helped(path: str) -> bool:
    from chasquimq.cli.page import NARROWEST, find_page, lay_out

    width = _width(os.environ)
    if width < NARROWEST or not _is_usual(os.environ):
        return False
    try:
        with open(_PAGES, encoding="utf-8") as file:
            page = find_page(file.read(), path)
    except OSError:
        return False
    return page is not None and _written(lay_out(page, width, sys.stdout.isatty()))


def _is_usual(environment: Mapping[str, str]) -> bool:
    """Nothing but UTF-8; a terminal that knows colours, and nobody who does not want them."""
    if os.name == "nt" or any(name in environment for name in _OBEYED):
        return False
    if not (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf"):
        return False
    terminal = environment.get("TERM", "").strip().lower()
    plain = terminal in ("dumb", "unknown", "") or "NO_COLOR" in environment
    return not (plain and sys.stdout.isatty())


def _width(environment: Mapping[str, str]) -> int:
    """As the environment says, or the first stream that is a terminal."""
    said = environment.get("COLUMNS", "")
    if said.isdigit():
        return int(said)
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        try:
            width = os.get_terminal_size(stream.fileno()).columns if stream else 0
        except (AttributeError, ValueError, OSError):
            continue
        return width or _USUAL_WIDTH
    return _USUAL_WIDTH


def _written(text: str) -> bool:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough; nobody shall complain when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
