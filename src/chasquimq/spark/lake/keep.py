"""A streaming query that brings the rows of queues into the lake, each once.

1. a batch is written into a folder of its own outside of the tables;
2. what it has for each queue and day is moved into its place, under the batch's number;
3. Spark notes that the batch is done.

Killed anywhere, the batch is run again, of the same rows; what is in its place stays. (Spark's own
file sink would keep a list of files that nobody else may put together.)
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from chasquimq.config import one_of
from chasquimq.spark.lake.files import Files
from chasquimq.spark.lake.layout import TABLES, Folder
from chasquimq.spark.pipelines.keep import lake as kept

ROWS = 1_000_000  # of a batch: what waits longer comes with the next
WRITER = 8  # digits of a query's id


def keep(
    spark: SparkSession,
    lake: str,
    options: Mapping[str, str],
    table: str = "events",
    *,
    every_ms: int | None = None,
) -> StreamingQuery:
    """Start it. `options` are those of `format("chasqui")`. Without `every_ms` it ends when all
    that was there has come in."""
    one_of("table", table, TABLES)
    files = Files(spark, lake)
    parts = str(spark.sparkContext.defaultParallelism)
    usual = {"maxOffsetsPerTrigger": str(ROWS), "minPartitions": parts}
    rows = spark.readStream.format("chasqui").options(**usual | dict(options), view=table).load()

    def write(batch: DataFrame, number: int) -> None:
        query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query_id is not None, "Spark tells every batch of a query whose it is"
        bring_in(files, table, batch, query_id[:WRITER], number)

    writing = rows.writeStream.foreachBatch(write).queryName(f"chasqui lake {table}")
    writing = writing.option("checkpointLocation", files.at(f"_checkpoints/{table}"))
    if every_ms is None:
        return writing.trigger(availableNow=True).start()
    return writing.trigger(processingTime=f"{every_ms} milliseconds").start()


def bring_in(files: Files, table: str, batch: DataFrame, writer: str, number: int) -> None:
    staged = f"_staging/{table}-{writer}-{number}"
    files.remove(staged)
    rows = kept(batch).write.partitionBy("queue", "date").mode("overwrite")
    rows.parquet(files.at(staged))
    for queue in files.folders(staged):
        for day in files.folders(f"{staged}/{queue}"):
            folder = Folder(f"{queue}/{day}", writer, number, number)
            files.move(f"{staged}/{folder.partition}", f"{table}/{folder.path}")
    files.remove(staged)
