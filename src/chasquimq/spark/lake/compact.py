"""Put small folders of the lake together, and remove what has had its time.

1. what was superseded so long ago that nobody reads it any more is removed;
2. the folders of a partition are written once more as one, counted, and moved into place beside
   them: from then on they are superseded;
3. days that are older than wanted are removed.

Those who read meanwhile have chosen their files before, and find them for `grace_ms` more.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyspark.sql import SparkSession

from chasquimq.config import Options, check_least
from chasquimq.errors import StoreError
from chasquimq.spark.lake.files import Files
from chasquimq.spark.lake.layout import (
    TABLES,
    Folder,
    joined,
    read_date,
    superseded,
    together,
)
from chasquimq.spark.lake.table import found, partitions, read_folders

FILE_BYTES = 128 << 20
STAGING = "_staging/compact-"
LEFT_MS = 86_400_000  # a folder is put together in less


class CompactOptions(Options, frozen=True):
    least: int = 8  # folders in a partition, to be worth it
    grace_ms: int = 3_600_000
    keep_days: int | None = None  # None: for ever

    def __post_init__(self) -> None:
        check_least("least", self.least, 2)
        check_least("grace_ms", self.grace_ms, 0)
        if self.keep_days is not None:
            check_least("keep_days", self.keep_days, 1)


class Compacted(NamedTuple):
    """What was done."""

    written: int = 0  # new folders
    put_together: int = 0  # folders that they hold
    removed: int = 0  # folders that were superseded
    days: int = 0  # partitions that were too old


Tell = Callable[[str], None]


def compact(
    spark: SparkSession,
    lake: str,
    options: CompactOptions | None = None,
    *,
    tell: Tell = lambda _: None,
) -> Compacted:
    """Safe beside those who read and write, and beside another of its kind."""
    options = options or CompactOptions()
    files = Files(spark, lake)
    now_ms = files.now_ms()
    _sweep(files, now_ms)
    written = put = removed = days = 0
    for table in TABLES:
        if options.keep_days is not None:
            days += _forget(files, table, now_ms, options.keep_days)
        removed += _clear(files, table, now_ms, options.grace_ms)
        for group in together(found(files, table), options.least):
            tell(f"{table}/{group[0].partition}")
            if _put_together(spark, files, table, group):
                written, put = written + 1, put + len(group)
    return Compacted(written, put, removed, days)


def _put_together(spark: SparkSession, files: Files, table: str, group: Sequence[Folder]) -> bool:
    """False: somebody else has done it meanwhile."""
    new = joined(group)
    # Nobody else's: what another of its kind puts together at the same time must not get in here.
    staged = f"{STAGING}{uuid.uuid4().hex}"
    try:
        return _move_together(spark, files, table, group, new, staged)
    finally:
        files.remove(staged)


def _move_together(
    spark: SparkSession, files: Files, table: str, group: Sequence[Folder], new: Folder, staged: str
) -> bool:
    size = sum(files.bytes(f"{table}/{one.path}") for one in group)
    rows = read_folders(spark, files, table, group).drop("queue", "date", "batch")
    some = rows.coalesce(-(-size // FILE_BYTES)).sortWithinPartitions("at", "entry_id")
    some.write.mode("overwrite").parquet(files.at(staged))
    wanted, got = rows.count(), spark.read.parquet(files.at(staged)).count()
    if wanted != got:
        raise StoreError(f"{table}/{new.path} has {got} rows instead of {wanted}: left as it was")
    return files.move(staged, f"{table}/{new.path}")


def _clear(files: Files, table: str, now_ms: int, grace_ms: int) -> int:
    old = superseded(found(files, table))
    expired = [
        one
        for one, by in old.items()
        if now_ms - files.changed_ms(f"{table}/{by.path}") >= grace_ms
    ]
    return sum(files.remove(f"{table}/{one.path}") for one in expired)


def _sweep(files: Files, now_ms: int) -> None:
    """Remove what those of its kind left that were killed."""
    folder, _, begin = STAGING.rpartition("/")
    for one in files.inside(folder):
        if one.name.startswith(begin) and now_ms - one.changed_ms >= LEFT_MS:
            files.remove(f"{folder}/{one.name}")


def _forget(files: Files, table: str, now_ms: int, keep_days: int) -> int:
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    first = today - timedelta(days=keep_days - 1)
    old = [one for one in partitions(files, table) if (day := read_date(one)) and day < first]
    return sum(files.remove(f"{table}/{one}") for one in old)
