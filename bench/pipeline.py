"""What an event costs in the pipeline, by how many there are: `make bench-pipeline`.

Each size runs in a process of its own, with a JVM of its own that has run all steps before. The
tables show medians of the rounds. `--quick` takes a few events and a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import pyspark
import spark_field
from arena import AT_LEAST, wait_for_quiet
from layout import table
from quick import ROOT, Progress, machine
from report import told

from chasquimq.server import Server, find_server

REPORTS = Path(__file__).parent / "reports"
CHILD = Path(__file__).with_name("pipeline_child.py")
WARM = "bench-warm"
FEW = 1_000  # events that tell what each step costs by itself
STEPS = {
    "lake": "read from Redis, written as Parquet",
    "compact": "put together, from ten batches",
    "rollup": "by minute and name, with percentiles",
    "lifecycle": "a row for each job",
    "report": "all figures, and the page",
}


def main(words: list[str]) -> None:
    given, began = arguments(words), time.monotonic()
    os.chdir(ROOT)
    binary = find_server(kind="redis", at_least=AT_LEAST["redis"])
    runs: list[dict[str, Any]] = []
    with Server(binary) as server, Progress(given.rounds) as progress:
        spark_field.fill(server.url, WARM, "events", given.warm)
        for events in (FEW, *given.sizes):
            spark_field.fill(server.url, queue_of(events), "events", events)
        patience = given.patience
        for number in range(given.rounds):
            for events in (FEW, *given.sizes):
                progress.show(number, f"{events:,} events", "all steps")
                patience = wait_for_quiet(patience)
                runs.append(run(server.url, events, given))
    facts = machine() | {
        "versions": f"pyspark {pyspark.__version__}, redis {'.'.join(map(str, binary.version))}",
        "session": f"local[2], a heap of {given.heap} for the driver",
        "before each run": f"all steps twice over {given.warm:,} events",
        "rounds": given.rounds,
        "took": f"{time.monotonic() - began:.0f} s",
        "command": f"python bench/pipeline.py {' '.join(words)}".strip(),
    }
    page = [f"# {datetime.now(UTC):%Y-%m-%d}-pipeline", "", *tables(runs, given.sizes)]
    page += [f"- {label}: {told(value)}" for label, value in facts.items()]
    print("\n".join(page))
    if given.reports is not None:
        target = given.reports / f"{datetime.now(UTC):%Y-%m-%d}-pipeline.md"
        target.write_text("\n".join(page) + "\n")
        raw = json.dumps({"facts": facts, "runs": runs}, indent=1)
        target.with_suffix(".json").write_text(raw + "\n")
        print(f"written to {target} and .json")


def queue_of(events: int) -> str:
    return f"bench-{events}"


def run(url: str, events: int, given: argparse.Namespace) -> dict[str, Any]:
    orders = {"url": url, "queue": queue_of(events), "events": events, "heap": given.heap}
    orders |= {"warm": [WARM, given.warm]}
    command = [sys.executable, str(CHILD), json.dumps(orders)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def tables(runs: list[dict[str, Any]], sizes: list[int]) -> list[str]:
    heads = [f"{size:,}" for size in sizes]
    costs = [["step", "what it does", f"{FEW:,} events, s", *heads, "largest / smallest"]]
    whole = [["step", *heads]]
    for step, what in STEPS.items():
        few = _seconds(runs, step, FEW)
        each = [(_seconds(runs, step, size) - few) / (size - FEW) * 1e6 for size in sizes]
        shown = [f"{cost:.1f}" for cost in each]
        costs.append([step, what, f"{few:.2f}", *shown, f"{each[-1] / each[0]:.2f}x"])
        whole.append([step, *(f"{_seconds(runs, step, size):.1f}" for size in sizes)])
    memory = [["process", *heads]]
    for kind, name in (("java_mb", "the driver's Java"), ("python_mb", "a Python worker")):
        peaks = (median(one[kind] for one in runs if one["events"] == size) for size in sizes)
        memory.append([name, *(f"{peak:,.0f}" for peak in peaks)])
    return [
        f"## An event, in µs of time, less what the step costs for {FEW:,}",
        "",
        *table(costs),
        "",
        "## A whole step, in s",
        "",
        *table(whole),
        "",
        "## The most memory, in MB",
        "",
        *table(memory),
        "",
    ]


def _seconds(runs: list[dict[str, Any]], step: str, events: int) -> float:
    return median(one["seconds"][step] for one in runs if one["events"] == events)


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    sizes = [100_000, 1_000_000, 5_000_000]
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes, help="how many events")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--heap", default="1g", help="of the driver's Java")
    # Less leaves Java compiling while the small sizes are measured, and they look dear.
    parser.add_argument("--warm", type=int, default=500_000, help="events run over before")
    parser.add_argument("--patience", type=float, default=60.0, help="s to wait for others")
    parser.add_argument("--quick", action="store_true", help="few events, one round, no report")
    parser.add_argument("--reports", type=Path, default=REPORTS, help="where the report goes")
    given = parser.parse_args(words)
    if given.quick:
        given.sizes, given.rounds, given.patience = [5_000, 10_000], 1, 0.0
        given.warm = 5_000
        given.reports = None if given.reports == REPORTS else given.reports
    return given


if __name__ == "__main__":
    main(sys.argv[1:])
