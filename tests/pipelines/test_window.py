"""Figures over time, beside the same worked out one by one."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from chasquimq.errors import ConfigError
from chasquimq.spark.pipelines import compare, depth, heat, names, punctuality, rollup
from chasquimq.spark.pipelines.window import COUNTS
from tests.pipelines.told import Told, at, shown
from tests.servers import DialectServer
from tests.spark_redis.events import Events

MINUTE_MS = 60_000


def busy(seed: int, jobs: int = 300) -> tuple[Told, dict[str, float]]:
    """Jobs of three names that wait, fail and are retried; and how long each first run waited."""
    dice, told, waits = random.Random(seed), Told(), {}
    for number in range(jobs):
        job, name = f"j{number}", dice.choice(["a", "b", ""])
        created = dice.randrange(600_000)
        begin = due = created
        if number % 7 == 0:
            told.say(created, "delayed", job, name or None, delay_ms=5_000)
            due = created + 5_000
        begin = due + dice.randrange(2_000)
        waits[job] = float(begin - due)
        for attempt in (1, 2, 3):
            took = dice.randrange(1, 300)
            more = {"reason": "no"} if dice.random() < 0.3 else {}
            told.run(begin, job, attempt, took, created=created, name=name or None, **more)
            if not more:
                break
            if attempt == 3:
                told.say(begin + took, "dlq", job, name or None, attempt=3, reason="exhausted")
                break
            told.say(begin + took, "retry-scheduled", job, name or None, attempt=attempt + 1,
                     backoff_ms=1_000)  # fmt: skip
            begin += took + 1_000 + dice.randrange(100)
    return told, waits


def minute_of(row: dict[str, Any]) -> int:
    return int(row["entry_id"].partition("-")[0]) // MINUTE_MS * MINUTE_MS


def by_key(frame: DataFrame, *keys: str) -> dict[Any, Any]:
    found = {tuple(row[key] for key in keys): row for row in frame.collect()}
    return {key[0] if len(keys) == 1 else key: row for key, row in found.items()}


def rank(values: list[float], share: float) -> float:
    """The smallest that is not less than that share of them."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def test_counts_and_rates_of_each_window(spark: SparkSession) -> None:
    told, _ = busy(1)
    wanted: dict[tuple[Any, str], Counter[str]] = defaultdict(Counter)
    for row in told.rows:
        moment = datetime.fromtimestamp(minute_of(row) / 1000)  # noqa: DTZ006 as rows have it
        wanted[moment, row["name"] or ""][row["event"]] += 1
    found = by_key(rollup(told.frame(spark)), "window_start", "name")
    assert found.keys() == wanted.keys()
    for key, counts in wanted.items():
        row, ended = found[key], counts["completed"] + counts["failed"]
        assert {name: row[name] for name in COUNTS} == {
            name: counts[kind] for name, kind in COUNTS.items()
        }
        assert row.per_second == pytest.approx(counts["completed"] / 60)
        assert row.failure_rate == (counts["failed"] / ended if ended else None)
        assert row.retry_rate == (counts["retry-scheduled"] / ended if ended else None)
        assert row.window_end - row.window_start == timedelta(minutes=1)


def test_percentiles_of_runs_and_waits(spark: SparkSession) -> None:
    told, waits = busy(2)
    frame = told.frame(spark)
    [all_of_it] = names(frame, by=()).collect()
    took = [row["duration_us"] / 1000 for row in told.rows if "duration_us" in row]
    for share, figure in ((0.5, "run_p50_ms"), (0.95, "run_p95_ms"), (0.99, "run_p99_ms")):
        assert all_of_it[figure] == rank(took, share)
    first = frame.where("attempt = 1 OR event = 'delayed'")  # of which we know the waits
    [firsts] = names(first, by=()).collect()
    for share, figure in ((0.5, "wait_p50_ms"), (0.95, "wait_p95_ms"), (0.99, "wait_p99_ms")):
        assert firsts[figure] == rank(list(waits.values()), share)
    assert all_of_it.wait_p99_ms < 2_000  # and none of them from when a job was made


def test_by_queue_by_name_and_in_longer_windows(spark: SparkSession) -> None:
    mail, other = Told("mail"), Told("other")
    for number in range(10):
        mail.run(number * 60_000, f"m{number}", 1, 5, created=0)
        other.run(number * 60_000, f"o{number}", 1, 5, created=0, name="b")
    both = mail.frame(spark).unionByName(other.frame(spark))
    found = by_key(rollup(both, timedelta(minutes=5), by=("queue",)), "queue", "window_start")
    assert {key: row.completed for key, row in found.items()} == {
        (queue, shown(start)): 5 for queue in ("mail", "other") for start in (0, 300_000)
    }
    assert by_key(names(both, by=("name",)), "name")["b"].completed == 10
    with pytest.raises(ConfigError, match="by takes queue and name"):
        rollup(both, by=("job_id",))
    with pytest.raises(ConfigError, match="at least a millisecond"):
        rollup(both, timedelta(0))


def test_what_has_no_job_is_counted_too(spark: SparkSession) -> None:
    told = Told()
    for _ in range(3):
        told.say(0, "dlq", None, None, attempt=0, reason="malformed")
        told.say(0, "drained", None, None)
    [row] = rollup(told.frame(spark)).collect()
    assert (row.name, row.buried, row.started, row.failure_rate) == ("", 3, 0, None)


