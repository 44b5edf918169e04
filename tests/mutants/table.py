"""The table of defects, as values."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str  # below src/chasquimq
    old: str  # there exactly once
    new: str
    tests: tuple[str, ...]
    model: bool = False  # random programs notice it, too


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
MUTANTS = tuple(Mutant(**{**row, "tests": tuple(row["tests"])}) for row in _TABLE["mutant"])
