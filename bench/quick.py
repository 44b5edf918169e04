"""Our figures beside the reference's, in under three minutes: `make bench-quick`.

Each round runs every scenario once with our package and once with ChasquiMQ 1.3.0, one after
the other, on a server of our own. The table shows the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import report
from arena import Arena, Side, wait_for_quiet
from scenarios import PAYLOAD, SCENARIOS, Scenario

from chasquimq import wire

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.reference_env import NotInstallableError, interpreter  # noqa: E402 - found from the root only

REPORTS = Path(__file__).parent / "reports"
OTHERS = "cores busy with other things meanwhile"
TUNED = {"read_count": 256}  # what 1.3.0 is fastest with


def main() -> None:
    told = arguments()
    began = time.monotonic()
    wanted = [one for one in SCENARIOS if told.only in one.name or told.only == one.kind]
    if not wanted:
        sys.exit(f"no scenario has {told.only!r} in its name")
    if told.uvloop or told.tuned:  # the targets are for both as they are installed
        wanted = [replace(one, target=None) for one in wanted]
    os.chdir(ROOT)  # where `make redis` puts its server
    try:
        sides = our_side(told), reference_side(told)
    except NotInstallableError as error:
        sys.exit(str(error))
    with Arena("redis", "valkey") as arena, Progress(told.rounds) as progress:
        rounds = Rounds(arena, sides, progress, told)
        outcomes = rounds.run(wanted)
        facts = machine() | {"servers": arena.versions()} | rounds.packages
    facts |= {
        "payload": f"{len(PAYLOAD)} keys, {len(wire.encode(PAYLOAD))} bytes",
        "rounds": told.rounds,
        "took": f"{time.monotonic() - began:.0f} s",
        OTHERS: report.others(outcomes),
        "command": f"python bench/quick.py {' '.join(sys.argv[1:])}".strip(),
    }
    print("\n".join(report.table(outcomes)))
    print("\nCPU is the measured process's, Redis CPU the server's, in s per 100,000 jobs.")
    for label in ("ours", "reference", OTHERS):
        print(f"{label}: {report.told(facts[label])}")
    if not told.dry:
        name = f"{datetime.now(UTC):%Y-%m-%d}-{told.name}"
        page = report.write(REPORTS, name, outcomes, facts)
        print(f"written to {page.relative_to(ROOT)} and .json")


class Rounds:
    """Every scenario once with each side, as often as was asked for."""

    def __init__(
        self, arena: Arena, sides: tuple[Side, Side], progress: Progress, told: argparse.Namespace
    ) -> None:
        self.packages: dict[str, dict[str, str]] = {}  # of each side, and its event loop
        self._arena = arena
        self._sides = sides
        self._progress = progress
        self._rounds: int = told.rounds
        self._scale: float = told.scale
        self._patience: float = told.patience

    def run(self, wanted: list[Scenario]) -> list[report.Outcome]:
        outcomes = [report.Outcome(one) for one in wanted]
        names = {one.name for one in wanted} | {one.against for one in wanted}
        scenarios = [one for one in SCENARIOS if one.name in names]
        for number in range(self._rounds):
            results = {
                (one.name, side.ours): self._measure(number, one, side)
                for one in scenarios
                for side in self._turns(number)
                if side.ours or one.reference
            }
            for outcome in outcomes:
                name, against = outcome.scenario.name, outcome.scenario.against
                outcome.ours.append(results[name, True])
                outcome.other.append(results[(against, True) if against else (name, False)])
        return outcomes

    def _turns(self, number: int) -> tuple[Side, ...]:
        """Who goes first changes by the round."""
        return self._sides if number % 2 == 0 else self._sides[::-1]

    def _measure(self, number: int, scenario: Scenario, side: Side) -> dict[str, Any]:
        self._progress.show(number, scenario.name, side.name)
        self._patience = wait_for_quiet(self._patience)
        jobs = scenario.ours if side.ours else scenario.reference
        result: dict[str, Any] = self._arena.run(side, scenario, max(int(jobs * self._scale), 1000))
        self.packages[side.name] = result["packages"] | {"event loop": result["loop"]}
        return result


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="scenarios with this in their name")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many jobs")
    parser.add_argument(
        "--patience", type=float, default=30.0, help="s to wait in all for others to be quiet"
    )
    parser.add_argument("--uvloop", action="store_true", help="both sides on uvloop")
    parser.add_argument(
        "--tuned", action="store_true", help="both on uvloop, the reference reading by 256"
    )
    parser.add_argument("--name", default="quick", help="of the report, behind the date")
    parser.add_argument("--dry", action="store_true", help="write no report")
    return parser.parse_args()


def our_side(told: argparse.Namespace) -> Side:
    return Side("ours", uvloop=told.uvloop or told.tuned)


def reference_side(told: argparse.Namespace) -> Side:
    options = TUNED if told.tuned else {}
    if told.uvloop or told.tuned:
        python = interpreter("reference-uvloop", ("uvloop==0.23.0",))
        return Side("reference", python, uvloop=True, options=options, ours=False)
    return Side("reference", interpreter(), options=options, ours=False)


class Progress:
    """One line that says what runs now; where it cannot be rewritten, one line per round."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._shown = -1
        self._rewrites = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rewrites:
            print("\r\033[K", end="", file=sys.stderr)

    def show(self, round_number: int, scenario: str, side: str) -> None:
        if self._rewrites:
            line = f"\r\033[Kround {round_number + 1} of {self._rounds}: {scenario}, {side}"
            print(line, end="", file=sys.stderr, flush=True)
        elif round_number != self._shown:
            print(f"round {round_number + 1} of {self._rounds} ...", file=sys.stderr, flush=True)
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
