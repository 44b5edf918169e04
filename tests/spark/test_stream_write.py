"""`df.writeStream` and staged writes through Spark: each row once, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.chaos.kit.wait import eventually
from tests.servers import DialectServer
from tests.spark.stream_driver import run
from tests.spark_redis.staging import Shelf

PATIENCE_S = 120.0


class Stream:
    """A folder whose files go into a queue."""

    def __init__(self, home: Path, url: str, queue: str) -> None:
        self.folder, self.checkpoint = home / "in", home / "checkpoint"
        self.options = {"url": url, "queue": queue, "chunkRows": "10"}
        self.folder.mkdir()

    def add(self, number: int, rows: int = 50) -> None:
        lines = [json.dumps({"n": number * rows + row}) for row in range(rows)]
        (self.folder / f"{number:03}.json").write_text("\n".join(lines))

    def run(self, spark: SparkSession, **options: str) -> str:
        """Write all that is new; answers the id of the query."""
        given = {**self.options, **options}
        query = run(spark, str(self.folder), str(self.checkpoint), given)
        try:
            assert query.awaitTermination(PATIENCE_S)
        finally:
            query.stop()
        return str(query.id)

    def forget_the_last_commit(self) -> int:
        """As if the driver had died before it said to itself that the batch is done."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*"))
        for name in (f"{last}", f".{last}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)
        return last


@pytest.fixture
def stream(tmp_path: Path, server: DialectServer, queue_name: str) -> Stream:
    return Stream(tmp_path, server.url, queue_name)


def payloads(shelf: Shelf) -> list[int]:
    return sorted(one["n"] for one in shelf.payloads())


@pytest.mark.timeout(400)  # a JVM of its own starts
def test_a_driver_is_killed_in_the_middle_of_a_move(
    spark: SparkSession, server: DialectServer, queue_name: str, stream: Stream
) -> None:
    shelf = Shelf(server.client(), queue_name)
    for number in range(6):
        stream.add(number)
    given = {
        "folder": str(stream.folder),
        "checkpoint": str(stream.checkpoint),
        "options": {**stream.options, "maxStreamLen": "120"},  # batch 0 fits, a part of batch 1
    }
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.stream_driver", json.dumps(given)],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        eventually(lambda: driver.poll() is not None or shelf.depth() == 120, PATIENCE_S)
        assert driver.poll() is None
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Python and the JVM
        driver.wait()
    assert len(set(payloads(shelf))) == 120
    stream.run(spark, maxStreamLen="10000")
    assert payloads(shelf) == list(range(300))
    assert shelf.left() == set()


@pytest.mark.parametrize(
    "options",
    [{}, {"idColumn": "id"}, {"commitMode": "direct"}],
    ids=["staged", "by-id", "direct"],
)
def test_a_batch_that_is_repeated_adds_nothing(
    spark: SparkSession,
    server: DialectServer,
    queue_name: str,
    stream: Stream,
    options: dict[str, str],
) -> None:
    shelf = Shelf(server.client(), queue_name)
    for number in range(3):
        stream.add(number)
    query = stream.run(spark, **options)
    assert payloads(shelf) == list(range(150))
    last = stream.forget_the_last_commit()
    assert last == 1
    for key in server.client().scan_iter(match=f"*{query}-*"):  # as time does, in a long outage
        server.client().delete(key)
    stream.add(3)
    stream.run(spark, **options)
    assert payloads(shelf) == list(range(200))
    assert server.client().hget(f"{{chasqui:{queue_name}}}:spark:queries", query) == b"2"


def fails_once(spark: SparkSession) -> DataFrame:
    """Two partitions of 40 rows that say which attempt made them. The first attempt of the second
    one fails when its rows are staged."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        part, attempt = task.partitionId(), task.attemptNumber()
        for _ in batches:
            for page in range(4):
                made = [f"{part} {attempt} {page * 10 + row}" for row in range(10)]
                yield pa.record_batch([pa.array(made)], names=["payload"])
            if part and not attempt:
                raise RuntimeError("the first attempt fails at its end")

    return spark.range(2, numPartitions=2).mapInArrow(rows, "payload STRING")


def test_attempts_with_other_rows_are_no_matter(
    spark: SparkSession, server: DialectServer, queue_name: str
) -> None:
    shelf = Shelf(server.client(), queue_name)
    write = fails_once(spark).write.format("chasqui").option("url", server.url)
    write = write.option("commitMode", "staged").option("chunkRows", 5).option("runId", "once")
    for _ in range(2):  # the second time it is done
        write.mode("append").save(queue_name)
        assert sorted(shelf.payloads()) == sorted(
            f"{part} {part} {row}" for part in range(2) for row in range(40)
        )
    assert shelf.left() == set()


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_write_that_fails_leaves_nothing_to_be_seen(
    spark: SparkSession, server: DialectServer, queue_name: str, partitions: int
) -> None:
    """Also no task beside the one that fails, which may begin when its run has been aborted."""
    shelf = Shelf(server.client(), queue_name)
    rows = spark.range(100, numPartitions=partitions).selectExpr(
        "CASE WHEN id = 99 THEN CAST(raise_error('no') AS STRING) ELSE 'x' END AS payload"
    )
    write = rows.write.format("chasqui").option("url", server.url).option("commitMode", "staged")
    with pytest.raises(PySparkException):
        write.option("chunkRows", 5).mode("append").save(queue_name)
    assert (shelf.payloads(), shelf.left(), len(shelf.aborted())) == ([], set(), 1)


def test_a_batch_that_fails_is_written_when_its_query_is_started_again(
    spark: SparkSession, server: DialectServer, queue_name: str, stream: Stream
) -> None:
    """The start that failed is remembered, so that none of its tasks stages anything any more; the
    next one writes the same batch, which is the same run."""
    shelf, gate = Shelf(server.client(), queue_name), stream.folder.parent / "gate"
    for number in range(2):
        stream.add(number)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        yield from batches
        if task.partitionId() and not (gate / "mended").exists():
            eventually((gate / "open").exists, PATIENCE_S)
            raise RuntimeError("one task fails at its end")

    def start() -> StreamingQuery:
        files = spark.readStream.schema("n LONG").json(str(stream.folder))
        payloads = files.mapInArrow(rows, "n LONG").selectExpr("struct(n) AS payload")
        writer = payloads.writeStream.format("chasqui").options(**stream.options)
        return writer.option("checkpointLocation", str(stream.checkpoint)).start()

    def one_has_ended() -> bool:
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(one is not None and one.numCompletedTasks == 1 for one in stages)

    gate.mkdir()
    query = start()
    try:
        eventually(one_has_ended, PATIENCE_S, or_say=lambda: str(query.exception()))
        (gate / "open").touch()
        with pytest.raises(PySparkException, match="one task fails"):
            query.awaitTermination(PATIENCE_S)
        assert (shelf.payloads(), shelf.left(), len(shelf.aborted())) == ([], set(), 1)
        [mark] = shelf.aborted()
        assert mark == f"{query.id}-0:aborted:{query.runId}".encode()
        (gate / "mended").touch()
        query = start()
        query.processAllAvailable()
    finally:
        query.stop()
    assert payloads(shelf) == list(range(100))
    assert shelf.left() == set()
