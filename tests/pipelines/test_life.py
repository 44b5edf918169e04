"""What became of each run and each job, told by their events."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from chasquimq import Job, Queue, RetryError, UnrecoverableError, Worker
from chasquimq.errors import ConfigError
from chasquimq.spark.lake.keep import keep
from chasquimq.spark.lake.table import read
from chasquimq.spark.pipelines import lifecycle, names, runs
from tests.pipelines.told import Told, at, shown
from tests.servers import DialectServer


def by_attempt(frame: DataFrame, job: str) -> dict[int, Any]:
    return {row.attempt: row for row in frame.where(f"job_id = '{job}'").collect()}


def test_a_run_waits_from_when_it_was_due(spark: SparkSession) -> None:
    told = Told()
    told.run(130, "now", 1, 20, created=100)
    told.say(0, "delayed", "later", delay_ms=500, created=0)
    told.say(505, "waiting", "later")
    told.run(510, "later", 1, 20, created=0)
    told.run(200, "again", 1, 50, created=190, reason="no")
    told.say(251, "retry-scheduled", "again", attempt=2, backoff_ms=1000)
    told.say(1260, "waiting", "again")
    told.run(1300, "again", 2, 10, created=190)
    found = runs(told.frame(spark))
    now, later = by_attempt(found, "now")[1], by_attempt(found, "later")[1]
    assert (now.due_at, now.wait_ms, now.run_ms, now.outcome) == (
        shown(100),
        30.0,
        20.0,
        "completed",
    )
    assert (later.due_at, later.wait_ms) == (shown(500), 10.0)
    again = by_attempt(found, "again")
    assert (again[1].wait_ms, again[1].outcome, again[1].reason) == (10.0, "failed", "no")
    assert (again[2].due_at, again[2].wait_ms, again[2].outcome) == (shown(1251), 49.0, "completed")
    assert again[1].ended_at == shown(250)


def test_runs_whose_worker_died_and_those_behind_them(spark: SparkSession) -> None:
    told = Told()
    told.say(10, "active", "lost", attempt=1, created=0)
    told.run(900, "lost", 2, 5, created=0)
    told.say(10, "active", "last", attempt=1, created=0)
    told.say(800, "dlq", "last", attempt=1, reason="retries_exhausted")
    told.say(20, "active", "runs", attempt=1, created=0)
    found = runs(told.frame(spark))
    lost = by_attempt(found, "lost")
    assert (lost[1].outcome, lost[1].run_ms, lost[1].ended_at) == ("lost", None, shown(900))
    assert (lost[2].outcome, lost[2].due_at, lost[2].wait_ms) == ("completed", None, None)
    assert by_attempt(found, "last")[1].outcome == "lost"
    running = by_attempt(found, "runs")[1]
    assert (running.outcome, running.ended_at) == ("running", None)


def test_a_job_that_came_back_from_the_dead_has_not_waited_since_it_was_made(
    spark: SparkSession,
) -> None:
    told = Told()
    told.run(10, "back", 1, 5, created=0, reason="no")
    told.say(16, "dlq", "back", attempt=1, reason="retries_exhausted")
    told.run(99_000, "back", 1, 5, created=0)
    found = runs(told.frame(spark)).orderBy("started_at").collect()
    assert [(row.outcome, row.wait_ms) for row in found] == [("failed", 10.0), ("completed", None)]
    [job] = lifecycle(told.frame(spark)).collect()
    assert (job.state, job.starts, job.burials, job.total_ms) == ("completed", 2, 1, 99_005.0)


def test_clocks_that_differ_make_nobody_wait_for_less_than_nothing(spark: SparkSession) -> None:
    told = Told()
    told.run(10, "early", 1, 5, created=60)
    [run] = runs(told.frame(spark)).collect()
    assert run.wait_ms == 0.0


def test_events_of_one_millisecond_are_in_the_order_of_the_stream(spark: SparkSession) -> None:
    """As numbers: 10 comes behind 9."""
    told = Told()
    for _ in range(9):
        told.say(0, "waiting", "other")
    told.run(0, "quick", 1, 0, created=0, reason="x")
    told.say(0, "retry-scheduled", "quick", attempt=2, backoff_ms=0)
    told.run(0, "quick", 2, 0, created=0)
    found = by_attempt(runs(told.frame(spark)), "quick")
    assert (found[1].outcome, found[2].outcome) == ("failed", "completed")


def test_the_state_of_a_job(spark: SparkSession) -> None:
    told = Told()
    told.run(10, "completed", 1, 5, created=0)
    told.run(10, "dead", 1, 5, created=0, reason="no")
    told.say(15, "dlq", "dead", attempt=1, reason="unrecoverable")
    told.say(10, "active", "running", attempt=1, created=0)
    told.say(11, "waiting", "running")  # told behind the move
    told.run(10, "retrying", 1, 5, created=0, reason="no")
    told.say(15, "retry-scheduled", "retrying", attempt=2, backoff_ms=60_000)
    told.run(10, "waiting", 1, 5, created=0, reason="no")
    told.say(15, "retry-scheduled", "waiting", attempt=2, backoff_ms=10)
    told.say(26, "waiting", "waiting")
    told.say(10, "delayed", "delayed", delay_ms=60_000)
    told.say(10, "waiting", "added")
    told.say(30, "dlq", None, None, reason="malformed")  # of no job
    told.say(31, "drained", None, None)
    jobs = {row.job_id: row for row in lifecycle(told.frame(spark), now=at(40)).collect()}
    names = ("completed", "dead", "running", "retrying", "waiting", "delayed")
    assert {job: row.state for job, row in jobs.items()} == {
        **{name: name for name in names},
        "added": "waiting",
    }
    done, dead, retrying = jobs["completed"], jobs["dead"], jobs["retrying"]
    assert (done.total_ms, done.run_ms, done.ended_at) == (15.0, 5.0, shown(15))
    assert (dead.reason, dead.error, dead.burials) == ("unrecoverable", "no", 1)
    assert (retrying.due_at, retrying.retries, retrying.ended_at) == (shown(60_015), 1, None)
    assert not any(row.stuck for row in jobs.values())
    hour = timedelta(hours=1)
    late = lifecycle(
        told.frame(spark), now=at(40) + hour, stuck_after=timedelta(minutes=59, seconds=30)
    )
    stuck = {row.job_id for row in late.collect() if row.stuck}
    assert stuck == {"running", "waiting", "added"}  # the others were due a minute later


def test_a_stream_never_has_all_events_of_a_job(spark: SparkSession, server: DialectServer) -> None:
    source = spark.readStream.format("chasqui").option("url", server.url).option("view", "events")
    events = source.option("queue", "mail").load()
    for pipeline in (runs, lifecycle):
        with pytest.raises(ConfigError, match="read the lake"):
            pipeline(events)


def test_what_a_worker_tells_is_what_its_handlers_saw(
    spark: SparkSession, server: DialectServer, queue_name: str, tmp_path: Path
) -> None:
    """A real worker, the lake, and the lifecycles of its jobs."""
    ran: dict[str, int] = {}

    async def handle(job: Job) -> None:
        ran[job.id] = ran.get(job.id, 0) + 1
        if job.name == "flaky" and job.attempt < 2:
            raise RetryError("soon", delay=1)
        if job.name == "bad":
            raise UnrecoverableError("never")

    async def work() -> None:
        async with Queue(queue_name, redis_url=server.url) as queue:
            for number in range(4):
                await queue.add("good", number)
                await queue.add("flaky", number)
                await queue.add("bad", number)
            await queue.add("late", 0, delay_ms=5)
            await Worker(queue_name, handle, redis_url=server.url, burst=True).run()

    asyncio.run(work())
    lake = str(tmp_path / "lake")
    query = keep(spark, lake, {"url": server.url, "queue": queue_name})
    assert query.awaitTermination(120)
    events = read(spark, lake)
    jobs = lifecycle(events).collect()
    assert {row.job_id: row.starts for row in jobs} == ran
    states = {(row.name, row.state, row.starts, row.stuck) for row in jobs}
    assert states == {
        ("good", "completed", 1, False),
        ("flaky", "completed", 3, False),
        ("bad", "dead", 1, False),
        ("late", "completed", 1, False),
    }
    done = runs(events)
    assert done.count() == sum(ran.values())
    assert done.where("wait_ms IS NULL OR wait_ms > 60000 OR run_ms IS NULL").count() == 0


@pytest.mark.parametrize("absurd", [2**63 - 1, -(2**63)])
def test_a_number_that_nothing_can_be_ends_no_figures(spark: SparkSession, absurd: int) -> None:
    """Whoever writes to Redis may write events; of those the rest is still true."""
    told = Told()
    told.run(0, "sound", 1, 5, created=0)
    told.say(10, "delayed", "odd", delay_ms=absurd)
    told.say(20, "active", "odd", attempt=1, created=10)
    told.say(30, "retry-scheduled", "odd", attempt=2, backoff_ms=absurd)
    for _ in range(2):
        told.say(40, "completed", "odd", attempt=2, duration_us=absurd)
    frame = told.frame(spark)
    rows = {row.job_id: row for row in lifecycle(frame).collect()}
    assert (rows["sound"].state, rows["sound"].run_ms) == ("completed", 5.0)
    assert (rows["odd"].state, rows["odd"].run_ms) == ("completed", None)
    waits = {row.job_id: row.wait_ms for row in runs(frame).collect()}
    assert waits == {"sound": 0.0, "odd": 10.0}
    [figures] = names(frame).collect()
    assert (figures.started, figures.completed) == (2, 3)
