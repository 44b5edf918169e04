"""`chasqui spark`: queues as DataFrames, from the terminal.

Spark, Java and Arrow are imported when a command runs: whoever has none of them loses nothing.
"""

from __future__ import annotations

import typer

from chasquimq.cli.shell import examples
from chasquimq.cli.spark import doctor, recover

spark = typer.Typer(
    name="spark",
    help="Queues as DataFrames: what Spark needs here, and what its runs have left behind.",
    epilog=examples(
        "chasqui spark doctor              Java, Python, Spark, and what the server allows",
        "chasqui spark recover mail        what a driver that died has left behind",
    ),
)

spark.command(epilog=doctor.EXAMPLES)(doctor.doctor)
spark.command(epilog=recover.EXAMPLES)(recover.recover)
