"""`df.write`, through Spark: what arrives, what fails and is run again, what is refused."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
import redis
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from chasquimq import Job, Worker, wire
from tests.servers import DialectServer
from tests.spark_redis.writing import Shelf

ROWS = 300  # of a partition
BATCH = 20


@pytest.fixture
def shelf(server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(server.client(), queue_name)


@pytest.fixture
def small(spark: SparkSession) -> Iterator[SparkSession]:
    """Small batches, so that a task that fails has written some of its rows."""
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(key)
    spark.conf.set(key, BATCH)
    yield spark
    spark.conf.set(key, before)


@pytest.fixture
def save(server: DialectServer, queue_name: str) -> Callable[..., None]:
    def write(frame: DataFrame, **options: Any) -> None:
        given = {"queue": queue_name, "url": server.url, "chunkRows": 10, **options}
        frame.write.format("chasqui").options(**given).mode("append").save()

    return write


def numbers(spark: SparkSession, partitions: int = 2) -> DataFrame:
    return spark.range(0, ROWS * partitions, 1, partitions)


def failing(frame: DataFrame, url: str, stream: bytes, *, shuffle: bool = False) -> DataFrame:
    """The same numbers, but the first attempt of each task fails when some of them are in Redis;
    `shuffle`: and each attempt has them in another order."""

    def pass_on(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        all_of_them = [number for one in given for number in one.column(0).to_pylist()]
        mine = set(all_of_them)
        if shuffle:
            random.Random(task.taskAttemptId()).shuffle(all_of_them)
        for first in range(0, len(all_of_them), BATCH):
            if task.attemptNumber() == 0 and first >= ROWS * 2 // 3:
                wait_for_some(url, stream, mine)
                raise RuntimeError("the first attempt fails")
            page = all_of_them[first : first + BATCH]
            # Between two processes there are buffers, and what is in them is not in Redis.
            padding = pa.array(["x" * 2_000] * len(page))
            yield pa.record_batch([pa.array(page, pa.int64()), padding], names=["id", "padding"])

    fields = [StructField("id", LongType()), StructField("padding", StringType())]
    return frame.mapInArrow(pass_on, StructType(fields))


def wait_for_some(url: str, stream: bytes, wanted: set[int]) -> None:
    """On an executor: until a row of this task is in."""
    with redis.Redis.from_url(url) as client:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for _, fields in client.xrange(stream):
                data = wire.decode(wire.unpack_envelope(fields[b"d"]).payload)
                if data["n"] in wanted:
                    return
            time.sleep(0.01)
    raise AssertionError("no row came in")


# -- what arrives ----------------------------------------------------------------------------------

TYPES = {
    "null": ("NULL", None),
    "boolean": ("true", True),
    "tinyint": ("7Y", 7),
    "bigint": ("-9223372036854775808L", -(2**63)),
    "float": ("0.5F", 0.5),
    "double": ("1.25D", 1.25),
    "decimal": ("1.50BD", "1.50"),
    "string": ("'grüße'", "grüße"),
    "binary": ("X'00FF'", b"\x00\xff"),
    "date": ("DATE'2026-11-16'", "2026-11-16"),
    "timestamp": ("TIMESTAMP'2026-11-16 12:00:00.25+02:00'", "2026-11-16T10:00:00.250000Z"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'2026-11-16 12:00:00'", "2026-11-16T12:00:00"),
    "array": ("array(1, NULL, 3)", [1, None, 3]),
    "map": ("map('a', 1, 'b', NULL)", {"a": 1, "b": None}),
    "keys": ("map(1, array('x'))", {1: ["x"]}),
    "struct": (
        "named_struct('x', 1, 'y', named_struct('z', 'deep'))",
        {"x": 1, "y": {"z": "deep"}},
    ),
    "structs": ("array(named_struct('x', 1), NULL)", [{"x": 1}, None]),
    "variant": ("""parse_json('{"a": [1, 2.5, null]}')""", {"a": [1, 2.5, None]}),
}


def test_each_type_arrives_as_what_it_is(
    spark: SparkSession, save: Callable[..., None], shelf: Shelf
) -> None:
    fields = ", ".join(f"{sql} AS `{name}`" for name, (sql, _) in TYPES.items())
    save(spark.sql(f"SELECT struct({fields}) AS payload, 'typed' AS name"))
    [job] = shelf.jobs()
    assert job.payload == {name: value for name, (_, value) in TYPES.items()}
    assert job.name == "typed"


def test_all_columns_in_one_row(
    spark: SparkSession, save: Callable[..., None], shelf: Shelf
) -> None:
    save(
        spark.sql(
            """SELECT 'hello' AS payload, 'mail' AS name, 'own-1' AS id,
            current_timestamp() + INTERVAL 1 HOUR AS run_at, 3 AS max_attempts,
            named_struct('kind', 'fixed', 'delay_ms', 5) AS backoff"""
        )
    )
    [job] = shelf.delayed()
    assert (job.payload, job.name, job.envelope.id) == ("hello", "mail", "own-1")
    assert abs((job.due_ms or 0) - job.envelope.created_at_ms - 3_600_000) < 120_000
    retry = job.envelope.retry
    assert retry is not None
    assert retry.backoff is not None
    assert (retry.max_attempts, retry.backoff.kind, retry.backoff.delay_ms) == (3, "fixed", 5)


def test_json_and_msgpack_are_taken_as_such(
    spark: SparkSession, save: Callable[..., None], shelf: Shelf, server: DialectServer
) -> None:
    save(spark.sql("""SELECT '{"n": 1, "l": [1.5]}' AS payload"""), payloadFormat="json")
    assert [job.payload for job in shelf.jobs()] == [{"n": 1, "l": [1.5]}]
    packed = (
        spark.read.format("chasqui")
        .options(queue=shelf.keys.queue, url=server.url, payloadFormat="binary")
        .load()
        .select("payload", "name")
    )
    save(packed, queue=f"{shelf.keys.queue}-copy", payloadFormat="binary")
    copy = Shelf(server.client(), f"{shelf.keys.queue}-copy")
    assert [job.payload for job in copy.jobs()] == [{"n": 1, "l": [1.5]}]


async def test_a_worker_runs_the_rows_by_their_own_rules(
    spark: SparkSession, save: Callable[..., None], server: DialectServer, queue_name: str
) -> None:
    save(
        spark.sql(
            """SELECT struct(n) AS payload, name, delay_ms, max_attempts,
            named_struct('kind', 'fixed', 'delay_ms', 1) AS backoff FROM VALUES
            (1, 'fails', 0, 2), (2, 'fails', 200, 1), (3, 'works', 100, NULL), (4, NULL, NULL, 1)
            AS rows(n, name, delay_ms, max_attempts)"""
        )
    )
    runs: list[tuple[int, str, int]] = []

    async def handle(job: Job) -> None:
        runs.append((job.data["n"], job.name, job.attempt))
        if job.name == "fails":
            raise ValueError("as it should")

    worker = Worker(queue_name, handle, redis_url=server.url, max_jobs=5)
    await asyncio.wait_for(worker.run(), 60)
    wanted = [(1, "fails", 0), (1, "fails", 1), (2, "fails", 0), (3, "works", 0), (4, "", 0)]
    assert sorted(runs) == wanted


# -- tasks that are run again ------------------------------------------------------------------


def test_tasks_that_fail_and_run_again_write_each_row_once(
    small: SparkSession, save: Callable[..., None], shelf: Shelf, server: DialectServer
) -> None:
    frame = failing(numbers(small), server.url, shelf.keys.stream)
    save(frame.selectExpr("struct(id AS n, padding) AS payload"), runId="nightly")
    assert sorted(shelf.numbers()) == list(range(ROWS * 2))
    run = {key.decode(): value for key, value in shelf.client.hgetall(run_key(shelf)).items()}
    assert (run["state"], run["rows"]) == (b"done", b"%d" % (ROWS * 2))

    save(numbers(small).selectExpr("struct(id AS n) AS payload"), runId="nightly")
    assert len(shelf.numbers()) == ROWS * 2  # it is done


def run_key(shelf: Shelf) -> bytes:
    return shelf.keys.tag + b"spark:nightly"


def test_other_rows_in_the_second_attempt_fail_the_write(
    small: SparkSession, save: Callable[..., None], shelf: Shelf, server: DialectServer
) -> None:
    frame = failing(numbers(small), server.url, shelf.keys.stream, shuffle=True)
    with pytest.raises(PySparkException, match="CHASQUI_NONDETERMINISTIC_INPUT"):
        save(frame.selectExpr("struct(id AS n, padding) AS payload"))
    came_in = shelf.numbers()
    assert len(came_in) == len(set(came_in))


def test_with_ids_any_order_is_good(
    small: SparkSession, save: Callable[..., None], shelf: Shelf, server: DialectServer
) -> None:
    frame = failing(numbers(small), server.url, shelf.keys.stream, shuffle=True)
    keyed = frame.selectExpr("struct(id AS n, padding) AS payload", "id AS order_no")
    save(keyed, idColumn="order_no")
    assert sorted(shelf.numbers()) == list(range(ROWS * 2))
    again = numbers(small, 3).selectExpr("struct(id AS n) AS payload", "id AS order_no")
    save(again.repartition(5), idColumn="order_no", runId="nightly")
    assert sorted(shelf.numbers()) == list(range(ROWS * 3))
    totals = shelf.client.hmget(run_key(shelf), "rows", "skipped")
    assert totals == [b"%d" % ROWS, b"%d" % (ROWS * 2)]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        (["id AS payload", "id AS delay"], {}, "column 'delay' is none that a job has.*'delay_ms'"),
        (["id AS data"], {}, "there is no column 'payload'"),
        (["id AS payload"], {"idColumn": "key"}, "idColumn names 'key'; there are: payload"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_runs(
    spark: SparkSession,
    queue_name: str,
    columns: list[str],
    options: dict[str, str],
    says: str,
) -> None:
    frame = spark.range(3).selectExpr(*columns)
    nowhere = {"queue": queue_name, "url": "redis://127.0.0.1:1"}  # nobody asks it
    with pytest.raises(PySparkException, match=says):
        frame.write.format("chasqui").options(**nowhere, **options).mode("append").save()


def test_overwrite_is_refused(
    spark: SparkSession, server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    frame = spark.range(3).selectExpr("id AS payload")
    shelf.client.xadd(shelf.keys.stream, {"d": b"a job"})
    writer = frame.write.format("chasqui").options(queue=queue_name, url=server.url)
    with pytest.raises(PySparkException, match=r"mode\('overwrite'\) would purge a queue"):
        writer.mode("overwrite").save()
    assert shelf.client.xlen(shelf.keys.stream) == 1


def test_a_row_that_is_no_job_is_named_and_not_shown(
    spark: SparkSession, save: Callable[..., None], shelf: Shelf
) -> None:
    frame = spark.range(0, 50, 1, 1).selectExpr(
        "concat('secret ', id) AS payload", "if(id = 33, -1, NULL) AS delay_ms"
    )
    with pytest.raises(PySparkException) as caught:
        save(frame)
    text = str(caught.value)
    assert "row 33 of partition 0 (the first is 0), column 'delay_ms': must not be negative" in text
    assert "secret" not in text
    assert len(shelf.jobs()) <= 30
