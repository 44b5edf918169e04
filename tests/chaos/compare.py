"""The same faults under our workers, the reference's and careless ones, side by side.

`python -m tests.chaos.compare` prints a Markdown table of what each lost, ran twice, ran twice at
once, left undone and buried wrongly, and which invariants that breaks. Jobs, handlers, leases and
moments are the same for all; our Queue adds them. Where the reference has a setting that helps, it
takes part a second time, with that. The exit code is 1 if ours breaks an invariant, or if a
careless worker passes what it should fail.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.chaos.contest import CONTESTS, Contest
from tests.chaos.kit.fleet import Fleet
from tests.chaos.kit.history import Verdict
from tests.chaos.kit.ledger import Ledger
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.trial import OURS, Subject, Trial
from tests.servers import DIALECTS, Servers, binary_for

BY_NAME = {contest.name: contest for contest in CONTESTS}
SERVER = DIALECTS[0]  # the reference runs on no other


@dataclass(frozen=True)
class Figures:
    """What came of one subject under one scenario."""

    scenario: str
    subject: str
    jobs: int = 0
    lost: int = 0
    twice: int = 0
    """Jobs that ran twice without failing,"""
    uncharged: int = 0
    """... those of them that no death of a process explains."""
    overlapping: int = 0
    stuck: int = 0
    buried: int = 0
    """Dead, though they should not be."""
    problems: tuple[str, ...] = ()

    @property
    def broken(self) -> list[str]:
        """The invariants that do not hold."""
        return sorted({problem.partition(" ")[0] for problem in self.problems})

    @property
    def line(self) -> str:
        shown = (self.jobs, self.lost, self.twice, self.uncharged, self.overlapping, self.stuck)
        cells = " | ".join(map(str, (*shown, self.buried, ", ".join(self.broken) or "holds")))
        return f"| `{self.scenario}` | {self.subject} | {cells} |"


HEAD = (
    "| scenario | workers | jobs | lost | run twice | ... without a death | overlapping | stuck"
    " | buried wrongly | breaks |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|---|",
)


def judge(contest: Contest, subject: str, verdict: Verdict) -> Figures:
    seen = verdict.scan
    wrongly = {*seen.dead} - contest.doomed | verdict.dead_and_completed
    left = {*seen.unread, *seen.pending, *seen.delayed, *seen.stranded}
    return Figures(
        contest.name,
        subject,
        len(verdict.accepted),
        len(verdict.lost),
        len(verdict.duplicated),
        len(verdict.uncharged),
        len(verdict.overlaps),
        len(left & verdict.accepted),
        len(wrongly),
        tuple(problems_of(contest, verdict)),
    )


def problems_of(contest: Contest, verdict: Verdict) -> Iterator[str]:
    """What breaks the invariants that the scenario names, each with its number."""
    seen = verdict.scan
    readable = replace(seen, unreadable=max(0, seen.unreadable - contest.planted))
    found = replace(verdict, scan=readable).problems(
        duplicates_allowed=len(verdict.accepted),
        charged_only=True,
        max_attempts=contest.max_attempts,
    )
    if innocent := {*seen.dead} - contest.doomed:
        found.append(f"I5 buried wrongly: {len(innocent)}")
    if 8 in contest.invariants and (verdict.lost or verdict.uncharged):
        found.append(f"I8 windows lost: {len(verdict.lost)}, doubled: {len(verdict.uncharged)}")
    named = tuple(f"I{number} " for number in contest.invariants)
    yield from (problem for problem in found if problem.startswith(named))


@contextmanager
def stage_of(name: str, folder: Path) -> Iterator[Stage]:
    ledger = Ledger(folder / "ledger")
    with Servers().private(SERVER) as server, Fleet(ledger) as fleet:
        yield Stage(server, name, ledger, fleet)
    ledger.close()


def one(contest: Contest, subject: Subject) -> Figures:
    with tempfile.TemporaryDirectory() as folder, stage_of(contest.name, Path(folder)) as stage:
        trial = Trial(stage, subject, contest.max_attempts)
        try:
            contest.play(trial)
            trial.rests()
        except AssertionError as error:
            return Figures(contest.name, subject.name, problems=(f"unfinished: {error}",))
        return judge(contest, subject.name, stage.verdict())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=BY_NAME, default=list(BY_NAME))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds = [
        (BY_NAME[name], subject) for name in options.only for subject in BY_NAME[name].subjects
    ]
    found, began = [], time.monotonic()
    for number, (contest, subject) in enumerate(rounds, 1):
        found.append(one(contest, subject))
        passed = time.monotonic() - began
        told = f"{number:3} of {len(rounds)} {passed:5.0f} s  {found[-1].line}"
        shown = [problem.partition(" (")[0] for problem in found[-1].problems]
        print(told, *shown, sep=f"\n{'':21}", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps([vars(figures) for figures in found], indent=1))
    else:
        print("", *HEAD, *(figures.line for figures in found), sep="\n")
    wrong = problems(found)
    passed = time.monotonic() - began
    told = wrong or ["ours broke nothing, and the careless were caught"]
    print("", *told, f"{passed:.0f} s on {binary_for(SERVER)}", sep="\n", file=sys.stderr)
    return bool(wrong)


def problems(found: list[Figures]) -> list[str]:
    """Ours must hold what it promises, and who is careless must be caught where it shows."""
    wrong = [row.line for row in found if row.subject == OURS.name and row.problems]
    expected = {(contest.name, one.name) for contest in CONTESTS for one in contest.catches}
    passed = [(row.scenario, row.subject) for row in found if not row.problems]
    wrong += [f"{name}: {who} was not caught" for name, who in passed if (name, who) in expected]
    return wrong


if __name__ == "__main__":
    sys.exit(main())
