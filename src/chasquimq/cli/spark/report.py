"""`chasqui spark report`: one page that people look at."""

from __future__ import annotations

import platform
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from chasquimq._version import __version__
from chasquimq.cli import render_lake as render
from chasquimq.cli.moment import read_duration, read_moment
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, examples
from chasquimq.cli.spark.fault import plainly
from chasquimq.cli.spark.place import (
    Lake,
    OfQueues,
    Since,
    Until,
    before,
    check_queues,
    events,
    moment,
    the_lake,
)
from chasquimq.cli.spark.start import Master, progress, start
from chasquimq.text import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from chasquimq.spark.report.data import ReportData

OUT = "chasqui-report.html"
EXAMPLES = examples(
    "chasqui spark report --lake /data/lake",
    "chasqui spark report mail --lake /data/lake --since 7d --out week.html",
    "chasqui spark report --lake /data/lake --deploy 2026-11-16T09:00Z --for 2h",
)

OutFile = Annotated[str, typer.Option("--out", metavar="FILE", help="Where the page goes.")]


def report(
    queues: OfQueues = None,
    lake: Lake = None,
    out: OutFile = OUT,
    since: Since = None,
    until: Until = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long a window is; else by what there is.",
            show_default=False,
        ),
    ] = None,
    deploy: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Compare what was before and after it.", show_default=False
        ),
    ] = None,
    length: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="With --deploy: how long each.")
    ] = "1h",
    stuck_after: Annotated[
        str,
        typer.Option(metavar="DURATION", help="When a job that is due counts as stuck."),
    ] = "1h",
    title: Annotated[str, typer.Option(help="The headline.")] = "ChasquiMQ",
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """One HTML file with plots, which needs no network: throughput, latencies, failures, depth,
    when jobs wait, names, dead letters, schedules, jobs that are stuck."""
    check_queues(queues)
    place = the_lake(lake, master)
    begin, end = moment(since, "--since"), moment(until, "--until")
    window = None if every is None else read_duration(every, "--every")
    patience, span = read_duration(stuck_after, "--stuck-after"), read_duration(length, "--for")
    when = None if deploy is None else read_moment(deploy, "--deploy")
    screen = Screen(as_json=as_json)
    with plainly():
        spark = start("report", master)
        from chasquimq.spark.pipelines.summary import report as summary
        from chasquimq.spark.report import write_page

        with progress(spark, "reading the lake"):
            data = summary(
                events(spark, place, queues, before(begin), end),
                events(spark, place, queues, begin, end, "dlq"),
                title=title,
                every=window,
                since=begin,
                stuck_after=patience,
                deploy=None if when is None else ((when - span, when), (when, when + span)),
                facts=facts(spark, place),
            )
        path = write_page(data, out)
    show(screen, data, str(path))


def facts(spark: SparkSession, lake: str) -> dict[str, str | int | float]:
    return {
        "lake": lake,
        "chasquimq": __version__,
        "spark": spark.version,
        "python": platform.python_version(),
    }


def show(screen: Screen, data: ReportData, path: str) -> None:
    if screen.as_json:
        totals = {row["queue"]: dict(row) for row in data.totals}
        span: dict[str, datetime] = {"begin": data.begin, "end": data.end}
        screen.json({"report": path, **span, "totals": totals, "stuck": len(data.stuck)})
        return
    screen.show(render.summary(data.totals), render.clusters(data.clusters))
    for warning in data.warnings:
        print(f"chasqui: {shown(warning)}", file=sys.stderr)
    screen.say(f"the report: {path}")
