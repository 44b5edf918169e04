"""`chasqui spark rollup`: how many, how fast, how long, over time; and what a deploy changed."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Annotated

import typer

from chasquimq.cli import render_lake as render
from chasquimq.cli.moment import read_duration, read_moment
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
    before,
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
from chasquimq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDERS = (
    "started",
    "completed",
    "failed",
    "retried",
    "buried",
    "failure_rate",
    "retry_rate",
    "run_p50_ms",
    "run_p95_ms",
    "run_p99_ms",
    "wait_p50_ms",
    "wait_p95_ms",
    "wait_p99_ms",
)
EXAMPLES = examples(
    "chasqui spark rollup --lake /data/lake --since 2h              by the minute",
    "chasqui spark rollup mail --lake /data/lake --every 1h --by queue",
    "chasqui spark rollup --lake /data/lake --total --sort run_p95_ms",
    "chasqui spark rollup --lake /data/lake --total --sort failure_rate",
    "chasqui spark rollup --lake /data/lake --every 1h --out /data/rollup",
)
COMPARE_EXAMPLES = examples(
    "chasqui spark compare --lake /data/lake --at 2026-11-16T09:00Z",
    "chasqui spark compare mail --lake /data/lake --at 2026-11-16 --for 1d",
)

By = Annotated[
    str, typer.Option(metavar="name|queue|all", help="A row for each name, queue, or for all.")
]


def rollup(
    queues: OfQueues = None,
    lake: Lake = None,
    every: Annotated[str, typer.Option(metavar="DURATION", help="How long a window is.")] = "1m",
    total: Annotated[
        bool, typer.Option("--total", help="One window over the whole time instead.")
    ] = False,
    by: By = "name",
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="FIGURE", help="With --total, the largest first: failure_rate, run_p95_ms ..."
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    out: Out = None,
    limit: Limit = 50,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Throughput, failures, retries, and how long jobs ran and waited, by window, queue and name.

    What each figure means is in docs/reference/spark/figures.md. --out writes a folder per day, and
    replaces those that are there; --since begins with its whole day then.
    """
    place, groups = _checked(queues, lake, by, master)
    length = read_duration(every, "--every")
    if sort is not None:
        one_of("--sort", sort, ORDERS)
        if not total:
            raise ConfigError("--sort is for --total: windows are shown in the order of time")
    begin, end = moment(since, "--since"), moment(until, "--until")
    screen = Screen(as_json=as_json)
    with plainly():
        spark = start("rollup", master)
        from pyspark.sql import functions as f

        from chasquimq.spark import pipelines

        if out is not None and begin is not None and not total:
            begin = begin.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        rows = events(spark, place, queues, before(begin), end)
        if total:
            found = pipelines.names(rows, by=groups, since=begin).orderBy(f.desc(sort or "started"))
        else:
            windows = pipelines.rollup(rows, length, by=groups, since=begin)
            found = windows.orderBy(f.desc("window_start"), *groups)
        with progress(spark, "reading the lake"):
            if out is None:
                _show(screen, found, groups, total, limit)
            else:
                path = the_path(out, master)
                found.write.mode("overwrite").parquet(path) if total else write(found, path)
                say_written(screen, path)


def compare(
    at: Annotated[
        str, typer.Option("--at", metavar="TIME", help="The moment of the change, say a deploy.")
    ],
    queues: OfQueues = None,
    lake: Lake = None,
    length: Annotated[
        str,
        typer.Option("--for", metavar="DURATION", help="How long before it, and after it."),
    ] = "1h",
    by: By = "name",
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """What a deploy changed: the same figures before and after a moment, side by side."""
    place, groups = _checked(queues, lake, by, master)
    when, span = read_moment(at, "--at"), read_duration(length, "--for")
    screen = Screen(as_json=as_json)
    with plainly():
        spark = start("compare", master)
        from pyspark.sql import functions as f

        from chasquimq.spark import pipelines

        rows = events(spark, place, queues, before(when - span), when + span)
        found = pipelines.compare(rows, (when - span, when), (when, when + span), by=groups)
        with progress(spark, "reading the lake"):
            lines = list(collected(found.orderBy(f.desc("after_completed"))))
    if as_json:
        screen.json({"at": when.isoformat(), "seconds": span.total_seconds(), "rows": lines})
    else:
        screen.show(render.compared(lines, groups, screen.width))


def _checked(
    queues: list[str] | None, lake: str | None, by: str, master: str | None
) -> tuple[str, tuple[str, ...]]:
    check_queues(queues)
    one_of("--by", by, ("name", "queue", "all"))
    groups = {"name": ("queue", "name"), "queue": ("queue",), "all": ()}
    return the_lake(lake, master), groups[by]


def _show(
    screen: Screen, found: DataFrame, groups: tuple[str, ...], total: bool, limit: int
) -> None:
    if screen.as_json:
        screen.json(list(collected(found)))
        return
    lines = list(collected(found.limit(limit + 1)))
    left = found.count() - limit if len(lines) > limit else 0
    draw = render.totals if total else render.windows
    screen.show(draw(lines[:limit], groups, screen.width, left))


def write(found: DataFrame, out: str) -> None:
    """A folder for each day; those that are there are replaced."""
    from pyspark.sql import functions as f

    from chasquimq.spark.pipelines.keep import day

    days = found.withColumn("date", day(f.col("window_start"))).write.partitionBy("date")
    days.mode("overwrite").option("partitionOverwriteMode", "dynamic").parquet(out)
