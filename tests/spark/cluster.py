"""The driver of a cluster with two executors, which are processes of their own.

`python -m tests.spark.cluster <home>`; a line in is an order, a line out says that it was carried
out, or why it was not:

    {"url": ..., "queue": ..., "run": ..., "rows": ..., "parts": 2, "times": 1, "gate": ...}

So many rows are written, in so many partitions; the whole write so many times at once, each with
the same run id. A task of the first partition stops half way: it pushes its attempt and its pid
onto the list `gate`, and goes on when there is a key `<gate>:open`. So whoever gave the order can
hurt a task in the middle of its work, at leisure.

End of input ends it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import redis
from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from chasquimq.spark.session import session

BATCH = 250  # rows that reach a writer together
TEXT = "x" * 500  # so that rows do not wait for others in the buffers on their way to the writer
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # these JVMs live for seconds
PATIENCE_S = 60.0

Batches = Iterator[pa.RecordBatch]


def start(home: Path) -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_WORKER_DIR"] = str(home / "work")
    return session(
        "cluster",
        master="local-cluster[2,1,1024]",
        conf={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": QUICK,
            "spark.executor.extraJavaOptions": QUICK,
            "spark.executor.memory": "512m",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH),
        },
    )


def obey(spark: SparkSession, order: dict[str, Any]) -> None:
    times = range(order["times"])
    with ThreadPoolExecutor(len(times)) as threads:
        for done in [threads.submit(write, spark, order) for _ in times]:
            done.result()


def write(spark: SparkSession, order: dict[str, Any]) -> None:
    # Spark looks for data sources written in Python in the session of this thread alone.
    spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
    numbers = spark.range(0, order["rows"], 1, numPartitions=order["parts"])
    rows = numbers.selectExpr("id as n", f"'{TEXT}' as text")
    held = rows.mapInArrow(holding(order), "n long, text string")
    sink = held.selectExpr("struct(n, text) as payload").write.format("chasqui")
    sink = sink.option("queue", order["queue"]).option("url", order["url"])
    sink.option("runId", order["run"]).mode("append").save()


def holding(order: dict[str, Any]) -> Callable[[Batches], Batches]:
    """Hands rows on, and stops in the middle of the first partition."""

    def hand_on(batches: Batches) -> Batches:
        task = TaskContext.get()
        assert task is not None
        half, got = order["rows"] // order["parts"] // 2, 0
        for batch in batches:
            yield batch
            got += batch.num_rows
            if task.partitionId() == 0 and got == half:
                wait(order, task.attemptNumber())

    return hand_on


def wait(order: dict[str, Any], attempt: int) -> None:
    with redis.Redis.from_url(order["url"]) as client:
        client.rpush(order["gate"], json.dumps([attempt, os.getpid()]))
        deadline = time.monotonic() + PATIENCE_S
        while not client.exists(f"{order['gate']}:open"):
            assert time.monotonic() < deadline, "nobody opened the gate"
            time.sleep(0.01)


def main(home: Path) -> None:
    spark = start(home)
    spark.sparkContext.setLogLevel("OFF")
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            obey(spark, json.loads(line))
            print("done", flush=True)
        except Exception as error:
            print("failed:", json.dumps(str(error)), flush=True)
    process = SparkContext._gateway.proc
    spark.stop()
    SparkContext._gateway.shutdown()
    process.stdin.close()
    process.wait(30)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
