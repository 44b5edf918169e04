"""`chasqui spark lifecycle`: what became of each job, and which do not move."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from chasquimq.cli import render_lake as render
from chasquimq.cli.moment import read_duration
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, examples
from chasquimq.cli.spark.fault import plainly
from chasquimq.cli.spark.place import (
    Lake,
    Limit,
    OfQueues,
    Out,
    Since,
    Until,
    check_queues,
    collected,
    events,
    moment,
    say_written,
    the_lake,
    the_path,
)
from chasquimq.cli.spark.start import Master, progress, start
from chasquimq.config import one_of

STATES = ("completed", "dead", "running", "retrying", "delayed", "waiting")
ORDERS = {"last": "last_seen", "slowest": "total_ms", "busiest": "run_ms", "starts": "starts"}
EXAMPLES = examples(
    "chasqui spark lifecycle --lake /data/lake --stuck        what does not move",
    "chasqui spark lifecycle mail --lake /data/lake --sort slowest",
    "chasqui spark lifecycle --lake /data/lake --job welcome:42",
    "chasqui spark lifecycle --lake /data/lake --out /data/jobs",
)


def lifecycle(
    queues: OfQueues = None,
    lake: Lake = None,
    job: Annotated[
        list[str] | None,
        typer.Option("--job", metavar="ID", help="Only these jobs.", show_default=False),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help=f"Only those that are {', '.join(STATES)}."),
    ] = None,
    stuck: Annotated[
        bool, typer.Option("--stuck", help="Only those that should have moved, and have not.")
    ] = False,
    stuck_after: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How long nothing was told of a job that is due."),
    ] = "1h",
    sort: Annotated[
        str, typer.Option(metavar="|".join(ORDERS), help="The latest, or the most, first.")
    ] = "last",
    since: Since = None,
    until: Until = None,
    out: Out = None,
    limit: Limit = 20,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """What became of each job: when it came, how often it ran, how it ended, or why it does not.

    A job of which the first events are older than --since seems younger than it is.
    """
    check_queues(queues)
    place = the_lake(lake, master)
    if state is not None:
        one_of("--state", state, STATES)
    one_of("--sort", sort, tuple(ORDERS))
    patience = read_duration(stuck_after, "--stuck-after")
    begin, end = moment(since, "--since"), moment(until, "--until")
    screen = Screen(as_json=as_json)
    with plainly():
        spark = start("lifecycle", master)
        from pyspark.sql import functions as f

        from chasquimq.spark import pipelines

        rows = events(spark, place, queues, begin, end)
        if job:
            rows = rows.where(f.col("job_id").isin(*job))
        found = pipelines.lifecycle(rows, stuck_after=patience)
        if state is not None:
            found = found.where(f.col("state") == state)
        if stuck:
            found = found.where(f.col("stuck"))
        found = found.orderBy(f.desc(ORDERS[sort]))
        with progress(spark, "reading the lake"):
            if out is not None:
                path = the_path(out, master)
                found.write.mode("overwrite").parquet(path)
                say_written(screen, path)
                return
            if as_json:
                for row in collected(found):
                    screen.line(row)
                return
            lines = list(collected(found.limit(limit + 1)))
            left = found.count() - limit if len(lines) > limit else 0
    screen.show(render.lives(lines[:limit], round(time.time() * 1000), screen.width, left))
