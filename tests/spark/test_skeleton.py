"""End to end: Spark writes a queue, a worker drains it, Spark reads what happened."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from chasquimq import Queue, Worker
from tests.servers import DialectServer


async def test_there_and_back(
    spark: SparkSession, dialect_server: DialectServer, queue_name: str, tmp_path: Path
) -> None:
    url = dialect_server.url
    given = spark.range(1000).selectExpr("struct(id as n) as payload", "'mail' as name")
    given.write.format("chasqui").option("queue", queue_name).option("url", url).mode(
        "append"
    ).save()

    jobs = spark.read.format("chasqui").option("queue", queue_name).option("url", url).load()
    rows = jobs.select("id", "name", "payload").collect()
    assert sorted(json.loads(row.payload)["n"] for row in rows) == list(range(1000))
    assert {row.name for row in rows} == {"mail"}

    seen: list[int] = []

    async def handler(job: object) -> None:
        seen.append(job.data["n"])  # type: ignore[attr-defined]

    worker = Worker(queue_name, handler, redis_url=url, concurrency=10, burst=True)
    await worker.run()
    assert sorted(seen) == list(range(1000))

    events = (
        spark.readStream.format("chasqui")
        .option("queue", queue_name)
        .option("url", url)
        .option("view", "events")
        .load()
    )
    query = (
        events.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "lake"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    lake = spark.read.parquet(str(tmp_path / "lake"))
    assert lake.where("event = 'completed'").select("job_id").distinct().count() == 1000
    async with Queue(queue_name, redis_url=url) as queue:
        assert (await queue.counts()).waiting == 0
