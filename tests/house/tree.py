"""The project's files, as the house tests read them.

A rule is one test that looks at all its files, not one for each: they are thousands, and a test
costs more than a look. It tells everything that it found, each with its file and line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "chasquimq"

NOT_OURS = {".git", ".venv", ".cache", ".hypothesis", "build", "dist", "__pycache__", "out"}
TEXT = {".py", ".md", ".toml", ".txt", ".lua", ".sh", ".json", ".yml", ".yaml", ".html", ".csv", ""}


def files(folder: Path, *suffixes: str) -> list[Path]:
    """Every file below a folder with one of the suffixes, apart from what is made and ignored."""
    return [path for path in _all(folder) if path.suffix in suffixes]


def name(path: Path) -> str:
    """A file's path in the project: what a failing test shows."""
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


Offence = tuple[int, str]  # the line, and what is wrong there


def look_at(paths: list[Path], offences: Callable[[Path], Iterable[Offence]]) -> None:
    """Look at every file, and fail with all that was found."""
    found: list[str] = []
    for path in paths:
        try:
            found += [f"{name(path)}:{line}: {what}" for line, what in sorted(offences(path))]
        except Exception as error:  # it cannot be read: no reason to be silent about the others
            found.append(f"{name(path)}: {type(error).__name__}: {error}")
    none_of(found, len(paths))


def none_of(found: list[str], looked_at: int) -> None:
    """Fail with everything that was found, and when nothing was looked at."""
    if not looked_at:
        pytest.fail("there is nothing to look at: the list of what to look at is empty")
    if found:
        pytest.fail("\n".join([f"found {len(found)}:", *found]), pytrace=False)


def lines_of(text: str, pattern: str) -> Iterator[Offence]:
    """Where a pattern is found in a text, and what it found."""
    for found in re.finditer(pattern, text):
        yield text.count("\n", 0, found.start()) + 1, found[0]


def missing_targets(command: str) -> list[str]:
    """Targets that a command makes and the Makefile does not have."""
    there = re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE)
    made = re.findall(r"\bmake +([a-z-]+(?: +[a-z-]+)*)", command)
    return [target for targets in made for target in targets.split() if target not in there]


def missing_files(command: str) -> list[str]:
    """Files and folders of ours that a command names and that do not exist."""
    named = re.findall(r"(?<![\w./-])(?:src|tests|tools|requirements)/[\w./-]*\w", command)
    return [name for name in named if not (ROOT / name).exists()]


@cache
def _all(folder: Path) -> list[Path]:
    return sorted(_walk(folder))


def _walk(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.name in NOT_OURS or path.name.endswith(("_cache", ".egg-info")):
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path
