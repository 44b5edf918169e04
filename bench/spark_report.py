"""What was measured of Spark, as tables to read and as JSON to compare."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from layout import table
from report import told
from spark_cases import IN_TASKS, PLAIN_READ, PLAIN_WRITE, READING, WRITING, Case, Measured
from spark_growth import ONE, Cost

SHORT = {PLAIN_READ: "× plain", PLAIN_WRITE: "× plain", IN_TASKS: "× XADD in tasks"}


@dataclass
class Found:
    """Everything of one run. Runs of a case are in the order of the rounds."""

    runs: dict[str, list[Measured]] = field(default_factory=dict)
    tasks: list[Cost] = field(default_factory=list)
    jobs: list[Cost] = field(default_factory=list)
    memory: list[tuple[str, int, str, float]] = field(default_factory=list)

    def ratios(self, name: str, against: str) -> list[float]:
        pairs = zip(self.runs[name], self.runs[against], strict=True)
        return [one.rate / other.rate for one, other in pairs]


def tables(found: Found) -> list[str]:
    parts = [
        ("Reading", _cases(found, READING)),
        ("Writing", _cases(found, WRITING)),
        ("A row inside a task, less a task with one row, in µs of CPU (of time)", _tasks(found)),
        ("A whole job, by the size of the queue, in s", _jobs(found)),
        ("The most memory that a Python worker took, in MB", _memory(found)),
    ]
    lines: list[str] = []
    for title, rows in parts:
        if len(rows) > 1:
            lines += [f"## {title}", "", *table(rows), ""]
    return lines


def _cases(found: Found, cases: Iterable[Case]) -> list[list[str]]:
    cases = [case for case in cases if case.name in found.runs]
    others = list(dict.fromkeys(name for case in cases for name in case.against))
    head = ["what", "rows/s", "min–max", "Redis µs/row"]
    for other in others:
        head += (SHORT[other], "min–max")
    rows = [[*head, "target"]]
    for case in cases:
        runs = found.runs[case.name]
        rates = [run.rate for run in runs]
        row = [case.name, f"{median(rates):,.0f}", f"{min(rates):,.0f}–{max(rates):,.0f}"]
        row.append(f"{median(run.server_cpu / run.rows for run in runs) * 1e6:.1f}")
        for other in others:
            row += _spread(found.ratios(case.name, other)) if other in case.against else ("", "")
        rows.append([*row, "" if case.target is None else f">= {case.target:g}x"])
    return rows


def _spread(ratios: list[float]) -> tuple[str, str]:
    return f"{median(ratios):.2f}x", f"{min(ratios):.2f}–{max(ratios):.2f}"


def _tasks(found: Found) -> list[list[str]]:
    """Per row: what is left when the cost of a task with one row is taken off."""
    sizes = sorted({cost.rows for cost in found.tasks} - {ONE})
    head = ["what", "one row, ms", *(f"{size:,}" for size in sizes), "largest / smallest queue"]
    rows = [head]
    for what in dict.fromkeys(cost.what for cost in found.tasks):
        idle_cpu, idle = _spent(found.tasks, what, ONE)
        each = []
        for size in sizes:
            cpu, seconds = _spent(found.tasks, what, size)
            each.append(((cpu - idle_cpu) / size * 1e6, (seconds - idle) / size * 1e6))
        shown = [f"{cpu:.2f} ({seconds:.2f})" for cpu, seconds in each]
        one_row = f"{idle_cpu * 1e3:.1f} ({idle * 1e3:.1f})"
        rows.append([what, one_row, *shown, f"{each[-1][0] / each[0][0]:.2f}x"])
    return rows


def _spent(costs: Sequence[Cost], what: str, rows: int) -> tuple[float, float]:
    """Medians of CPU and of time, in s."""
    those = [cost for cost in costs if (cost.what, cost.rows) == (what, rows)]
    return median(cost.cpu for cost in those), median(cost.seconds for cost in those)


def _jobs(found: Found) -> list[list[str]]:
    """Per row: what each row beyond those of the size before costs."""
    whats = list(dict.fromkeys(cost.what for cost in found.jobs))
    head = ["rows"]
    for what in whats:
        head += (what, "µs per further row")
    rows, before = [head], dict[str, tuple[int, float]]()
    for size in sorted({cost.rows for cost in found.jobs}):
        row = [f"{size:,}"]
        for what in whats:
            runs = [c.seconds for c in found.jobs if (c.what, c.rows) == (what, size)]
            further = ""
            if runs and what in before:
                rows_before, seconds = before[what]
                further = f"{(median(runs) - seconds) / (size - rows_before) * 1e6:.1f}"
            if runs:
                before[what] = size, median(runs)
            row += (f"{median(runs):.2f}" if runs else "", further)
        rows.append(row)
    return rows


def _memory(found: Found) -> list[list[str]]:
    rows = [["what", "rows", "fetchSize", "MB"]]
    for what, count, size, peak in found.memory:
        rows.append([what, f"{count:,}", size, f"{peak:.0f}"])
    return rows


def write(folder: Path, name: str, found: Found, facts: dict[str, Any]) -> Path:
    """Write `<name>.md` and `<name>.json`; answers the first."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{name}.md"
    page.write_text("\n".join(_page(name, found, facts)) + "\n")
    raw = {
        "facts": facts,
        "runs": {
            case: [{"rows": run.rows, "seconds": round(run.seconds, 4)} for run in runs]
            for case, runs in found.runs.items()
        },
        "tasks": [cost._asdict() for cost in found.tasks],
        "jobs": [cost._asdict() for cost in found.jobs],
        "memory": found.memory,
    }
    page.with_suffix(".json").write_text(json.dumps(raw, indent=1) + "\n")
    return page


def _page(name: str, found: Found, facts: dict[str, Any]) -> list[str]:
    return [
        f"# {name}",
        "",
        f"Medians of {facts['rounds']} rounds; in each round everything ran once, one after the",
        "other, on the same server. Ratios are what counts, and were taken within a round: rows",
        "per second belong to this machine and to what else it did. The plain loops are redis-py",
        "and msgspec in one process; *XADD in tasks* is the same loop in `foreachPartition`, where",
        "a task that is run again doubles its rows. How it is measured: `bench/README.md`.",
        "",
        *tables(found),
        *(f"- {label}: {told(value)}" for label, value in facts.items()),
    ]
