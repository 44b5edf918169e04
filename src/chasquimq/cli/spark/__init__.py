"""`chasqui spark`: queues as DataFrames, from the terminal.

Spark, Java and Arrow are imported when a command runs: whoever has none of them loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from chasquimq.cli.shell import examples
from chasquimq.cli.spark import (
    compact,
    doctor,
    enqueue,
    entry,
    lake,
    lifecycle,
    purge,
    recover,
    replay,
    report,
    rollup,
    run,
    triage,
    work,
)

spark = typer.Typer(
    name="spark",
    help="Bulk and analytical work on Spark: what happened to jobs, dead ones, and large writes.",
    epilog=examples(
        "chasqui spark run mail --lake /data/lake --available-now    all of it, once",
        "chasqui spark rollup --lake /data/lake --since 2h           figures over time",
        "chasqui spark triage mail                                   what jobs died of",
        "chasqui spark enqueue mail users.parquet                    a job for each row",
        "chasqui spark work app:handle --queue mail                  handlers in tasks",
        "chasqui spark doctor                                        is all there?",
    ),
)

WHAT_HAPPENED, DEAD, BULK, SET_UP = "What happened", "Dead jobs", "Bulk", "Set-up"


def _add(panel: str, *commands: tuple[Callable[..., None], str]) -> None:
    for verb, epilog in commands:
        spark.command(rich_help_panel=panel, epilog=epilog)(verb)


_add(
    WHAT_HAPPENED,
    (run.run, run.EXAMPLES),
    (lake.lake, lake.EXAMPLES),
    (rollup.rollup, rollup.EXAMPLES),
    (rollup.compare, rollup.COMPARE_EXAMPLES),
    (lifecycle.lifecycle, lifecycle.EXAMPLES),
    (report.report, report.EXAMPLES),
    (compact.compact, compact.EXAMPLES),
)
_add(
    DEAD,
    (triage.triage, triage.EXAMPLES),
    (replay.replay, replay.EXAMPLES),
    (purge.purge, purge.EXAMPLES),
)
_add(BULK, (enqueue.enqueue, enqueue.EXAMPLES), (work.work, work.EXAMPLES))
_add(
    SET_UP,
    (doctor.doctor, doctor.EXAMPLES),
    (recover.recover, recover.EXAMPLES),
    (entry.entry, entry.EXAMPLES),
)
