"""Streams followed into files, one per batch; and a driver of its own that does so.

`python -m tests.spark.following <url> <queue> <home> <rows>` follows the events of a queue, so many
rows in a batch. It prints the number of each batch when its rows are written, and goes on when it
is told to by a line: whoever started it can kill it between what Spark has written down and what
it has not.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from chasquimq.spark.session import session

PATIENCE_S = 100

Batches = list[list[dict[str, Any]]]


def lake(
    spark: SparkSession,
    home: Path,
    options: dict[str, Any],
    written: Callable[[int], None] = lambda batch: None,
) -> DataStreamWriter:
    """Each batch in a file of its own, which one that is run again overwrites."""
    files = home / "lake"
    files.mkdir(exist_ok=True)

    def write(rows: DataFrame, batch: int) -> None:
        found = [row.asDict() for row in rows.collect()]
        (files / "new").write_text(json.dumps(found, default=str))
        (files / "new").replace(files / f"{batch:03}")
        written(batch)

    source = spark.readStream.format("chasqui").options(**{"view": "events", **options}).load()
    checkpoint = str(home / "checkpoint")
    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)


def run(spark: SparkSession, home: Path, options: dict[str, Any]) -> tuple[StreamingQuery, Batches]:
    """What is there now, to the end; and what is in the lake then."""
    query = lake(spark, home, options).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(PATIENCE_S), "it does not end"
    finally:
        query.stop()
    return query, [json.loads(path.read_text()) for path in sorted((home / "lake").iterdir())]


def ids(batches: Batches) -> list[list[str]]:
    return [sorted(row["entry_id"] for row in batch) for batch in batches]


def main(url: str, queue: str, home: Path, rows: str) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = session(
        "following",
        master="local[2]",
        conf={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
        },
    )
    spark.sparkContext.setLogLevel("OFF")

    def written(batch: int) -> None:
        print(batch, flush=True)
        sys.stdin.readline()

    options = {"url": url, "queue": queue, "maxOffsetsPerTrigger": rows}
    lake(spark, home, options, written).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
