"""The scenarios of `book.toml`, as values."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple


class Scenario(NamedTuple):
    name: str
    room: str
    invariants: tuple[int, ...]
    tests: tuple[str, ...]


def _scenario(name: str, room: str, invariants: list[int], tests: list[str]) -> Scenario:
    return Scenario(name, room, tuple(invariants), tuple(f"tests/{test}" for test in tests))


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
BOOK = tuple(_scenario(**row) for row in _TABLE["scenario"])
