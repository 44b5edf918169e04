"""`chasqui spark`: queues as DataFrames, from the terminal.

Spark, Java and Arrow are imported when a command runs: whoever has none of them loses nothing.
"""

from __future__ import annotations

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
        "chasqui spark lake mail --lake /data/lake --available-now",
        "chasqui spark rollup --lake /data/lake --since 2h",
        "chasqui spark doctor              Java, Python, Spark, and what the server allows",
        "chasqui spark recover mail        what a driver that died has left behind",
        "chasqui spark enqueue mail users.parquet    a job for each row",
    ),
)

spark.command(epilog=doctor.EXAMPLES)(doctor.doctor)
spark.command(epilog=recover.EXAMPLES)(recover.recover)
spark.command(epilog=lake.EXAMPLES)(lake.lake)
spark.command(epilog=compact.EXAMPLES)(compact.compact)
spark.command(epilog=rollup.EXAMPLES)(rollup.rollup)
spark.command(epilog=rollup.COMPARE_EXAMPLES)(rollup.compare)
spark.command(epilog=lifecycle.EXAMPLES)(lifecycle.lifecycle)
spark.command(epilog=triage.EXAMPLES)(triage.triage)
spark.command(epilog=replay.EXAMPLES)(replay.replay)
spark.command(epilog=purge.EXAMPLES)(purge.purge)
spark.command(epilog=report.EXAMPLES)(report.report)
spark.command(epilog=run.EXAMPLES)(run.run)
spark.command(epilog=work.EXAMPLES)(work.work)
spark.command(epilog=enqueue.EXAMPLES)(enqueue.enqueue)
spark.command(epilog=entry.EXAMPLES)(entry.entry)
