"""The project's files, as the house tests read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "chasquimq"

NOT_OURS = {".git", ".venv", ".cache", ".hypothesis", "build", "dist", "__pycache__", "out"}
TEXT = {".py", ".md", ".toml", ".txt", ".lua", ".sh", ".json", ".yml", ".yaml", ".html", ".csv", ""}


def files(folder: Path, *suffixes: str) -> list[Path]:
    """Every file below a folder with one of the suffixes, apart from what is made and ignored."""
    return sorted(path for path in _walk(folder) if path.suffix in suffixes)


def name(path: Path) -> str:
    """A file's path in the project: what a failing test shows."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


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
