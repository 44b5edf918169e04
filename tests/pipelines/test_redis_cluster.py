"""All that Spark does with queues, through a session and on a real cluster of six nodes that wants
a login: written, read, run, brought back and followed, while slots move."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chasquimq import Job
from chasquimq.spark.act import replay
from chasquimq.spark.work import SparkWorker
from chasquimq.wire import Keys
from tests.ha.kit import Cluster, Home, client, cluster
from tests.servers import Dialect, binary_for
from tests.spark.session import NATIVE, PORTABLE

PASSWORD = "w0rd-of-the-cluster"  # not a secret
ROWS, QUEUES = 400, 3


def odd_ones(job: Job) -> None:
    if job.data["n"] % 2 == 0:
        raise ValueError("odd ones only")


def all_of_them(job: Job) -> None:
    pass


@pytest.fixture(params=[pytest.param(one, id=one.name) for one in (NATIVE, PORTABLE)])
def ring(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    dialect: Dialect = request.param
    with cluster(binary_for(dialect)) as nodes:
        for node in nodes.nodes:
            rules = ("on", f">{PASSWORD}", "~{chasqui:*", "&{chasqui:*", "+@all")
            client(node.port).execute_command("ACL", "SETUSER", "spark", *rules)
        yield nodes


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_queue_is_written_read_run_and_brought_back_while_it_moves(
    spark: SparkSession, ring: Cluster, queue_name: str, tmp_path: Path
) -> None:
    homes = [Home(ring, f"{queue_name}-{number}") for number in range(QUEUES)]
    assert len({ring.owner(home.key).port for home in homes}) > 1
    secret = tmp_path / "address"
    secret.write_text(ring.url.replace("://", f"://spark:{PASSWORD}@"))
    where = {"secretFile": str(secret)}
    names = ",".join(home.queue for home in homes)

    rows = spark.range(0, ROWS, 1, 4).selectExpr("struct(id AS n) AS payload")
    keyed = rows.selectExpr("*", "string(payload.n) AS key")
    writes = ((rows, {}), (rows, {"commitMode": "staged"}), (keyed, {"idColumn": "key"}))
    for home, (some, more) in zip(homes, writes, strict=True):
        moving = threading.Thread(target=home.move)
        moving.start()
        write = some.write.format("chasqui").options(**where, **more, queue=home.queue)
        write.mode("append").save()
        moving.join()
        assert home.client().xlen(home.key) == ROWS

    found = spark.read.format("chasqui").options(**where, queue=names).load()
    assert PASSWORD not in found._jdf.queryExecution().toString()
    assert {row.queue: row["count"] for row in found.groupBy("queue").count().collect()} == {
        home.queue: ROWS for home in homes
    }

    first = homes[0]
    moving = threading.Thread(target=first.move)
    moving.start()
    work = SparkWorker(
        first.queue, odd_ones, secret_file=str(secret), tasks=2, max_attempts=1, concurrency=10
    )
    assert work.run(spark).count() == ROWS
    moving.join()
    assert first.client().xlen(first.key) == 0

    dead = spark.read.format("chasqui").options(**where, queue=names, view="dlq").load()
    told = Counter(row.outcome for row in replay(dead, where).collect())
    assert told == {"replayed": ROWS // 2}
    again = SparkWorker(first.queue, all_of_them, secret_file=str(secret), tasks=2).run(spark)
    assert again.count() == ROWS // 2

    out, marks = str(tmp_path / "out"), str(tmp_path / "marks")
    events = spark.readStream.format("chasqui").options(**where, queue=names, view="events").load()
    for _ in range(2):
        query = events.writeStream.format("parquet").option("checkpointLocation", marks)
        query.trigger(availableNow=True).start(out).awaitTermination()
        first.move()
    kept = Counter(row.event for row in spark.read.parquet(out).select("event").collect())
    assert kept["completed"] == ROWS and kept["dlq"] == ROWS // 2
    assert sum(kept.values()) == sum(home.client().xlen(Keys(home.queue).events) for home in homes)
