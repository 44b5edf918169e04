"""Events -> figures over time: how many, how fast, how long, by queue, name and window.

`completed`, `failed` and so on are numbers of events in a window, which is that of the server's
clock (`at`). Rates are of runs that ended: failure_rate = failed / (completed + failed), retry_rate
= retried / (completed + failed). Percentiles are Spark's `approx_percentile`, within 0.01 % of the
rank. Events in front of `since` are not counted: they tell when later runs were due, so give a day
or so of them. What each figure means: docs/reference/spark/figures.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from chasquimq.errors import ConfigError
from chasquimq.spark.pipelines.keep import day
from chasquimq.spark.pipelines.life import lifecycle, of_jobs, runs, threaded, waited

MINUTE = timedelta(minutes=1)
LATE = timedelta(minutes=10)  # events that come later than that into a stream of windows are left
COUNTS = {
    "started": "active",
    "completed": "completed",
    "failed": "failed",
    "retried": "retry-scheduled",
    "buried": "dlq",
    "delayed": "delayed",
}
SHARES = (0.5, 0.95, 0.99)
EXACTLY = 10_000  # the accuracy of approx_percentile: a rank is right to one in so many


def rollup(
    events: DataFrame,
    every: timedelta = MINUTE,
    *,
    by: Sequence[str] = ("queue", "name"),
    since: datetime | None = None,
) -> DataFrame:
    """One row per window and group: window_start, window_end, the group, how many of each outcome,
    per_second (completed), failure_rate, retry_rate, and p50, p95 and p99 of run and wait in ms.

    Of a stream, waiting is known for first runs only, counted from when the job was added, though
    it may have been delayed; windows close ten minutes behind the latest event.
    """
    _check_by(by)
    if every < timedelta(milliseconds=1):
        raise ConfigError(f"every must be at least a millisecond, got {every}")
    told = _with_waits(events, since)
    if events.isStreaming:
        told = told.withWatermark("at", f"{LATE // timedelta(seconds=1)} seconds")
    length = f"{every // timedelta(milliseconds=1)} milliseconds"
    grouped = told.groupBy(f.window("at", length), *by)
    seconds = every / timedelta(seconds=1)
    return grouped.agg(*_figures()).select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        *by,
        *COUNTS,
        (f.col("completed") / seconds).alias("per_second"),
        *_rates(),
        *_percentile_names(),
    )


def names(
    events: DataFrame,
    *,
    by: Sequence[str] = ("queue", "name"),
    since: datetime | None = None,
) -> DataFrame:
    """The same over the whole time; `by=("queue",)` for queues, `()` for all there is."""
    _check_by(by)
    return _totals(_with_waits(events, since), by)


def heat(events: DataFrame, *, since: datetime | None = None) -> DataFrame:
    """When jobs wait: started, wait_p50_ms and so on per weekday (1 is Monday) and hour, in UTC."""
    hours = _with_waits(events, since).groupBy(
        (f.weekday(day(f.col("at"))) + 1).alias("weekday"), _hour(f.col("at")).alias("hour")
    )
    return hours.agg(f.count_if(f.col("event") == "active").alias("started"), *_percentiles("wait"))


def depth(
    events: DataFrame, every: timedelta = MINUTE, *, since: datetime | None = None
) -> DataFrame:
    """How many jobs waited and ran at the end of each window, per queue: queue, at, waiting,
    running. Counted are jobs that were told of: one that was added without a delay is seen when it
    starts (or at once, with `Queue(waiting_events=True)`)."""
    length = f"{every // timedelta(milliseconds=1)} milliseconds"
    steps = _steps(runs(events)).unionByName(_still_due(events))
    windows = steps.where(f.col("moment").isNotNull()).groupBy(
        "queue", f.window("moment", length)["end"].alias("at")
    )
    change = windows.agg(f.sum("waiting").alias("waiting"), f.sum("running").alias("running"))
    so_far = Window.partitionBy("queue").orderBy("at").rowsBetween(Window.unboundedPreceding, 0)
    found = change.select(
        "queue",
        "at",
        f.greatest(f.lit(0), f.sum("waiting").over(so_far)).alias("waiting"),
        f.greatest(f.lit(0), f.sum("running").over(so_far)).alias("running"),
    )
    return _from(found, since)


def punctuality(events: DataFrame, *, since: datetime | None = None) -> DataFrame:
    """How late schedules fire: queue, key, fires, late_p50_ms, late_p95_ms, late_max_ms. The moment
    that a fire was meant for stands in its job's id, `<key>@<ms>`; it is late by how much later its
    first run began."""
    pattern = r"^(.+)@(\d{12,14})$"
    first = _from(runs(events), since).where(
        (f.col("attempt") == 1) & f.col("job_id").rlike(pattern)
    )
    meant = f.timestamp_millis(f.regexp_extract("job_id", pattern, 2).cast("bigint"))
    fires = first.groupBy(
        "queue", f.regexp_extract("job_id", pattern, 1).alias("key"), "job_id"
    ).agg(f.min(waited(meant, f.col("started_at"))).alias("late_ms"))
    late = f.percentile_approx("late_ms", list(SHARES[:2]), EXACTLY)
    return (
        fires.groupBy("queue", "key")
        .agg(f.count("*").alias("fires"), late.alias("late"), f.max("late_ms").alias("late_max_ms"))
        .select(
            "queue",
            "key",
            "fires",
            f.col("late")[0].alias("late_p50_ms"),
            f.col("late")[1].alias("late_p95_ms"),
            "late_max_ms",
        )
    )


def compare(
    events: DataFrame,
    before: tuple[datetime, datetime],
    after: tuple[datetime, datetime],
    *,
    by: Sequence[str] = ("queue", "name"),
) -> DataFrame:
    """What a deploy changed: the figures of `names` in two stretches of time side by side, each
    with `before_` or `after_` in front, per_second as well. A name that was not there in one of
    them has nulls."""
    _check_by(by)
    told, sides = _with_waits(events, None), []
    for side, (begin, end) in (("before", before), ("after", after)):
        if begin >= end:
            raise ConfigError(f"{side} ends before it begins: {begin} to {end}")
        within = (f.col("at") >= f.lit(begin)) & (f.col("at") < f.lit(end))
        rate = f.col("completed") / ((end - begin) / timedelta(seconds=1))
        these = _totals(told.where(within), by).withColumn("per_second", rate)
        figures = (f.col(one).alias(f"{side}_{one}") for one in these.columns if one not in by)
        sides.append(these.select(*by, *figures))
    return sides[0].join(sides[1], list(by), "full_outer")


# -- inside ----------------------------------------------------------------------------------------


def _check_by(by: Sequence[str]) -> None:
    if not set(by) <= {"queue", "name"}:
        raise ConfigError(f"by takes queue and name, got {', '.join(by)}")


def _with_waits(events: DataFrame, since: datetime | None) -> DataFrame:
    """Events that are counted, with `at`, and `wait_ms` where a run begins."""
    columns = ("queue", "name", "event", "duration_us", "at", "wait_ms")
    if not events.isStreaming:
        counted = threaded(events).where(f.col("event").isin(*COUNTS.values()))
        return _from(counted, since).select(*columns)
    first = (f.col("event") == "active") & (f.col("attempt") == 1)
    waits = f.when(first, waited(f.col("created_at"), f.col("moment")))
    counted = of_jobs(events).where(f.col("event").isin(*COUNTS.values()))
    return counted.withColumn("wait_ms", waits).select(*columns)


def _hour(moment: Column) -> Column:
    """Of the day, in UTC, whatever time zone the session has."""
    return (f.floor(f.unix_seconds(moment) / 3_600) % 24).cast("int")


def _from(rows: DataFrame, since: datetime | None) -> DataFrame:
    return rows if since is None else rows.where(f.col("at") >= f.lit(since))


def _totals(told: DataFrame, by: Sequence[str]) -> DataFrame:
    figures = told.groupBy(*by).agg(*_figures())
    return figures.select(*by, *COUNTS, *_rates(), *_percentile_names())


def _figures() -> list[Column]:
    counts = [f.count_if(f.col("event") == kind).alias(name) for name, kind in COUNTS.items()]
    return [*counts, *_percentiles("run"), *_percentiles("wait")]


def _percentiles(what: str) -> list[Column]:
    ms = f.col("wait_ms") if what == "wait" else f.col("duration_us") / 1000
    return [
        f.percentile_approx(ms, share, EXACTLY).alias(f"{what}_p{share * 100:.0f}_ms")
        for share in SHARES
    ]


def _percentile_names() -> list[str]:
    return [f"{what}_p{share * 100:.0f}_ms" for what in ("run", "wait") for share in SHARES]


def _rates() -> list[Column]:
    ended = f.col("completed") + f.col("failed")
    return [
        f.try_divide("failed", ended).alias("failure_rate"),
        f.try_divide("retried", ended).alias("retry_rate"),
    ]


def _steps(done: DataFrame) -> DataFrame:
    """Each run as steps up and down: it waits, it runs, it has ended."""
    up, down, none = f.lit(1), f.lit(-1), f.lit(0)
    known = f.coalesce("due_at", "started_at")
    moments = f.array(
        f.struct(f.least(known, "started_at").alias("moment"), up.alias("w"), none.alias("r")),
        f.struct(f.col("started_at").alias("moment"), down.alias("w"), up.alias("r")),
        f.struct(f.col("ended_at").alias("moment"), none.alias("w"), down.alias("r")),
    )
    steps = done.select("queue", f.explode(moments).alias("step"))
    return steps.select(
        "queue",
        f.col("step.moment").alias("moment"),
        f.col("step.w").alias("waiting"),
        f.col("step.r").alias("running"),
    )


def _still_due(events: DataFrame) -> DataFrame:
    """Jobs that were due, and have not begun."""
    jobs = lifecycle(events).where(f.col("state").isin("waiting", "retrying", "delayed"))
    due = jobs.select("queue", f.coalesce("due_at", "last_seen").alias("moment"))
    waiting = due.where(f.col("moment") <= f.current_timestamp())
    return waiting.select("queue", "moment", f.lit(1).alias("waiting"), f.lit(0).alias("running"))
