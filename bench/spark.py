"""Rows per second of the Spark source and sink, beside plain loops: `make bench-spark`.

Each round runs every case once, one after the other, in one session on a server of our own. The
tables show medians, and medians of the rounds' ratios. `--quick` takes a few rows and a minute.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pyspark
import redis
import spark_growth
import spark_memory
import spark_report
from arena import AT_LEAST, wait_for_quiet
from pyspark.sql import SparkSession
from quick import ROOT, Progress, machine
from spark_cases import CASES, WRITTEN, Stand, drain

from chasquimq.server import Server, find_server
from chasquimq.spark.session import session

REPORTS = Path(__file__).parent / "reports"
WARM = 20_000
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def main(words: list[str], spark: SparkSession | None = None) -> None:
    """With a session of the caller's no memory is measured: that takes another one."""
    told, began = arguments(words), time.monotonic()
    wanted = [case for case in CASES if told.only in case.name]
    names = {name for case in wanted for name in (case.name, *case.against)}
    os.chdir(ROOT)  # where `make redis` puts its server
    binary = find_server(kind="redis", at_least=AT_LEAST["redis"])
    found = spark_report.Found()
    with Server(binary) as server, redis.Redis.from_url(server.url) as client:
        stand = Stand(spark or start({}), server.url, client, told.rows)
        with Progress(told.rounds) as progress:
            rounds(stand, told, names, found, progress)
        if spark is None and told.memory:
            stand.spark.stop()
            stand.spark = start(spark_memory.CONF)
            spark_growth.fill(stand, told.memory)
            found.memory += spark_memory.measure(stand, *told.memory)
        java = stand.spark._jvm.System.getProperty("java.version")  # type: ignore[union-attr]
    facts = machine() | {
        "versions": {
            "pyspark": pyspark.__version__,
            "java": java,
            "redis": ".".join(map(str, binary.version)),
        },
        "session": "local[2]",
        "rows": f"{told.rows:,}, of which each has ten keys and 142 bytes",
        "rounds": told.rounds,
        "took": f"{time.monotonic() - began:.0f} s",
        "load average at the end, of which 2 are its own": f"{os.getloadavg()[0]:.1f}",
        "command": f"python bench/spark.py {' '.join(words)}".strip(),
    }
    print("\n".join(spark_report.tables(found)))
    if told.reports is not None:
        name = f"{datetime.now(UTC):%Y-%m-%d}-{told.name}"
        print(f"written to {spark_report.write(told.reports, name, found, facts)} and .json")


def rounds(
    stand: Stand,
    told: argparse.Namespace,
    names: set[str],
    found: spark_report.Found,
    progress: Progress,
) -> None:
    cases = [case for case in CASES if case.name in names]
    if not told.quick:
        warm_up(stand)
    spark_growth.fill(stand, told.sizes)
    patience = told.patience
    for number in range(told.rounds):
        for case in cases if number % 2 == 0 else cases[::-1]:
            progress.show(number, case.name, "rows per second")
            patience = wait_for_quiet(patience)
            wake(stand)
            found.runs.setdefault(case.name, []).append(case.run(stand))
        if told.sizes:
            progress.show(number, "by size", "inside a task")
            found.tasks += spark_growth.in_a_task(stand, told.sizes)
            progress.show(number, "by size", "a whole job")
            wake(stand)
            found.jobs += spark_growth.in_a_job(stand, told.sizes)


def start(conf: dict[str, str]) -> SparkSession:
    spark = session("bench", master="local[2]", conf=CONF | conf)
    spark.sparkContext.setLogLevel("OFF")
    return spark


def warm_up(stand: Stand) -> None:
    """The first jobs of a session compile and fork; nobody asks how long that takes."""
    rows = min(WARM, stand.rows // 2)
    for _ in range(2):
        wake(stand, rows)
    stand.write_in_tasks(rows)


def wake(stand: Stand, rows: int = 100) -> None:
    """Spark ends Python processes that had nothing to do for a minute, and some cases take longer.
    What a job costs that has to start them is another table."""
    stand.write(rows)
    drain(stand.frame("jobs", queue=WRITTEN))


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases with this in their name")
    sizes = [10_000, 100_000, 500_000, 2_000_000]
    parser.add_argument("--sizes", type=int, nargs="*", default=sizes, help="of queues")
    parser.add_argument(
        "--memory", type=int, nargs=2, default=[100_000, 1_000_000], help="few rows, many rows"
    )
    parser.add_argument("--quick", action="store_true", help="one round of a few rows; no report")
    parser.add_argument(
        "--patience", type=float, default=60.0, help="s to wait in all for others to be quiet"
    )
    parser.add_argument("--name", default="spark", help="of the report, behind the date")
    parser.add_argument("--reports", type=Path, default=REPORTS, help="where the report goes")
    parser.add_argument("--dry", action="store_true", help="write no report")
    told = parser.parse_args(words)
    if told.quick:
        told.rows, told.rounds, told.patience = 2_000, 1, 0.0
        told.sizes, told.memory = [1_000], [1_000, 2_000]
    if told.dry or (told.quick and told.reports == REPORTS):
        told.reports = None
    if not any(told.only in case.name for case in CASES):
        parser.error(f"no case has {told.only!r} in its name")
    return told


if __name__ == "__main__":
    main(sys.argv[1:])
