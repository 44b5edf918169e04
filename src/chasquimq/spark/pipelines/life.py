"""Events -> what became of each run and of each job.

A *run* is one call of a handler: from `active` to `completed` or `failed` of the same attempt. It
was *due* when its job was added, or its delay or backoff was over; from then on it waited. A
*job* is all that was told of one id in one queue.

Events of a job come from several processes, so their order is that of the stream (`entry_id`),
while how long something took is told by `ts`, the clock of whoever did it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from chasquimq.config import MAX_MS
from chasquimq.errors import ConfigError
from chasquimq.spark.pipelines.keep import entered

STUCK_AFTER = timedelta(hours=1)


def runs(events: DataFrame) -> DataFrame:
    """One row per run: queue, name, job_id, attempt, due_at, started_at, ended_at, wait_ms, run_ms,
    outcome, reason, at.

    `outcome` is completed, failed, lost (its worker died: another run of the job began, or it was
    buried) or running. `due_at` and `wait_ms` are null where nobody can tell: for runs after a
    crash, and those of a job that was brought back from the DLQ.
    """
    refuse_streams(events, "runs")
    end = f.col("next")
    ended = (end["attempt"] == f.col("attempt")) & end["event"].isin("completed", "failed")
    return (
        threaded(events)
        .select(
            "queue",
            "name",
            "job_id",
            "attempt",
            "due_at",
            f.col("moment").alias("started_at"),
            end["moment"].alias("ended_at"),
            "wait_ms",
            f.when(ended, end["duration_us"] / 1000).alias("run_ms"),
            f.when(end.isNull(), "running")
            .when(ended, end["event"])
            .otherwise("lost")
            .alias("outcome"),
            f.when(ended, end["reason"]).alias("reason"),
            "at",
        )
        .where(f.col("event") == "active")
    )


def threaded(events: DataFrame) -> DataFrame:
    """Events of jobs, and for each that begins a run when it was due, how long it waited, and what
    came next. What is threaded already stays as it is: who asks for several figures does it once,
    and keeps it."""
    if "wait_ms" in events.columns:
        return events
    job = Window.partitionBy("queue", f.coalesce("job_id", "entry_id"))
    before = job.orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    # Backwards, as Spark would look through all that is behind a row for each row anew.
    behind = job.orderBy(f.desc("place")).rowsBetween(Window.unboundedPreceding, -1)
    told = of_jobs(events).select(
        "*",
        f.last(_scheduled(), ignorenulls=True).over(before).alias("scheduled"),
        f.max(f.col("event") == "dlq").over(before).alias("was_dead"),
        f.last(_next(), ignorenulls=True).over(behind).alias("next"),
    )
    begins = f.col("event") == "active"
    return told.withColumn("due_at", f.when(begins, _due())).withColumn(
        "wait_ms", waited(f.col("due_at"), f.col("moment"))
    )


def lifecycle(
    events: DataFrame,
    *,
    now: datetime | Column | None = None,
    stuck_after: timedelta = STUCK_AFTER,
) -> DataFrame:
    """One row per job: queue, job_id, name, created_at, first_seen, first_start, starts, attempts,
    failures, retries, burials, state, due_at, last_seen, ended_at, total_ms, run_ms, reason, error,
    stuck.

    `state` is completed, dead, running, retrying, delayed or waiting. A job is *stuck* that has not
    ended, and of which nothing was told for `stuck_after`, counted from when it was due.
    """
    refuse_streams(events, "lifecycle")
    moment = now if isinstance(now, Column) else f.lit(now) if now else f.current_timestamp()
    jobs = (
        of_jobs(events)
        .where("job_id IS NOT NULL")
        .groupBy("queue", "job_id")
        .agg(*_told_of_a_job())
    )
    last, state = f.col("last"), _state()
    ended = state.isin("completed", "dead")
    since = f.greatest(last["moment"], last["due"])
    late = f.unix_micros(moment) - f.unix_micros(since)
    return jobs.select(
        "queue",
        "job_id",
        "name",
        "created_at",
        "first_seen",
        "first_start",
        "starts",
        "attempts",
        "failures",
        "retries",
        "burials",
        state.alias("state"),
        f.when(~ended, last["due"]).alias("due_at"),
        "last_seen",
        f.when(ended, last["moment"]).alias("ended_at"),
        f.when(ended, between_ms(f.coalesce("created_at", "first_seen"), last["moment"])).alias(
            "total_ms"
        ),
        "run_ms",
        last["reason"].alias("reason"),
        "error",
        (~ended & (late > f.lit(stuck_after // timedelta(microseconds=1)))).alias("stuck"),
    )


def between_ms(begin: Column, end: Column) -> Column:
    return (f.unix_micros(end) - f.unix_micros(begin)) / 1000


def waited(due: Column, start: Column) -> Column:
    """Clocks of two machines may differ: nobody waits for less than nothing."""
    return f.when(due.isNotNull(), f.greatest(f.lit(0.0), between_ms(due, start)))


def refuse_streams(events: DataFrame, what: str) -> None:
    if events.isStreaming:
        raise ConfigError(
            f"{what} looks at all events of a job, and a stream never has all of them: read the "
            "lake, as in chasquimq.spark.lake.table.read(spark, lake)"
        )


def of_jobs(events: DataFrame) -> DataFrame:
    """Events that are about a job, each with its `place` in the stream, when it entered that, `at`,
    and its `moment`."""
    if "place" in events.columns:
        return events
    at = entered(f.col("entry_id"))
    number = f.split_part("entry_id", f.lit("-"), f.lit(2)).cast("decimal(20,0)")
    return events.where(f.col("event") != "drained").select(
        "queue",
        "entry_id",
        "job_id",
        f.coalesce("name", f.lit("")).alias("name"),
        "event",
        "attempt",
        "created_at",
        "backoff_ms",
        "delay_ms",
        "duration_us",
        "reason",
        at.alias("at"),
        f.coalesce("ts", at).alias("moment"),
        f.struct(f.unix_millis(at).alias("ms"), number.alias("number")).alias("place"),
    )


# -- inside ----------------------------------------------------------------------------------------


def _later() -> Column:
    """When a job is due that was delayed, or shall run again. Anybody may write events: a number
    that no delay can be says nothing, and does not end the figures of all others."""
    told = f.when(f.col("event") == "retry-scheduled", f.col("backoff_ms")).when(
        f.col("event") == "delayed", f.col("delay_ms")
    )
    ms = f.when(told.between(0, MAX_MS), told)
    return f.timestamp_micros(f.unix_micros("moment") + ms * 1000)


def _scheduled() -> Column:
    later = _later()
    return f.when(later.isNotNull(), f.struct("attempt", later.alias("at")))


def _due() -> Column:
    """A first run is due with its job, or when its delay is over; a further one after its backoff,
    which was told with the number of that run."""
    scheduled = f.col("scheduled")
    first = f.when(~f.coalesce("was_dead", f.lit(False)), f.coalesce(scheduled["at"], "created_at"))
    again = f.when(scheduled["attempt"] == f.col("attempt"), scheduled["at"])
    return f.when(f.col("attempt") == 1, first).otherwise(again)


def _next() -> Column:
    """What ends a run, or shows that it has ended without a word."""
    ends = f.col("event").isin("completed", "failed", "active", "dlq")
    return f.when(ends, f.struct("event", "attempt", "moment", "duration_us", "reason"))


def _told_of_a_job() -> list[Column]:
    event = f.col("event")
    here = f.struct("event", "moment", _later().alias("due"), "reason")
    # A promotion is told behind the move, often when the job runs already: it says little.
    heard = f.struct((event != "waiting").alias("heard"), "place")
    failed = f.when(event == "failed", f.col("place"))
    return [
        f.max("name").alias("name"),
        f.min("created_at").alias("created_at"),
        f.min("moment").alias("first_seen"),
        f.min(f.when(event == "active", f.col("moment"))).alias("first_start"),
        f.count_if(event == "active").alias("starts"),
        f.max(f.when(event == "active", f.col("attempt"))).alias("attempts"),
        f.count_if(event == "failed").alias("failures"),
        f.count_if(event == "retry-scheduled").alias("retries"),
        f.count_if(event == "dlq").alias("burials"),
        f.max_by(here, heard).alias("last"),
        f.max("moment").alias("last_seen"),
        f.max(f.when(event == "waiting", f.col("place"))).alias("promoted"),
        f.max(f.when(event != "waiting", f.col("place"))).alias("moved"),
        (f.try_sum("duration_us") / 1000).alias("run_ms"),
        f.max_by(f.when(event == "failed", f.col("reason")), failed).alias("error"),
    ]


def _state() -> Column:
    last = f.col("last.event")
    promoted = f.col("promoted") > f.col("moved")
    return (
        f.when(last == "completed", "completed")
        .when(last == "dlq", "dead")
        .when(last == "active", "running")
        .when((last == "waiting") | promoted, "waiting")
        .when(last == "delayed", "delayed")
        .otherwise("retrying")
    )
