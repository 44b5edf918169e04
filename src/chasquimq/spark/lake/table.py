"""Read a table of the lake: each row once, whatever is written and put together meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DateType, StringType, StructField, StructType

from chasquimq.config import one_of
from chasquimq.spark.lake.files import Files
from chasquimq.spark.lake.layout import TABLES, Folder, live, read_date, read_folder
from chasquimq.spark.options import CORRUPT
from chasquimq.spark.schema import COLUMNS, CORRUPT_TYPE, MOMENT, TEXT


def read(
    spark: SparkSession,
    lake: str,
    table: str = "events",
    *,
    queues: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """The rows of `table` (events or dlq) of these queues, from `since` on and before `until`.

    Files are chosen when this is called: what comes later is for the next call. A day of files is
    opened only if it can have such rows. Columns that older files do not have are null.
    """
    one_of("table", table, TABLES)
    files = Files(spark, lake)
    folders = live(_within(found(files, table), since, until))
    if not folders:
        return spark.createDataFrame([], schema_of(table))
    rows = read_folders(spark, files, table, folders)
    if len({one.writer for one in folders}) > 1:
        # Two queries, as after a lost checkpoint, may both have read an entry.
        rows = rows.dropDuplicates(["queue", "entry_id"])
    if queues is not None:
        rows = rows.where(f.col("queue").isin(*queues))
    if since is not None:
        rows = rows.where(f.col("at") >= f.lit(since))
    if until is not None:
        rows = rows.where(f.col("at") < f.lit(until))
    return rows


def read_folders(
    spark: SparkSession, files: Files, table: str, folders: Iterable[Folder]
) -> DataFrame:
    paths = [files.at(f"{table}/{one.path}") for one in folders]
    reader = spark.read.schema(schema_of(table)).option("basePath", files.at(table))
    return reader.parquet(*paths)


def found(files: Files, table: str) -> list[Folder]:
    """All folders that are there, those that do not count as well."""
    return [
        folder
        for partition in partitions(files, table)
        for name in files.folders(f"{table}/{partition}")
        if (folder := read_folder(partition, name))
    ]


def partitions(files: Files, table: str) -> Iterator[str]:
    """`queue=<queue>/date=<day>`, as they are called there."""
    for queue in files.folders(table):
        for day in files.folders(f"{table}/{queue}"):
            if read_date(day) is not None:
                yield f"{queue}/{day}"


def schema_of(table: str) -> StructType:
    view = COLUMNS["events" if table == "events" else "dlq"]
    kinds = {name: kind or TEXT for name, kind in view.items() if name != "queue"}
    kinds |= {CORRUPT: CORRUPT_TYPE, "at": MOMENT, "queue": TEXT}
    columns = [StructField(name, kind) for name, kind in kinds.items()]
    return StructType(
        [*columns, StructField("date", DateType()), StructField("batch", StringType())]
    )


def _within(
    folders: Iterable[Folder], since: datetime | None, until: datetime | None
) -> Iterator[Folder]:
    first = _day(since) if since is not None else date.min
    last = _day(until) if until is not None else date.max
    for one in folders:
        day = read_date(one.partition)
        if day is not None and first <= day <= last:
            yield one


def _day(moment: datetime) -> date:
    return moment.astimezone(UTC).date()
