"""The lake: each event once, whoever is killed, whatever is put together meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from chasquimq import Job, Queue, Worker
from chasquimq.errors import ConfigError
from chasquimq.spark.lake.files import Files
from chasquimq.spark.lake.keep import keep
from chasquimq.spark.lake.table import found, read
from chasquimq.spark.place import read_place
from chasquimq.wire import Keys
from tests.servers import DialectServer
from tests.spark_redis.events import Events

Run = Callable[..., None]


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def run(spark: SparkSession, server: DialectServer, queue_name: str, lake: str) -> Run:
    """Bring in all that is there."""

    def bring(queues: str = queue_name, table: str = "events", **options: str) -> None:
        where = {"url": server.url, "queue": queues, **options}
        query = keep(spark, lake, where, table)
        assert query.awaitTermination(120)
        if error := query.exception():
            raise error

    return bring


@pytest.fixture
def events(server: DialectServer, queue_name: str) -> Iterator[Events]:
    yield Events(server, queue_name)
    server.client().delete(Keys(queue_name).events, Keys(queue_name).dlq)


def placed(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(rows, key=lambda row: (row[0], read_place(row[1])))


def ids(rows: DataFrame) -> list[tuple[str, str]]:
    found = rows.select("queue", "entry_id").collect()
    return placed((row.queue, row.entry_id) for row in found)


def entered(*days: str) -> list[str]:
    """The ms of noon of these days, as ids begin."""
    noon = (datetime.fromisoformat(f"{day}T12:00:00Z") for day in days)
    return [f"{moment.timestamp() * 1000:.0f}-*" for moment in noon]


def test_each_event_once_and_again_what_is_new(
    spark: SparkSession, lake: str, run: Run, events: Events
) -> None:
    rows = events.add(50)
    run()
    assert ids(read(spark, lake)) == rows
    rows += events.add(30)
    run()
    run()  # nothing new
    assert ids(read(spark, lake)) == rows


def test_what_a_worker_did_is_there_to_the_field(
    spark: SparkSession, lake: str, run: Run, server: DialectServer, queue_name: str
) -> None:
    async def handle(job: Job) -> None:
        if job.data == 2:
            raise ValueError("two")

    async def work() -> None:
        async with Queue(queue_name, redis_url=server.url) as queue:
            await queue.add_bulk([{"name": "count", "data": n} for n in range(3)])
            await queue.add("later", 3, delay_ms=1)
            worker = Worker(queue_name, handle, redis_url=server.url, burst=True, max_attempts=1)
            await worker.run()

    asyncio.run(work())
    run()
    run(table="dlq")
    told = Counter((row.event, row.name) for row in read(spark, lake).collect())
    told.pop(("drained", None), None)
    told.pop(("waiting", "later"), None)
    assert told == {
        ("active", "count"): 3,
        ("active", "later"): 1,
        ("completed", "count"): 2,
        ("completed", "later"): 1,
        ("failed", "count"): 1,
        ("dlq", "count"): 1,
        ("delayed", "later"): 1,
    }
    [dead] = read(spark, lake, "dlq").collect()
    assert (dead.name, dead.error_type, dead.error, dead.payload) == (
        "count",
        "ValueError",
        "two",
        "2",
    )


def test_days_and_queues_have_folders_of_their_own(
    spark: SparkSession, lake: str, run: Run, server: DialectServer, events: Events
) -> None:
    """A row of yesterday that comes today belongs to yesterday. Names are what they are."""
    others = [Events(server, f"{events.queue}{odd}") for odd in (" a=b/c:d%", "ü")]
    digits = Events(server, f"00{abs(hash(events.queue))}")
    old, new = entered("2026-11-01", "2026-11-02")
    rows = [one for some in (events, *others, digits) for one in some.add(2, at=old)]
    rows += events.add(1, at=new)
    run(",".join(one.queue for one in (events, *others, digits)))
    assert ids(read(spark, lake)) == placed(rows)
    days = {(row.queue, row.date) for row in read(spark, lake).collect()}
    assert (events.queue, date(2026, 11, 2)) in days
    assert (digits.queue, date(2026, 11, 1)) in days
    for one in (*others, digits):
        one.redis.delete(one.key)


def test_a_reader_opens_the_days_and_queues_that_it_asks_for(
    spark: SparkSession, lake: str, run: Run, server: DialectServer, events: Events
) -> None:
    first, second, third = entered("2026-11-01", "2026-11-02", "2026-11-03")
    rows = {day: events.add(3, at=day) for day in (first, second, third)}
    run()
    noon = datetime(2026, 11, 2, 12, tzinfo=UTC)
    assert ids(read(spark, lake, since=noon)) == rows[second] + rows[third]
    assert ids(read(spark, lake, until=noon)) == rows[first]
    later = read(spark, lake, since=noon + timedelta(milliseconds=1))
    assert ids(later) == rows[third]
    assert all("date=2026-11-01" not in path for path in later.inputFiles())
    assert ids(read(spark, lake, queues=["nobody"])) == []
    assert ids(read(spark, lake, queues=[events.queue], since=noon)) == rows[second] + rows[third]


def test_an_empty_lake_and_one_that_nobody_made(
    spark: SparkSession, lake: str, run: Run, events: Events
) -> None:
    assert read(spark, lake).count() == 0
    assert read(spark, lake, "dlq").columns[0] == "entry_id"
    run()
    assert read(spark, lake).count() == 0
    with pytest.raises(ConfigError, match="table"):
        read(spark, lake, "event")


def test_a_batch_that_is_run_again_changes_nothing(
    spark: SparkSession, lake: str, run: Run, events: Events
) -> None:
    """Killed between two of its folders, or before Spark noted that it was done."""
    first, second = entered("2026-11-01", "2026-11-02")
    rows = events.add(5, at=first) + events.add(5, at=second)
    run()
    files = Files(spark, lake)
    one, other = found(files, "events")
    files.remove(f"events/{other.path}")
    files.remove("_checkpoints/events/commits")  # the batch is not done
    kept = files.changed_ms(f"events/{one.path}")
    run()
    assert found(files, "events") == [one, other]
    assert files.changed_ms(f"events/{one.path}") == kept
    assert ids(read(spark, lake)) == rows
    assert files.folders("_staging") == []


def test_what_a_batch_left_half_written_is_no_part_of_the_lake(
    spark: SparkSession, lake: str, run: Run, events: Events
) -> None:
    rows = events.add(5)
    run()
    files = Files(spark, lake)
    [folder] = found(files, "events")
    half = read(spark, lake).drop("date", "batch")
    half.write.partitionBy("queue").parquet(files.at(f"_staging/events-{folder.writer}-1"))
    assert ids(read(spark, lake)) == rows
    rows += events.add(5)
    run()  # it is batch 1 itself
    assert ids(read(spark, lake)) == placed(rows)


def test_after_a_lost_checkpoint_each_event_is_there_once(
    spark: SparkSession, lake: str, run: Run, events: Events
) -> None:
    rows = events.add(20)
    run()
    Files(spark, lake).remove("_checkpoints/events")
    rows += events.add(5)
    run()
    assert ids(read(spark, lake)) == rows


def test_lost_events_end_the_run_and_are_told(
    spark: SparkSession, lake: str, run: Run, events: Events
) -> None:
    events.add(10)
    run()
    events.add(10)
    events.trim(5)
    with pytest.raises(PySparkException, match="CHASQUI_DATA_LOSS"):
        run()
    run(failOnDataLoss="false")
    assert read(spark, lake).count() == 15


def test_what_cannot_be_read_is_kept(
    spark: SparkSession, lake: str, run: Run, events: Events
) -> None:
    events.redis.xadd(events.key, {"e": "completed", "id": "a", "ts": "soon"})
    run()
    [row] = read(spark, lake).collect()
    assert row.job_id == "a" and row.ts is None and "ts" in row["_corrupt_record"].reason
