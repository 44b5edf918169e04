"""What a scenario of the book is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    name: str
    room: str
    invariants: tuple[int, ...]
    tests: tuple[str, ...]


def of(room: str, *rows: tuple[str, tuple[int, ...], tuple[str, ...]]) -> list[Scenario]:
    return [Scenario(name, room, invariants, tests) for name, invariants, tests in rows]
