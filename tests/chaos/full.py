"""Every scenario of the book on each server, with seeds: `python -m tests.chaos.full --seeds 3`.

A line tells of each test as it ends; a table of scenarios follows with what they come to in all,
and the exit code is 1 if any of their tests failed. Jobs are counted where a verdict on them was
passed; tests of single scripts and writes have none, and stand with their runs alone. A test that
shows two scenarios is in both rows, and once in the sum. `--report` keeps all that as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.book import BOOK, Scenario
from tests.chaos.kit.fleet import ROOT, environment

FIGURES = ("accepted", "lost", "duplicates", "overlaps")
COLUMNS = "{:<32} {:<24} {:>5} {:>9} {:>5} {:>10} {:>8}  {}"


@dataclass
class Row:
    """What came of one scenario, over all servers and seeds."""

    scenario: Scenario
    runs: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    counted: dict[tuple[int, str], Counter[str]] = field(default_factory=dict)
    """The figures by seed and test, of which those above are the sum."""

    @property
    def verdict(self) -> str:
        if self.failed:
            return f"{len(self.failed)} FAILED"
        return "good" if self.runs else "did not run"

    def to_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario.name,
            "invariants": list(self.scenario.invariants),
            "runs": self.runs,
            **{name: self.figures[name] for name in FIGURES},
            "failed": self.failed,
            "skipped": self.skipped,
            "verdict": self.verdict,
        }


def run_seed(seed: int, scenarios: list[Scenario], folder: Path, tell: bool) -> None:
    """All tests once; what they report and judge is appended to files in the folder. Those of a
    file stay together, and in the book's order: the last of them may end what they share."""
    named = dict.fromkeys(test for scenario in scenarios for test in scenario.tests)
    tests = sorted(named, key=lambda test: test.partition("::")[0])
    told = {
        **environment(ours=True),
        "CHAOS_SEED": str(seed),
        "CHAOS_VERDICTS": str(folder / f"verdicts-{seed}"),
        "CHAOS_REPORTS": str(folder / f"reports-{seed}"),
    }
    # Those that `make test` leaves out for want of time belong to it, too.
    how = ["-q", "--tier", "all", "-p", "tests.chaos.report", "--tb=short"]
    command = [sys.executable, "-m", "pytest", *how]
    with (folder / f"output-{seed}").open("wb") as output:
        child = subprocess.Popen([*command, *tests], cwd=ROOT, env=told, stdout=output)
        try:
            _follow(child, seed, folder / f"reports-{seed}", tell)
        finally:
            child.kill()
            child.wait()


def _follow(child: subprocess.Popen[bytes], seed: int, reports: Path, tell: bool) -> None:
    shown, began = 0, time.monotonic()
    while True:
        over = child.poll() is not None
        for one in _lines(reports)[shown:]:
            shown += 1
            if tell:
                passed = time.monotonic() - began
                print(f"seed {seed} {passed:5.0f} s {shown:4}  {one['outcome']}  {one['test']}")
                sys.stdout.flush()
        if over:
            return
        time.sleep(0.2)


def account(scenarios: list[Scenario], folder: Path, seeds: Iterable[int]) -> list[Row]:
    rows = [Row(scenario) for scenario in scenarios]
    for seed in seeds:
        reports, verdicts = _lines(folder / f"reports-{seed}"), _lines(folder / f"verdicts-{seed}")
        last = {one["test"]: one for one in verdicts}  # a test may look before its end, too
        for row in rows:
            for report in reports:
                if report["test"].partition("[")[0] in row.scenario.tests:
                    _count(row, report, seed, last.get(report["test"], {}))
    return rows


def _count(row: Row, report: dict[str, Any], seed: int, figures: dict[str, Any]) -> None:
    if report["outcome"] == "skipped":
        row.skipped.append(report["test"])
        return
    row.runs += 1
    told = Counter({name: figures[name] for name in FIGURES if name in figures})
    row.figures.update(told)
    row.counted[seed, report["test"]] = told
    if report["outcome"] == "failed":
        row.failed.append(f"seed {seed}: {report['test']}")


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if "\n" in line]


def total(rows: Iterable[Row]) -> Counter[str]:
    """All of them together, every run of a test once."""
    once = {run: figures for row in rows for run, figures in row.counted.items()}
    return sum(once.values(), Counter({"runs": len(once)}))


def table(rows: list[Row]) -> list[str]:
    head = ("scenario", "invariants", "runs", "accepted", "lost", "duplicates", "overlaps", "")
    told = [COLUMNS.format(*head)]
    for row in rows:
        invariants = " ".join(f"I{number}" for number in row.scenario.invariants)
        figures = [row.figures[name] for name in FIGURES]
        told.append(COLUMNS.format(row.scenario.name, invariants, row.runs, *figures, row.verdict))
    figures = [total(rows)[name] for name in ("runs", *FIGURES)]
    told.append(COLUMNS.format(f"{len(rows)} scenarios", "", *figures, ""))
    return told


def to_json(rows: list[Row], seeds: Sequence[int], seconds: float) -> str:
    figures = total(rows)
    told = {
        "seeds": list(seeds),
        "seconds": round(seconds),
        "total": {name: figures[name] for name in ("runs", *FIGURES)},
        "failed": sorted({one for row in rows for one in row.failed}),
        "scenarios": [row.to_dict() for row in rows],
    }
    return json.dumps(told, indent=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--only", nargs="*", default=[], help="scenarios, by name")
    parser.add_argument("--json", action="store_true", help="the report as JSON, and no progress")
    parser.add_argument("--report", type=Path, help="a file for the report as JSON")
    options = parser.parse_args()
    scenarios = [one for one in BOOK if not options.only or one.name in options.only]
    if unknown := set(options.only) - {one.name for one in BOOK}:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    seeds = range(options.first, options.first + options.seeds)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    began = time.monotonic()
    for seed in seeds:
        run_seed(seed, scenarios, folder, not options.json)
    rows = account(scenarios, folder, seeds)
    failed = [one for row in rows for one in (*row.failed, *([] if row.runs else [row.verdict]))]
    report = to_json(rows, seeds, time.monotonic() - began)
    if options.report is not None:
        options.report.write_text(f"{report}\n")
    if options.json:
        print(report)
    else:
        print("", *table(rows), "", *(failed or ["every run was a good one"]), sep="\n")
    print(f"what the tests said is in {folder}{os.sep}output-*", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