def test_when_jobs_wait(spark: SparkSession) -> None:
    told = Told()
    hour = 3_600_000
    told.run(100, "monday nine", 1, 5, created=0)
    told.run(24 * hour + 5 * hour + 300, "tuesday two", 1, 5, created=24 * hour + 5 * hour)
    found = by_key(heat(told.frame(spark)), "weekday", "hour")
    assert {key: (row.started, row.wait_p95_ms) for key, row in found.items()} == {
        (1, 9): (1, 100.0),
        (2, 14): (1, 300.0),
    }


def test_an_hour_is_one_of_utc_whatever_zone_the_session_has(spark: SparkSession) -> None:
    told, zone = Told(), str(spark.conf.get("spark.sql.session.timeZone"))
    for hour in range(48):
        told.run(hour * 3_600_000 + 1, f"of hour {hour}", 1, 5, created=hour * 3_600_000)
    frame = told.frame(spark)
    wanted = heat(frame).collect()
    try:
        for name in ("America/New_York", "Asia/Kolkata"):
            spark.conf.set("spark.sql.session.timeZone", name)
            assert sorted(heat(frame).collect()) == sorted(wanted), name
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert {(row.weekday, row.hour) for row in wanted} >= {(1, 9), (1, 23), (2, 0), (3, 8)}


def test_how_many_wait_and_run(spark: SparkSession) -> None:
    told = Told()
    told.run(90_000, "a", 1, 60_000, created=30_000)  # waits, then runs
    told.say(70_000, "active", "b", attempt=1, created=65_000)  # does not end
    told.say(0, "delayed", "c", delay_ms=200_000)  # is due in the fourth, and nobody starts it
    found = by_key(depth(told.frame(spark)), "at")
    assert {key: (row.waiting, row.running) for key, row in found.items()} == {
        shown(60_000): (1, 0),
        shown(120_000): (0, 2),
        shown(180_000): (0, 1),
        shown(240_000): (1, 1),
    }


def test_how_late_schedules_fire(spark: SparkSession) -> None:
    told = Told()
    for number in range(4):
        moment = int(at(number * 1000).timestamp() * 1000)
        late = (10, 20, 30, 400)[number]
        told.run(number * 1000 + late, f"tick::every:1000@{moment}", 1, 1, created=number * 1000)
    told.run(0, "a@b", 1, 1, created=0)
    told.run(9_000, told.rows[0]["job_id"], 2, 1, created=0)  # a second run is no fire
    [row] = punctuality(told.frame(spark)).collect()
    assert row.asDict() == {
        "queue": "mail",
        "key": "tick::every:1000",
        "fires": 4,
        "late_p50_ms": 20.0,
        "late_p95_ms": 400.0,
        "late_max_ms": 400.0,
    }


def test_what_a_deploy_changed(spark: SparkSession) -> None:
    told = Told()
    for number in range(10):
        told.run(number * 1000, f"old{number}", 1, 100, created=number * 1000 - 50)
        bad = {"reason": "no"} if number < 5 else {}
        told.run(60_000 + number * 1000, f"new{number}", 1, 400, created=0, **bad)
    told.run(61_000, "fresh", 1, 1, created=61_000, name="b")
    spans = (at(0), at(30_000)), (at(60_000), at(90_000))
    found = by_key(compare(told.frame(spark), *spans), "name")
    a, b = found["a"], found["b"]
    assert (a.before_completed, a.after_completed, a.after_failed) == (10, 5, 5)
    assert (a.before_run_p95_ms, a.after_run_p95_ms) == (100.0, 400.0)
    assert (a.before_failure_rate, a.after_failure_rate) == (0.0, 0.5)
    assert a.before_per_second == pytest.approx(1 / 3)
    assert (b.before_completed, b.after_completed) == (None, 1)
    with pytest.raises(ConfigError, match="before ends before it begins"):
        compare(told.frame(spark), (at(9), at(0)), spans[1])


def test_a_run_that_was_due_before_the_stretch_has_waited_since_then(spark: SparkSession) -> None:
    told = Told()
    told.run(0, "a", 1, 10, created=0, reason="no")
    told.say(10, "retry-scheduled", "a", attempt=2, backoff_ms=59_000)
    told.run(60_000, "a", 2, 10, created=0)
    [row] = compare(told.frame(spark), (at(0), at(30_000)), (at(30_000), at(90_000))).collect()
    assert row.after_wait_p50_ms == 990.0


def test_a_stream_of_windows(
    spark: SparkSession, server: DialectServer, queue_name: str, tmp_path: Path
) -> None:
    """Windows of a stream close behind the watermark; counts are those of the events."""
    events = Events(server, queue_name)
    old, new = (f"{at(ms).timestamp() * 1000:.0f}-*" for ms in (0, 3_600_000))
    events.add(5, at=old)
    events.redis.xadd(events.key, {"e": "active", "id": "a", "ts": "1", "attempt": "1"}, id=old)
    events.redis.xadd(events.key, {"e": "completed", "id": "a", "ts": "2", "attempt": "1",
                                   "duration_us": "2000"}, id=old)  # fmt: skip
    events.redis.xadd(events.key, {"e": "active", "id": "b", "ts": "3", "attempt": "1"}, id=new)
    source = spark.readStream.format("chasqui").option("url", server.url).option("view", "events")
    windows = rollup(source.option("queue", queue_name).load())
    writing = windows.writeStream.format("memory").queryName("windows").outputMode("append")
    writing = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    assert writing.start().awaitTermination(120)
    [row] = spark.table("windows").collect()
    assert (row.started, row.completed, row.run_p50_ms, row.window_start) == (1, 1, 2.0, shown(0))
    events.redis.delete(events.key)
