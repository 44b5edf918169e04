"""The subjects, their committed lists, and what the code says now."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from difflib import unified_diff
from importlib import import_module
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SUBJECTS = sorted(path.stem for path in (HERE / "subjects").glob("*.py") if path.stem != "__init__")
MEANT = "users rely on this; if the change is meant, run `make freeze` and say so in CHANGELOG.md\n"


def lines_of(subject: str) -> list[str]:
    """What the code says now about a subject."""
    return ordered(import_module(f"tests.frozen.subjects.{subject}").lines())


def ordered(lines: Iterable[str]) -> list[str]:
    """The lines of a list: sorted, at least one, none of them twice."""
    found = sorted(lines)
    twice = [line for line, count in Counter(found).items() if count > 1]
    if not found or twice:
        raise ValueError(f"{len(found)} lines, of which these are there more than once: {twice}")
    return found


def committed(name: str) -> list[str]:
    """The lines of a list as its file has them; none if there is no such file."""
    file = HERE / f"{name}.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def write(name: str, lines: Iterable[str]) -> bool:
    """Write a list; False if that is what the file holds already."""
    found = ordered(lines)
    if found == committed(name):
        return False
    (HERE / f"{name}.txt").write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    return True


def compare(name: str, lines: Iterable[str]) -> None:
    """Fail with a diff unless the committed list says the same. With FREEZE=1, write it."""
    if os.environ.get("FREEZE") == "1":
        write(name, lines)
        return
    names = (f"{name}.txt", "the code")
    diff = unified_diff(committed(name), ordered(lines), *names, lineterm="", n=0)
    changes = "\n".join(diff)
    if changes:
        pytest.fail(MEANT + changes, pytrace=False)
