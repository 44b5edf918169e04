"""Rows of the views events and dlq as the lake keeps them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from chasquimq.spark.decode.column import LAST_US

DAY_MS = 86_400_000
LAST_MS = LAST_US // 1000


def lake(rows: DataFrame) -> DataFrame:
    """... with `at`, when the server took the row in, and `date`, the day of that in UTC. An entry
    id never changes, so a row belongs to the same day however late it is read."""
    return rows.withColumn("at", entered(f.col("entry_id"))).withColumn("date", day(f.col("at")))


def day(moment: Column) -> Column:
    """In UTC, whatever time zone the session has."""
    return f.date_from_unix_date(f.floor(f.unix_millis(moment) / DAY_MS).cast("int"))


def entered(entry_id: Column) -> Column:
    """The moment in an entry id, `<ms>-<seq>`. Anybody may choose an id: a moment behind the year
    9999, for which nothing has a name, is the last of that."""
    ms = f.split_part(entry_id, f.lit("-"), f.lit(1)).cast("decimal(20,0)")
    return f.timestamp_millis(f.least(ms, f.lit(LAST_MS)).cast("bigint"))
