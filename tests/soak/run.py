"""Load workers for a while, break something every 20 s, and see what came of it.

python -m tests.soak.run --minutes 10                 with faults
python -m tests.soak.run --minutes 10 --no-faults     one worker, and whether anything grows
python -m tests.soak.run --minutes 30 --no-faults --rate 600 --memory memory.jsonl --trace

The exit code is 1 if a job was lost, doubled without a death, overlapped or left, or if
processes and server are not as they were.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.servers import DIALECTS, DialectServer, Servers
from tests.soak import calm
from tests.soak.account import quantile, table
from tests.soak.fault import FAULTS
from tests.soak.storm import Outcome, Plan, storm

Tell = Callable[[str], None]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--fault-every-s", type=float, default=20.0)
    parser.add_argument(
        "--only", nargs="*", choices=FAULTS, default=[], help="these faults, in turn"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument(
        "--rate",
        type=float,
        default=0.0,
        help="jobs per second; 0: 70 %% of what can be done, without faults all",
    )
    parser.add_argument(
        "--memory", metavar="FILE", help="with --no-faults: note where the worker's memory goes"
    )
    parser.add_argument("--trace", action="store_true", help="with --memory: by tracemalloc, too")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--lease-ms", type=int, default=5_000)
    parser.add_argument(
        "--p99-ms", type=float, default=0.0, help="fail if a wait without faults is longer"
    )
    parser.add_argument(
        "--server", choices=[one.name for one in DIALECTS], default=DIALECTS[0].name
    )
    parser.add_argument(
        "--json", action="store_true", help="the report as JSON; progress goes to stderr"
    )
    return parser.parse_args()


def main() -> int:
    told = options()
    logging.getLogger("chasquimq").setLevel(logging.ERROR)  # that connections break is the point
    logging.getLogger("asyncio").setLevel(logging.ERROR)

    def tell(line: str) -> None:
        print(line, file=sys.stderr if told.json else sys.stdout, flush=True)

    dialect = next(one for one in DIALECTS if one.name == told.server)
    with Servers().private(dialect) as server:
        if told.no_faults:
            return _calm(server, told, tell)
        return _storm(server, told, tell)


def _calm(server: DialectServer, told: argparse.Namespace, tell: Tell) -> int:
    memory = () if told.memory is None else (told.memory, *(["trace"] if told.trace else []))
    seconds = told.minutes * 60
    outcome = asyncio.run(
        calm.soak(server.url, server.forced_dialect, seconds, tell, rate=told.rate, memory=memory)
    )
    rate = outcome.jobs / outcome.seconds
    tell(
        f"\n{outcome.jobs:,} jobs in {outcome.seconds:.0f} s ({rate:,.0f}/s), left: {outcome.left}"
    )
    for name, grown in outcome.growth().items():
        tell(f"  {name:<12} {grown:+10.1f}")
    failures = calm.judge(outcome)
    tell("\n".join(failures) or "flat")
    return bool(failures)


def _storm(server: DialectServer, told: argparse.Namespace, tell: Tell) -> int:
    plan = Plan(
        seconds=told.minutes * 60,
        every_s=told.fault_every_s,
        rate=told.rate,
        seed=told.seed,
        lease_ms=told.lease_ms,
        workers=told.workers,
        faults=tuple(told.only),
    )
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        outcome = asyncio.run(storm(server, Path(folder), plan, tell))
    p99 = quantile(outcome.waits_ms, 99)
    if told.p99_ms and p99 > told.p99_ms:
        outcome.problems.append(f"p99 from add to start {p99:.0f} ms, at most {told.p99_ms:.0f}")
    tell("\n".join(closing(outcome)))
    if told.json:
        print(json.dumps(report(outcome, server.name), indent=1))
    return bool(outcome.problems)


def closing(outcome: Outcome) -> list[str]:
    """The table at the end."""
    waits, counts = outcome.waits_ms, outcome.counts
    figures = ", ".join(f"{name} {counts[name]:,}" for name in counts)
    return [
        "",
        *table(outcome.recoveries),
        "(seconds after the fault's end, the worst of each; lasted: the median)",
        "",
        f"{outcome.jobs:,} jobs at {outcome.rate:,.0f}/s, {len(outcome.windows)} faults,"
        f" seed {outcome.plan.seed}: {figures}",
        f"from add to start outside of faults ({outcome.calm:,} jobs):"
        f" p50 {quantile(waits, 50):.1f} ms, p99 {quantile(waits, 99):.1f} ms",
        f"before the faults: {outcome.quiet[0]}",
        f"at the end:        {outcome.quiet[-1]}",
        *(
            outcome.problems
            or ["nothing lost, doubled without a cause, overlapping, stuck or grown"]
        ),
    ]


def report(outcome: Outcome, server: str) -> dict[str, Any]:
    waits = outcome.waits_ms
    return {
        "server": server,
        "plan": asdict(outcome.plan),
        "rate": round(outcome.rate),
        "jobs": outcome.jobs,
        "counts": dict(outcome.counts),
        "waits": {
            "jobs": outcome.calm,
            "p50_ms": round(quantile(waits, 50), 2),
            "p99_ms": round(quantile(waits, 99), 2),
        },
        "faults": [asdict(one) for one in outcome.recoveries],
        "quiet": [one._asdict() for one in outcome.quiet],
        "problems": outcome.problems,
    }


if __name__ == "__main__":
    sys.exit(main())
