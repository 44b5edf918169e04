"""`chasqui spark run`: the whole pipeline, once or for ever.

1. events and dead jobs come into the lake;
2. figures by the minute are written anew for the days that may have changed;
3. the report is made;
4. small files are put together.

Continuous, the first goes on all the time, and the others come every few minutes.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from chasquimq.cli.moment import read_duration
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, RedisUrl, examples
from chasquimq.cli.spark.fault import plainly
from chasquimq.cli.spark.lake import (
    AllowLoss,
    AvailableNow,
    EventsCap,
    Every,
    follow,
    reached,
    read_every,
    tables,
)
from chasquimq.cli.spark.place import Lake, Queues, before, check_queues, the_lake
from chasquimq.cli.spark.report import OUT, OutFile, facts, show
from chasquimq.cli.spark.rollup import write
from chasquimq.cli.spark.start import Master, SecretFile, progress, start, where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from chasquimq.spark.report.data import ReportData

EXAMPLES = examples(
    "chasqui spark run mail --lake /data/lake --available-now    once, for cron",
    "chasqui spark run mail orders --lake /data/lake --out /var/www/jobs.html",
    "chasqui spark run mail --lake /data/lake --report-every 15m --keep-days 90",
)


def run(
    queues: Queues,
    lake: Lake = None,
    out: OutFile = OUT,
    available_now: AvailableNow = False,
    every: Every = None,
    report_every: Annotated[
        str, typer.Option(metavar="DURATION", help="How often the rest is done.")
    ] = "5m",
    since: Annotated[
        str, typer.Option(metavar="DURATION", help="How far the report looks back.")
    ] = "7d",
    keep_days: Annotated[
        int | None,
        typer.Option(min=1, help="Remove days of the lake that are older; else none."),
    ] = None,
    allow_loss: AllowLoss = False,
    events_cap: EventsCap = 100_000,
    master: Master = None,
    secret_file: SecretFile = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """The whole pipeline: the lake, figures by the minute (LAKE/rollup), the report, and small
    files put together; once with --available-now, else until it is stopped.

    It goes on where it was, whenever and however it was stopped. Ctrl-C or SIGTERM ends it with
    exit code 0.
    """
    check_queues(queues)
    place, pause_ms = the_lake(lake, master), read_every(every, available_now)
    often, back = read_duration(report_every, "--report-every"), read_duration(since, "--since")
    screen = Screen(as_json=as_json)
    options = reached(queues, where(redis_url, secret_file, master), allow_loss)
    with plainly():
        spark = start("run", master)
        pipeline = Pipeline(spark, place, out, back, keep_days)
        running = tables(spark, place, options, pause_ms, dlq=True)
        if available_now:
            with progress(spark, "bringing events in"):
                follow(screen, running, events_cap)
            with progress(spark, "figures and the report"):
                data = pipeline.once()
            show(screen, data, out)
            return
        follow(screen, running, events_cap, pipeline.now_and_then(often))


class Pipeline:
    """What is done with the lake, over and over again."""

    def __init__(
        self, spark: SparkSession, lake: str, out: str, back: timedelta, keep_days: int | None
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._out = out
        self._back = back
        self._keep_days = keep_days

    def once(self) -> ReportData:
        from chasquimq.spark.lake.compact import CompactOptions, compact
        from chasquimq.spark.lake.table import read
        from chasquimq.spark.pipelines import rollup
        from chasquimq.spark.pipelines.summary import report
        from chasquimq.spark.report import write_page

        now = datetime.fromtimestamp(time.time(), UTC)
        # What came in late belongs to its own day; one that is later than a day is for `rollup`.
        yesterday = (now - timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        recent = read(self._spark, self._lake, since=before(yesterday))
        write(rollup(recent, since=yesterday), f"{self._lake}/rollup")
        begin = now - self._back
        data = report(
            read(self._spark, self._lake, since=before(begin)),
            read(self._spark, self._lake, "dlq", since=begin),
            since=begin,
            facts=facts(self._spark, self._lake),
        )
        write_page(data, self._out)
        compact(self._spark, self._lake, CompactOptions(keep_days=self._keep_days))
        return data

    def has_begun(self) -> bool:
        """Has the lake anything to show?"""
        from chasquimq.spark.lake.files import Files

        return bool(Files(self._spark, self._lake).folders("events"))

    def now_and_then(self, often: timedelta) -> NowAndThen:
        return NowAndThen(self, often)


class NowAndThen:
    """Called whenever there is time; does it when it is due, at first when something came in."""

    def __init__(self, pipeline: Pipeline, often: timedelta) -> None:
        self._pipeline = pipeline
        self._often_s = often.total_seconds()
        self._due = time.monotonic()

    def __call__(self, stop: threading.Event) -> None:
        if time.monotonic() < self._due or stop.is_set():
            return
        if self._pipeline.has_begun():
            self._pipeline.once()
            self._due = time.monotonic() + self._often_s
