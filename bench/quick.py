"""Our figures beside the reference's and our own last ones, in three minutes: `make bench-quick`.

Each round runs every scenario once with our package, once with the commit of the last report and
once with ChasquiMQ 1.3.0, one after the other, on a server of our own. The tables show the median
of the rounds' ratios; what seems to have moved since that commit is measured again.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import layout
import old
import report
import verdict
from arena import Arena, FailedRunError, Side, wait_for_quiet
from scenarios import PAYLOAD, SCENARIOS, Scenario
from verdict import Change

from chasquimq import wire

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.reference_env import NotInstallableError, interpreter  # noqa: E402 - found from the root only

REPORTS = Path(__file__).parent / "reports"
OTHERS = "cores busy with other things meanwhile"
TUNED = {"read_count": 256}  # what 1.3.0 is fastest with


@dataclass(frozen=True)
class Sides:
    ours: Side
    reference: Side
    old: Side | None = None
    commit: str = ""  # of the old side


def main(words: list[str] | None = None) -> None:
    told = arguments(words)
    began = time.monotonic()
    wanted = [one for one in SCENARIOS if told.only in one.name or told.only == one.kind]
    if not wanted:
        sys.exit(f"no scenario has {told.only!r} in its name")
    if told.uvloop or told.tuned:  # the targets are for both as they are installed
        wanted = [replace(one, target=None) for one in wanted]
    os.chdir(ROOT)  # where `make redis` puts its server
    try:
        sides = every_side(told)
    except (NotInstallableError, old.NoOldError) as error:
        sys.exit(str(error))
    state = old.state()  # before anybody changes it
    with Arena("redis", "valkey") as arena, Progress() as progress:
        rounds = Rounds(arena, sides, progress, told)
        outcomes = rounds.run(wanted)
        rounds.run_again()
        facts = machine() | state | {"servers": arena.versions()} | rounds.packages
    facts |= {
        "payload": f"{len(PAYLOAD)} keys, {len(wire.encode(PAYLOAD))} bytes",
        "rounds": told.rounds,
        "took": f"{time.monotonic() - began:.0f} s",
        OTHERS: report.others(outcomes),
        "command": f"python bench/quick.py {' '.join(told.words)}".strip(),
    }
    changes = list(rounds.changes.values())
    section = since(sides.commit, changes) if changes else []
    print("\n".join(report.table(outcomes)))
    print("\nCPU is the measured process's, Redis CPU the server's, in s per 100,000 jobs.")
    for label in ("ours", "reference", OTHERS):
        print(f"{label}: {report.told(facts[label])}")
    print("", *section, sep="\n")
    if not told.dry:
        name = f"{datetime.now(UTC):%Y-%m-%d}-{told.name}"
        also = {"old": sides.commit, "changes": [change.to_dict() for change in changes]}
        page = report.write(told.reports, name, outcomes, facts, section=section, also=also)
        print(f"written to {os.path.relpath(page)} and .json")
    if told.fail and any(change.is_worse() for change in changes):
        sys.exit(1)


class Rounds:
    """Every scenario once with each side, as often as was asked for."""

    def __init__(
        self, arena: Arena, sides: Sides, progress: Progress, told: argparse.Namespace
    ) -> None:
        self.changes: dict[str, Change] = {}  # since the old commit, by scenario
        self.packages: dict[str, dict[str, str]] = {}  # of each side, and its event loop
        self._arena = arena
        self._sides = sides
        self._progress = progress
        self._rounds: int = told.rounds
        self._scale: float = told.scale
        self._patience: float = told.patience

    def run(self, wanted: list[Scenario]) -> list[report.Outcome]:
        outcomes = [report.Outcome(one) for one in wanted]
        if self._sides.old:
            self.changes = {one.name: Change(one.name) for one in wanted}
        names = {one.name for one in wanted} | {one.against for one in wanted}
        scenarios = [one for one in SCENARIOS if one.name in names]
        self._progress.start(self._rounds, "round")
        for number in range(self._rounds):
            results = {
                (one.name, side.name): self._measure(number, one, side)
                for one in scenarios
                for side in self._turns(number, one)
            }
            for outcome in outcomes:
                name, against = outcome.scenario.name, outcome.scenario.against
                other = (against, "ours") if against else (name, "reference")
                outcome.ours.append(results[name, "ours"])
                outcome.other.append(results[other])
            for name, change in self.changes.items():
                if not change.cannot:
                    change.add(results[name, "ours"], results[name, "old"])
        return outcomes

    def run_again(self) -> None:
        """What seems to have moved, in more rounds, with our new and our old code only."""
        suspects = [
            one
            for one in SCENARIOS
            if one.name in self.changes and self.changes[one.name].is_suspected()
        ]
        rounds = self._rounds * verdict.AGAIN if suspects else 0
        self._progress.start(rounds, "what seems to have moved, round")
        for number in range(rounds):
            for one in suspects:
                result = {
                    side.name: self._measure(number, one, side) for side in self._pair(number, one)
                }
                self.changes[one.name].add_again(result["ours"], result["old"])

    def _turns(self, number: int, scenario: Scenario) -> list[Side]:
        """New and old are neighbours; the reference comes before or after them, by the round."""
        pair = self._pair(number, scenario)
        reference = [self._sides.reference] if scenario.reference else []
        return reference + pair if number % 2 else pair + reference

    def _pair(self, number: int, scenario: Scenario) -> list[Side]:
        """New and old, in either order as often before the reference as after it."""
        change = self.changes.get(scenario.name)
        if self._sides.old is None or change is None or change.cannot:
            return [self._sides.ours]
        pair = [self._sides.ours, self._sides.old]
        return pair[::-1] if number % 4 in (1, 2) else pair

    def _measure(self, number: int, scenario: Scenario, side: Side) -> dict[str, Any]:
        self._progress.show(number, scenario.name, side.name)
        self._patience = wait_for_quiet(self._patience)
        jobs = max(int((scenario.ours if side.ours else scenario.reference) * self._scale), 1000)
        try:
            result: dict[str, Any] = self._arena.run(side, scenario, jobs)
        except FailedRunError as error:
            if side is self._sides.old:  # it may lack what is measured today
                return {"cannot": str(error).strip().splitlines()[-1]}
            raise
        self.packages[side.name] = result["packages"] | {"event loop": result["loop"]}
        return result


def since(commit: str, changes: list[Change]) -> list[str]:
    """The part of a report that tells what our own changes did."""
    failed = [f"- the old one fails: {one.scenario}: {one.cannot}" for one in changes if one.cannot]
    return [
        f"New / old: {old.title(commit)}.",
        "What seemed to have moved ran again, in more rounds: those are shown, and they decide.",
        "",
        *layout.table(verdict.rows(changes)),
        "",
        *(f"- {line}" for line in verdict.moved(changes)),
        *failed,
        "",
    ]


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="scenarios with this in their name")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many jobs")
    parser.add_argument(
        "--patience", type=float, default=30.0, help="s to wait in all for others to be quiet"
    )
    parser.add_argument("--uvloop", action="store_true", help="all sides on uvloop")
    parser.add_argument(
        "--tuned", action="store_true", help="all on uvloop, the reference reading by 256"
    )
    beside = parser.add_mutually_exclusive_group()
    beside.add_argument(
        "--old", metavar="COMMIT", help="compare with this one, not with the last report's"
    )
    beside.add_argument("--no-old", action="store_true", help="compare with the reference only")
    parser.add_argument("--fail", action="store_true", help="exit with 1 if something is slower")
    parser.add_argument("--name", default="quick", help="of the report, behind the date")
    parser.add_argument("--reports", type=Path, default=REPORTS, help="the folder it goes into")
    parser.add_argument("--dry", action="store_true", help="write no report")
    told = parser.parse_args(words)
    told.words = sys.argv[1:] if words is None else words
    return told


def every_side(told: argparse.Namespace) -> Sides:
    uvloop: bool = told.uvloop or told.tuned
    # This tree and no other, wherever the package that is installed here comes from.
    ours, reference = Side("ours", source=ROOT / "src", uvloop=uvloop), reference_side(told)
    commit = old_commit(told)
    if not commit:
        return Sides(ours, reference)
    return Sides(ours, reference, Side("old", old.interpreter(commit), uvloop=uvloop), commit)


def old_commit(told: argparse.Namespace) -> str:
    if told.no_old:
        return ""
    if told.old:
        return old.commit_of(told.old)
    try:
        return old.last_measured()
    except old.NoOldError as error:
        print(f"not compared with our own last figures: {error}", file=sys.stderr)
        return ""


def reference_side(told: argparse.Namespace) -> Side:
    options = TUNED if told.tuned else {}
    if told.uvloop or told.tuned:
        python = interpreter("reference-uvloop", ("uvloop==0.23.0",))
        return Side("reference", python, uvloop=True, options=options, ours=False)
    return Side("reference", interpreter(), options=options, ours=False)


class Progress:
    """One line that says what runs now; where it cannot be rewritten, one line per round."""

    def __init__(self, rounds: int = 0, what: str = "round") -> None:
        self._rewrites = sys.stderr.isatty()
        self.start(rounds, what)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rewrites:
            print("\r\033[K", end="", file=sys.stderr)

    def start(self, rounds: int, what: str) -> None:
        self._rounds, self._what, self._shown = rounds, what, -1

    def show(self, round_number: int, scenario: str, side: str) -> None:
        now = f"{self._what} {round_number + 1} of {self._rounds}"
        if self._rewrites:
            print(f"\r\033[K{now}: {scenario}, {side}", end="", file=sys.stderr, flush=True)
        elif round_number != self._shown:
            print(f"{now} ...", file=sys.stderr, flush=True)
        self._shown = round_number


def machine() -> dict[str, Any]:
    return {
        "machine": f"{os.cpu_count()} cores, {_processor()}, {platform.system()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


if __name__ == "__main__":
    main()
