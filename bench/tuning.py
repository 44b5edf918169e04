"""What each knob of a worker is worth: `python bench/tuning.py`.

Each round runs every setting once, one after the other, on a Redis of our own. The table shows the
median of the rounds' ratios to a worker as it is installed. It is the source of the table in
docs/how-to/tune.md.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from arena import Arena, Side, wait_for_quiet
from scenarios import EVENTS_ON, SCENARIOS, Scenario

BASE = next(one for one in SCENARIOS if one.name == EVENTS_ON)
PLAIN = "as it is installed"
SETTINGS: dict[str, tuple[dict[str, Any], bool]] = {  # options of the Worker, on uvloop
    PLAIN: ({}, False),
    "events_enabled=False": ({"events_enabled": False}, False),
    "on uvloop": ({}, True),
    "on uvloop, events_enabled=False": ({"events_enabled": False}, True),
    "concurrency=1": ({"concurrency": 1}, False),
    "concurrency=10": ({"concurrency": 10}, False),
    "concurrency=1000": ({"concurrency": 1000}, False),
    "read_count=256": ({"read_count": 256}, False),
    "ack_batch=1024": ({"ack_batch": 1024}, False),
    "store_results=True": ({"store_results": True}, False),
    "metrics=Recorder": ({"metrics": "record"}, False),
}


def scenario(options: dict[str, Any]) -> Scenario:
    return replace(BASE, options=BASE.options | options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--jobs", type=int, default=BASE.ours)
    parser.add_argument("--patience", type=float, default=30.0)
    told = parser.parse_args()
    os.chdir(Path(__file__).parents[1])  # where `make redis` puts its server
    rates: dict[str, list[dict[str, Any]]] = {name: [] for name in SETTINGS}
    patience, names = told.patience, list(SETTINGS)
    with Arena("redis") as arena:
        for number in range(told.rounds):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                options, uvloop = SETTINGS[name]
                patience = wait_for_quiet(patience)
                side = Side("ours", uvloop=uvloop)
                rates[name].append(arena.run(side, scenario(options), told.jobs))
    print("| setting | jobs/s, ratio | min–max | CPU, ratio | Redis CPU, ratio |")
    print("|---|---:|---:|---:|---:|")
    for name, runs in rates.items():
        speed, cpu, server = (
            [one[key] / plain[key] for one, plain in zip(runs, rates[PLAIN], strict=True)]
            for key in ("rate", "cpu_per_100k", "server_cpu_per_100k")
        )
        spread = f"{min(speed):.2f}–{max(speed):.2f}"
        shown = f"{median(cpu):.2f}x | {median(server):.2f}x"
        print(f"| {name} | {median(speed):.2f}x | {spread} | {shown} |")


if __name__ == "__main__":
    main()
