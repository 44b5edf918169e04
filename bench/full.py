"""Everything that is promised about speed, measured: `make bench`, half an hour.

Each round runs every case once with each side that takes part, one after the other, on servers of
our own; who goes first changes by the round. Sides are our package, the reference as it is
installed and as it is fastest, a client that does next to nothing, and other job queues.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import entrants
import full_report
import old
from arena import Arena, wait_for_quiet
from contest import CASES, GROWTH, IDLE, OURS, TUNED, Case
from entrants import Entrant
from found import Found, Promise
from full_report import OTHERS
from quick import machine
from scenarios import PAYLOAD

from chasquimq import wire

ROOT = Path(__file__).parents[1]
REPORTS = Path(__file__).parent / "reports"
FEW_ROUNDS = 3  # of other job queues, and of what grows
QUICK_SCALE = 0.01
QUICK_STEP = 1_000  # nothing grows beyond it in a quick run
QUICK_MS = 300
USUAL_S = 2.0  # of a run, until it is known how long it takes


class Turn(NamedTuple):
    number: int  # of the round
    case: Case
    entrant: Entrant


def main(argv: Sequence[str] | None = None) -> None:
    told = arguments(argv)
    began = time.monotonic()
    os.chdir(ROOT)  # where `make redis` puts its server
    try:
        asked = [one for one in entrants.known() if not (told.quick and one.name == TUNED)]
        asked += entrants.peers("none" if told.quick else told.peers)
    except LookupError as error:
        sys.exit(str(error))
    cases = wanted(told)
    if told.list:
        print("\n".join(listed(cases, asked)))
        return
    if not cases:
        sys.exit(f"no case has {told.only!r} in its name")
    asked = entrants.installed(asked)
    found = Found(cases, told.rounds)
    with Arena("redis", "valkey") as arena:
        try:
            run(arena, plan(cases, asked, told.rounds), found, told.patience)
        except KeyboardInterrupt:
            told.dry = True  # what there is is shown; a report has everything
        facts = machine() | {"servers": arena.versions()}
    facts |= {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        **old.state(),
        "payload": f"{len(PAYLOAD)} keys, {len(wire.encode(PAYLOAD))} bytes, unless it says so",
        "rounds": f"{told.rounds}; of other job queues and of what grows {few(told.rounds)}",
        "took": f"{(time.monotonic() - began) / 60:.0f} min",
        OTHERS: found.others(),
        "command": " ".join(["python bench/full.py", *(sys.argv[1:] if argv is None else argv)]),
    }
    written = ""
    if not told.dry:
        page = full_report.write(told.reports, f"{facts['date']}-{told.name}", found, facts)
        written = f"written to {page} and .json"
    print("\n".join([*full_report.tables(found), written]))
    if any(OURS in sides for sides in found.problems.values()):
        sys.exit("ours failed in a case: see above")


def wanted(told: argparse.Namespace) -> list[Case]:
    every = (*CASES, *GROWTH, *IDLE)
    names = {name for case in every for name in (case.key, case.group)}

    def is_meant(case: Case, word: str) -> bool:
        return word in (case.key, case.group) if word in names and word else word in case.title

    cases = [case for case in every if any(is_meant(case, word) for word in told.only.split(","))]
    if not told.quick:
        return [case.scaled(told.scale) for case in cases]
    return [
        replace(case.scaled(QUICK_SCALE), orders={**case.orders, "spread_ms": QUICK_MS})
        for case in cases
        if case.step <= QUICK_STEP
    ]


def few(rounds: int) -> int:
    return min(rounds, FEW_ROUNDS)


def plan(cases: Sequence[Case], asked: Sequence[Entrant], rounds: int) -> list[Turn]:
    """All runs in their order."""
    seldom = {number * (rounds - 1) // max(few(rounds) - 1, 1) for number in range(few(rounds))}
    turns = []
    for number in range(rounds):
        for case in cases:
            part = [
                one
                for one in asked
                if one.jobs(case) and (number in seldom or not (one.peer or case.is_seldom))
            ]
            first = number % len(part) if part else 0
            turns += [Turn(number, case, one) for one in part[first:] + part[:first]]
    return turns


def run(arena: Arena, turns: Sequence[Turn], found: Found, patience_s: float) -> None:
    progress = Progress(turns)
    for turn in turns:
        if found.is_out(turn.case, turn.entrant.name):
            continue
        progress.show(turn)
        patience_s = wait_for_quiet(patience_s)
        began = time.monotonic()
        result = entrants.outcome(arena, turn.entrant, turn.case)
        progress.took(turn, time.monotonic() - began)
        found.add(turn.number, turn.case, turn.entrant.name, result)
        if (peer := turn.entrant.peer) is not None:
            found.peers[peer.name] = Promise(peer.guarantee, peer.how)
    progress.end()


class Progress:
    """One line that says what runs now, and how long it all takes; if it cannot be rewritten, one
    line for each case."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns
        self._seconds: dict[tuple[str, str], float] = {}
        self._rewrites = sys.stderr.isatty()
        self._shown = ""

    def show(self, turn: Turn) -> None:
        left = self._turns[self._turns.index(turn) :]
        left_s = sum(self._seconds.get((one.case.key, one.entrant.name), USUAL_S) for one in left)
        what = f"round {turn.number + 1} of {self._turns[-1].number + 1}: {turn.case.title}"
        rest = f"about {left_s / 60:.0f} min left" if left_s > 90 else f"about {left_s:.0f} s left"
        if self._rewrites:
            line = f"\r\033[K{what}, {turn.entrant.name} ({rest})"
            print(line, end="", file=sys.stderr, flush=True)
        elif what != self._shown:
            print(f"{what} ({rest})", file=sys.stderr, flush=True)
        self._shown = what

    def took(self, turn: Turn, seconds: float) -> None:
        self._seconds[turn.case.key, turn.entrant.name] = seconds

    def end(self) -> None:
        if self._rewrites:
            print("\r\033[K", end="", file=sys.stderr)


def listed(cases: Sequence[Case], asked: Sequence[Entrant]) -> list[str]:
    lines = []
    for case in cases:
        names = [one.name for one in asked if one.jobs(case)]
        lines.append(f"{case.key:18} {case.title:44} {', '.join(names)}")
    return lines


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", default="", help="cases by keys, groups or words of titles, with commas between"
    )
    parser.add_argument("--peers", default="all", help="other job queues: names, all or none")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many jobs")
    parser.add_argument(
        "--patience", type=float, default=120.0, help="s to wait in all for others to be quiet"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few jobs, one round, nothing that is to be installed"
    )
    parser.add_argument("--list", action="store_true", help="what would be measured, and end")
    parser.add_argument("--name", default="full", help="of the report, behind the date")
    parser.add_argument("--reports", type=Path, default=REPORTS, help="where the report goes")
    parser.add_argument("--dry", action="store_true", help="write no report")
    told = parser.parse_args(argv)
    if told.quick:
        told.rounds, told.patience = 1, 0.0
        told.dry = told.dry or told.reports == REPORTS  # its figures mean nothing
    return told


if __name__ == "__main__":
    main()
