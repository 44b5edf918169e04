"""`chasqui spark`: queues as DataFrames, from the terminal.

Spark, Java and Arrow are imported when a command runs: whoever has none of them loses nothing.
"""

from __future__ import annotations

import typer

from chasquimq.cli.later import Later
from chasquimq.cli.shell import examples

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

COMMANDS = (
    Later(
        "run",
        WHAT_HAPPENED,
        "chasquimq.cli.spark.run",
        "The whole pipeline: the lake, figures by the minute (LAKE/rollup), the report, "
        "and small files put together; once with --available-now, else until it is "
        "stopped.",
    ),
    Later(
        "lake",
        WHAT_HAPPENED,
        "chasquimq.cli.spark.lake",
        "Bring the events and the dead jobs of queues into a lake of Parquet files, each once.",
    ),
    Later(
        "rollup",
        WHAT_HAPPENED,
        "chasquimq.cli.spark.rollup",
        "Throughput, failures, retries, and how long jobs ran and waited, by window, "
        "queue and name.",
    ),
    Later(
        "compare",
        WHAT_HAPPENED,
        "chasquimq.cli.spark.rollup",
        "What a deploy changed: the same figures before and after a moment, side by side.",
        "COMPARE_EXAMPLES",
    ),
    Later(
        "lifecycle",
        WHAT_HAPPENED,
        "chasquimq.cli.spark.lifecycle",
        "What became of each job: when it came, how often it ran, how it ended, or why it "
        "does not.",
    ),
    Later(
        "report",
        WHAT_HAPPENED,
        "chasquimq.cli.spark.report",
        "One HTML file with plots, which needs no network: throughput, latencies, "
        "failures, depth, when jobs wait, names, dead letters, schedules, jobs that are "
        "stuck.",
    ),
    Later(
        "compact",
        WHAT_HAPPENED,
        "chasquimq.cli.spark.compact",
        "Put small files of the lake together, and remove what has had its time.",
    ),
    Later(
        "triage",
        DEAD,
        "chasquimq.cli.spark.triage",
        "Cluster dead jobs by reason, exception and what their errors have in common.",
    ),
    Later(
        "replay",
        DEAD,
        "chasquimq.cli.spark.replay",
        "Bring dead jobs back to their queue, with fresh attempts; each once, whatever fails.",
    ),
    Later(
        "purge",
        DEAD,
        "chasquimq.cli.spark.purge",
        "Delete dead jobs for good. Export them first if you may want them again.",
    ),
    Later(
        "enqueue",
        BULK,
        "chasquimq.cli.spark.enqueue",
        "Add a job for each row of files, of a table or of a query, each exactly once.",
    ),
    Later(
        "work",
        BULK,
        "chasquimq.cli.spark.work",
        "Run handlers on the jobs of a queue, in the tasks of Spark, until it is empty.",
    ),
    Later(
        "doctor",
        SET_UP,
        "chasquimq.cli.spark.doctor",
        "Look whether Spark can read and write queues from here, and say what is missing.",
    ),
    Later(
        "recover",
        SET_UP,
        "chasquimq.cli.spark.recover",
        "Finish what a Spark driver that died has left behind, or clear it away.",
    ),
    Later(
        "entry",
        SET_UP,
        "chasquimq.cli.spark.entry",
        "Print the path of the program that runs every `chasqui spark` command under spark-submit.",
    ),
)
