"""`spark.read`, through Spark: every view is what queues and workers put there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from chasquimq.wire import Keys
from tests.engine.desk import Desk
from tests.servers import DialectServer
from tests.spark_redis.reading import HOUR, fill_every_view

PUSH = "spark.sql.python.filterPushdown.enabled"
Load = Callable[..., DataFrame]


@pytest.fixture
def load(spark: SparkSession, server: DialectServer, queue_name: str) -> Load:
    def read(**options: Any) -> DataFrame:
        given = {"queue": queue_name, "url": server.url, **options}
        return spark.read.format("chasqui").options(**given).load()

    return read


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSH, "true")
    yield
    spark.conf.set(PUSH, "false")


async def test_every_view(
    spark: SparkSession, dialect_server: DialectServer, queue_name: str
) -> None:
    desk = Desk(dialect_server, queue_name)
    before = datetime.now(UTC) - timedelta(seconds=5)
    made = await fill_every_view(desk)
    after = datetime.now(UTC) + timedelta(seconds=5)

    def rows(view: str) -> list[dict[str, Any]]:
        options = {"queue": queue_name, "url": dialect_server.url, "view": view}
        found = spark.read.format("chasqui").options(**options).load()
        told = [row.asDict(recursive=True) for row in found.collect()]
        for row in told:
            assert (row.pop("queue"), row.pop("_corrupt_record")) == (queue_name, None)
        return told

    def is_now(moment: datetime) -> bool:
        return before <= moment.astimezone(UTC) <= after

    taken, waits = rows("jobs")  # who has a job leaves it in its stream until it is done
    assert (taken["id"], taken["name"]) == (made["pending"].id, "mail")
    assert (waits["id"], waits["name"], waits["attempt"]) == (made["waiting"].id, None, 0)
    assert json.loads(waits["payload"]) == {"n": 4}
    assert (waits["max_attempts"], waits["backoff"]["delay_ms"]) == (7, 50)
    assert is_now(waits["created_at"]) and is_now(waits["enqueued_at"])

    [pending] = rows("pending")
    assert {name: pending[name] for name in taken} == taken
    assert (pending["consumer"], pending["delivery_count"]) == ("ann", 1)
    assert 0 <= pending["idle_ms"] < 600_000

    [later] = rows("delayed")
    assert (later["id"], later["payload"]) == (made["later"].id, "[5]")
    assert is_now(later["run_at"] - HOUR)

    [dead] = rows("dlq")
    assert (dead["id"], dead["name"], dead["payload"]) == (made["dead"].id, "doomed", '{"n":2}')
    assert (dead["reason"], dead["attempt"]) == ("retries_exhausted", 1)
    assert (dead["error_type"], dead["error"]) == ("ValueError", "no such address")
    assert is_now(dead["failed_at"])

    [result] = rows("results")
    assert (result["job_id"], result["value"]) == (made["done"].id, '{"sent":1}')
    assert result["ttl_ms"] > 0

    events = [(row["event"], row["job_id"]) for row in rows("events")]
    assert sorted(events) == sorted((one.name, one.job_id) for one in desk.events())
    assert ("completed", made["done"].id) in events

    specs = {row["job_name"]: row for row in rows("repeatables")}
    assert (specs["tick"]["pattern"], specs["tick"]["limit"]) == ("every:60000", 9)
    assert (specs["report"]["pattern"], specs["report"]["tz"]) == ("0 6 * * *", "Europe/Berlin")
    assert all(row["next_fire"].astimezone(UTC) > before for row in specs.values())


def test_several_queues_in_parts(
    load: Load, server: DialectServer, queue_name: str, spark: SparkSession
) -> None:
    """The parts are shared out by size, and every row comes once; a queue that is not there, and
    one whose last job went, are empty."""
    names = [f"{queue_name}-{kind}" for kind in ("large", "small", "drained", "absent")]
    large, small, drained, _ = (Desk(server, name) for name in names)
    for desk, many in ((large, 60), (small, 5), (drained, 1)):
        for number in range(many):
            desk.put(f"{desk.name}:{number}", number)
    drained.redis.xtrim(drained.keys.stream, maxlen=0)
    found = load(queue=", ".join(names), minPartitions=4)
    assert found.rdd.getNumPartitions() == 4
    assert sorted((row.queue, row.id, row.payload) for row in found.collect()) == sorted(
        (desk.name, f"{desk.name}:{number}", str(number))
        for desk, many in ((large, 60), (small, 5))
        for number in range(many)
    )
    assert load(queue=f"{names[2]},{names[3]}").collect() == []


def test_a_schema_of_ones_own_in_sql(
    load: Load, server: DialectServer, queue_name: str, spark: SparkSession
) -> None:
    Desk(server, queue_name).put("job-1", {"total": 1.5, "note": "not asked for"}, "mail")
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW own (id STRING, payload STRUCT<total: DOUBLE>) "
        f"USING chasqui OPTIONS (queue '{queue_name}', url '{server.url}')"
    )
    [row] = spark.sql("SELECT * FROM own").collect()
    assert row.asDict(recursive=True) == {"id": "job-1", "payload": {"total": 1.5}}


def test_what_cannot_be_read_so_is_refused(load: Load, queue_name: str) -> None:
    for options, message in (
        ({"veiw": "jobs"}, "veiw.*did you mean 'view'"),
        ({"view": "job"}, "view must be one of jobs, pending"),
        ({"startingOffsets": "latest"}, r"startingOffsets=latest is for spark\.readStream"),
        ({"queue": ""}, "queue"),
    ):
        with pytest.raises(PySparkException, match=message):
            load(**options).collect()


# -- push-down: whoever looks at more than was asked for meets what it cannot read -----------------


@pytest.mark.usefixtures("pushing")
def test_other_queues_are_not_looked_at(load: Load, server: DialectServer, queue_name: str) -> None:
    other = f"{queue_name}-other"
    Desk(server, queue_name).put("mine", 1)
    server.client().rpush(Keys(other).stream, "not a stream")
    both = f"{queue_name},{other}"
    mine = load(queue=both, pushdown="true").where(f"queue = '{queue_name}'")
    assert [row.id for row in mine.collect()] == ["mine"]
    with pytest.raises(PySparkException, match="holds a list"):
        load(queue=both).where(f"queue = '{queue_name}'").collect()


@pytest.mark.usefixtures("pushing")
def test_other_entries_are_not_fetched(load: Load, server: DialectServer, queue_name: str) -> None:
    desk = Desk(server, queue_name)
    ids = [desk.put(f"job-{at}", at).decode() for at in range(9)]
    desk.redis.xadd(desk.keys.stream, {"d": b"\xc1"}, id="9999999999999-0")

    def found(condition: str, pushdown: str = "true") -> list[str]:
        frame = load(pushdown=pushdown, mode="FAILFAST").where(condition)
        return sorted(row.id for row in frame.collect())

    wanted = f"entry_id IN ('{ids[2]}', '{ids[5]}', '1-1')"
    assert found(wanted) == ["job-2", "job-5"]
    assert found("enqueued_at < '2200-01-01' AND name IS NULL") == [f"job-{at}" for at in range(9)]
    for condition in (wanted, "enqueued_at < '2200-01-01'"):
        with pytest.raises(PySparkException, match="CMQ-302"):
            found(condition, pushdown="false")


@pytest.mark.usefixtures("pushing")
async def test_jobs_of_later_are_not_fetched(
    load: Load, server: DialectServer, queue_name: str
) -> None:
    desk = Desk(server, queue_name)
    async with desk.queue() as queue:
        soon = await queue.add("", 1, delay=HOUR)
    desk.redis.zadd(desk.keys.delayed, {b"\xc1": 9_999_999_999_999})
    condition = "run_at < '2200-01-01'"
    found = load(view="delayed", mode="FAILFAST", pushdown="true").where(condition)
    assert [row.id for row in found.collect()] == [soon.id]
    with pytest.raises(PySparkException, match="CMQ-302"):
        load(view="delayed", mode="FAILFAST").where(condition).collect()


def test_push_down_needs_sparks_leave(load: Load) -> None:
    with pytest.raises(PySparkException, match=PUSH.replace(".", r"\.")):
        load(pushdown="true").where("queue = 'x'").collect()
