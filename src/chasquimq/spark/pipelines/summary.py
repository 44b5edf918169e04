"""Events and dead jobs -> all that a report shows, as plain rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from chasquimq.spark.pipelines.cluster import triage
from chasquimq.spark.pipelines.life import STUCK_AFTER, lifecycle, threaded
from chasquimq.spark.pipelines.window import compare, depth, heat, names, punctuality, rollup
from chasquimq.spark.report.data import KEYS, ReportData, Rows
from chasquimq.spark.row import plain

WINDOWS = 240  # about so many on the page
LENGTHS = tuple(
    timedelta(seconds=seconds)
    for seconds in (1, 2, 5, 10, 30, 60, 120, 300, 900, 1_800, 3_600, 10_800, 21_600, 86_400)
)
MOST_NAMES, MOST_CLUSTERS, MOST_STUCK = 200, 50, 100

Stretch = tuple[datetime, datetime]


def report(
    events: DataFrame,
    dead: DataFrame | None = None,
    *,
    title: str = "ChasquiMQ",
    every: timedelta | None = None,
    since: datetime | None = None,
    now: datetime | None = None,
    stuck_after: timedelta = STUCK_AFTER,
    deploy: tuple[Stretch, Stretch] | None = None,
    facts: Mapping[str, str | int | float] | None = None,
    warnings: Iterable[str] = (),
) -> ReportData:
    """Runs several jobs over the events, which are put in order once and kept on disk meanwhile.

    `every`: how long a window is; else so long that the page has some two hundred. `deploy`: two
    stretches of time to compare, before and after.
    """
    made_at = now or datetime.now(UTC)
    told = threaded(events).persist(StorageLevel.DISK_ONLY)
    try:
        shown = told if since is None else told.where(f.col("at") >= f.lit(since))
        begin, end = _stretch(shown, made_at)
        length = every or length_for(end - begin)
        totals = _totals(events, told, since)
        jobs = lifecycle(told, now=made_at, stuck_after=stuck_after)
        stuck = jobs.where("stuck").withColumnRenamed("last_seen", "since")
        return ReportData(
            title=title,
            made_at=made_at,
            begin=begin,
            end=end,
            every_ms=length // timedelta(milliseconds=1),
            queues=tuple(row["queue"] for row in totals),
            facts=dict(facts or {}),
            windows=_rows("windows", rollup(told, length, by=("queue",), since=since)),
            names=_rows(
                "names", names(told, since=since).orderBy(f.desc("started")).limit(MOST_NAMES)
            ),
            heat=_rows("heat", heat(told, since=since)),
            depth=_rows("depth", depth(told, length, since=since).orderBy("queue", "at")),
            clusters=_rows("clusters", triage(dead).limit(MOST_CLUSTERS)) if dead else (),
            schedules=_rows("schedules", punctuality(told, since=since)),
            stuck=_rows("stuck", stuck.orderBy("since").limit(MOST_STUCK)),
            deploy=_rows("deploy", compare(told, *deploy)) if deploy else (),
            totals=totals,
            warnings=tuple(warnings),
        )
    finally:
        told.unpersist()


def length_for(span: timedelta) -> timedelta:
    """A round length that makes about so many windows."""
    return next((one for one in LENGTHS if span / one <= WINDOWS), LENGTHS[-1])


def _stretch(told: DataFrame, made_at: datetime) -> Stretch:
    """From the first to the last event; a page of nothing is of this moment."""
    [row] = told.agg(f.min("at").alias("begin"), f.max("at").alias("end")).collect()
    found = plain(row)
    return found["begin"] or made_at, found["end"] or made_at


def _totals(events: DataFrame, told: DataFrame, since: datetime | None) -> Rows:
    """Per queue; `events` are counted as they came, so that somebody counts twice."""
    at = f.lit(True) if since is None else f.col("at") >= f.lit(since)
    counted = events.where(at).groupBy("queue").agg(f.count("*").alias("events"))
    jobs = told.where(at).groupBy("queue").agg(f.count_distinct("job_id").alias("jobs"))
    figures = names(told, by=("queue",), since=since)
    joined = counted.join(jobs, "queue", "left").join(figures, "queue", "left")
    return _rows("totals", joined.na.fill(0).orderBy("queue"))


def _rows(table: str, frame: DataFrame) -> Rows:
    columns = [name for name in KEYS[table] if name in frame.columns]
    return tuple(map(plain, frame.select(*columns).collect()))
