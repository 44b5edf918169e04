"""Findings as people read them: by what they are about, the worst first. Pure.

A terminal gets a few lines per finding, so that the command that mends it can be copied whole; a
pipe gets one line each, in columns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from chasquimq.cli.check.finding import NOTE, OK, PROBLEM, WARNING, Finding, Severity
from chasquimq.cli.sheet import Cell, Sheet, Tone, cell, sheet
from chasquimq.text import shown

TONES: dict[Severity, Tone] = {OK: "good", NOTE: "", WARNING: "warn", PROBLEM: "bad"}
SIDE = "this side"
HERE = {"python": SIDE, "host": SIDE}
WIDTH = max(len(one.word) for one in Severity)


def grouped(findings: Iterable[Finding]) -> list[tuple[str, list[Finding]]]:
    """By server, queue and this side; in each the worst first, then as they were found."""
    groups: dict[str, list[Finding]] = {}
    for one in findings:
        groups.setdefault(title_of(one), []).append(one)
    return [(title, sorted(some, key=lambda one: -one.severity)) for title, some in groups.items()]


def title_of(one: Finding) -> str:
    if one.queue is not None:
        return f"queue {shown(one.queue)}"
    if "node" in one.facts:  # of a cluster
        return f"{one.part} {shown(str(one.facts['node']))}"
    return HERE.get(one.part, "queues" if one.part == "queue" else one.part)


def lines(findings: Iterable[Finding], width: int = 100) -> Iterator[tuple[Cell, ...]]:
    """For a terminal: a heading per group; then severity, what and code, and the command, which
    is never broken."""
    for place, (title, some) in enumerate(grouped(findings)):
        if place:
            yield ()
        yield (Cell(title, "strong"),)
        for one in some:
            yield from _finding(one, max(width - WIDTH - 4, 30))


def _finding(one: Finding, room: int) -> Iterator[tuple[Cell, ...]]:
    first = Cell(f"  {one.severity.word:<{WIDTH}}", TONES[one.severity])
    other = Cell(" " * (WIDTH + 2))
    code = Cell(f"[{one.code}]", "dim")
    text = textwrap.wrap(shown(one.text), room) or [""]
    for place, line in enumerate(text):
        last = place == len(text) - 1 and len(line) + len(code.text) < room
        yield (other if place else first), Cell(line), *([code] if last else [])
    if not last:
        yield other, code
    if one.fix is not None and not one.repaired:
        yield other, Cell("$", "dim"), cell(one.fix, "strong")


def table(findings: Iterable[Finding]) -> Sheet:
    """For a pipe: a line per finding."""
    return sheet(
        ("severity", "about", "code", "what", "fix"),
        (
            (one.severity.word, title, one.code, one.text, None if one.repaired else one.fix)
            for title, some in grouped(findings)
            for one in some
        ),
        empty="(nothing was looked at)",
    )


def summary(findings: Sequence[Finding]) -> tuple[Cell, ...]:
    """The last line: how many of each kind, and whether `--fix` would help."""
    many = {one: sum(found.severity is one for found in findings) for one in Severity}
    parts = [
        Cell(_count(many[one], one.word), TONES[one])
        for one in (PROBLEM, WARNING, NOTE)
        if many[one]
    ]
    if many[PROBLEM] == many[WARNING] == 0:
        parts.insert(0, Cell("all is well:" if parts else "all is well", "good"))
    told = [_comma(part) for part in parts[:-1]] + parts[-1:]
    repaired = sum(one.repaired for one in findings)
    left = sum(one.remedy is not None and not one.repaired for one in findings)
    if repaired:
        told[-1] = Cell(f"{told[-1].text};", told[-1].tone)
        told.append(Cell(f"{repaired} repaired", "good"))
    if left:
        told[-1] = Cell(f"{told[-1].text};", told[-1].tone)
        told.append(Cell(f"--fix repairs {left} of them"))
    return tuple(told)


def _comma(one: Cell) -> Cell:
    return one if one.text.endswith(":") else Cell(f"{one.text},", one.tone)


def _count(many: int, word: str) -> str:
    return f"{many} {word}{'' if many == 1 else 's'}"


def plans(findings: Iterable[Finding]) -> list[str]:
    """What `--fix` would do, a line each."""
    return [
        f"queue {shown(one.queue or '')}: {WORDS[one.remedy]}"
        for one in findings
        if one.remedy is not None and not one.repaired
    ]


WORDS = {
    "ghosts": "remove pending entries without a body, of consumers that are long silent",
    "consumers": "remove the names of consumers that hold nothing and are long silent",
    "specs": "remove what is left of repeatable jobs without a recipe",
    "indexes": "remove side-indexes that lead to no delayed job",
    "promoter-lock": "remove the promoter's lock, which never expires",
    "scheduler-lock": "remove the scheduler's lock, which never expires",
}
