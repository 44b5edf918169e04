"""Folders of a lake are put together and removed, and nobody who reads loses a row by it."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from chasquimq.errors import ConfigError
from chasquimq.spark.lake.compact import LEFT_MS, STAGING, Compacted, CompactOptions, compact
from chasquimq.spark.lake.files import Files
from chasquimq.spark.lake.keep import bring_in
from chasquimq.spark.lake.layout import read_folder
from chasquimq.spark.lake.table import found, read, schema_of

NOW = CompactOptions(least=2, grace_ms=0)
DAY = date(2026, 11, 1)


class Lake:
    """One that is written by hand."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark, self.path = spark, path
        self.files = Files(spark, path)
        self.queue = "mail"
        self._numbers = count()
        self._batches = count()

    def add(self, rows: int = 4, day: date = DAY, writer: str = "01234567") -> list[str]:
        """A batch; the ids of its rows."""
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
        return self.put(noon, rows, writer)

    def put(self, moment: datetime, rows: int = 1, writer: str = "01234567") -> list[str]:
        ms = round(moment.timestamp() * 1000)
        return self.bring([f"{ms}-{next(self._numbers)}" for _ in range(rows)], writer)

    def bring(self, ids: list[str], writer: str = "01234567") -> list[str]:
        values = ", ".join(f"('{one}')" for one in ids)
        missing = ", ".join(
            f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`"
            for field in schema_of("events")
            if field.name not in ("entry_id", "queue", "at", "date", "batch")
        )
        names = f"entry_id, '{self.queue}' AS queue, {missing}"
        made = f"SELECT {names} FROM VALUES {values} AS t(entry_id)"
        batch = self.spark.sql(made).coalesce(1)
        bring_in(self.files, "events", batch, writer, next(self._batches))
        return ids

    def many(self, batches: int = 3) -> list[str]:
        return [one for _ in range(batches) for one in self.add()]

    def read(self) -> DataFrame:
        return read(self.spark, self.path)

    def compact(self, options: CompactOptions) -> Compacted:
        return compact(self.spark, self.path, options)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, str(tmp_path / "lake"))


def ids(rows: DataFrame) -> list[str]:
    return sorted(row.entry_id for row in rows.select("entry_id").collect())


def test_folders_are_put_together(lake: Lake) -> None:
    rows = lake.many()
    before = lake.read().drop("batch").collect()
    files = lake.files
    assert lake.compact(CompactOptions(least=4)) == Compacted()
    assert lake.compact(CompactOptions(least=3)) == Compacted(1, 3)
    assert len(found(files, "events")) == 4  # the old ones are left for who reads them
    assert sorted(lake.read().drop("batch").collect()) == sorted(before)
    assert len(lake.read().inputFiles()) == 1
    assert lake.compact(CompactOptions(least=3)) == Compacted()
    assert lake.compact(NOW) == Compacted(removed=3)
    assert ids(lake.read()) == sorted(rows)
    rows += lake.add()
    assert lake.compact(NOW) == Compacted(1, 2)
    assert lake.compact(NOW) == Compacted(removed=2)
    assert ids(lake.read()) == sorted(rows)
    assert files.folders("_staging") == []


def test_who_reads_meanwhile_finds_all_rows(lake: Lake) -> None:
    rows = lake.many()
    reading = lake.read()
    assert lake.compact(CompactOptions(least=2)) == Compacted(1, 3)
    between = lake.read()
    assert lake.compact(CompactOptions(least=2)) == Compacted()  # it is still within grace
    assert ids(reading) == ids(between) == sorted(rows)
    assert lake.compact(NOW) == Compacted(removed=3)
    assert ids(between) == sorted(rows)
    with pytest.raises(Py4JJavaError, match="FileNotFound"):  # so it is the grace that keeps them
        ids(reading)


def test_killed_before_or_behind_the_move(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = lake.many()

    class KilledError(Exception):
        pass

    def killed(*_: Any) -> bool:
        raise KilledError

    move = Files.move
    monkeypatch.setattr(Files, "move", killed)
    with pytest.raises(KilledError):
        lake.compact(NOW)
    assert ids(lake.read()) == sorted(rows)
    monkeypatch.setattr(Files, "move", lambda *words: move(*words) and killed())
    with pytest.raises(KilledError):
        lake.compact(NOW)
    assert ids(lake.read()) == sorted(rows)
    monkeypatch.undo()
    assert lake.compact(NOW) == Compacted(removed=3)
    assert ids(lake.read()) == sorted(rows)


def test_two_at_once_write_it_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = lake.many()
    move = Files.move

    def late(self: Files, old: str, new: str) -> bool:
        monkeypatch.undo()
        assert lake.compact(CompactOptions(least=2)) == Compacted(1, 3)
        return move(self, old, new)

    monkeypatch.setattr(Files, "move", late)
    assert lake.compact(CompactOptions(least=2)) == Compacted()
    assert ids(lake.read()) == sorted(rows)
    assert lake.files.folders("_staging") == []


def test_what_those_left_that_were_killed_is_removed_a_day_later(lake: Lake) -> None:
    lake.many()
    folders = [Path(lake.path, f"{STAGING}{number}") for number in range(2)]
    for folder in folders:
        folder.mkdir(parents=True)
    yesterday = datetime.now(UTC).timestamp() - LEFT_MS / 1000 - 1
    os.utime(folders[0], (yesterday, yesterday))
    lake.compact(NOW)
    assert [folder.exists() for folder in folders] == [False, True]


def test_a_queue_with_a_long_name_is_put_together(lake: Lake) -> None:
    """Names of folders have at most 255 bytes."""
    lake.queue = "q" * 240
    rows = lake.many()
    assert lake.compact(NOW) == Compacted(1, 3)
    assert ids(lake.read()) == sorted(rows)


def test_days_that_are_too_old_are_removed(lake: Lake) -> None:
    today = datetime.now(UTC).date()
    lake.add(2, today - timedelta(days=40))
    rows = lake.add(2, today - timedelta(days=29))
    assert lake.compact(CompactOptions(keep_days=30)) == Compacted(days=1)
    assert ids(lake.read()) == sorted(rows)


def test_files_of_older_and_newer_makers(lake: Lake) -> None:
    """A column that an older one did not write is null; one that we do not know is left out."""
    rows = lake.add(3)
    files = lake.files
    [folder] = found(files, "events")
    other = folder._replace(first=7, last=7)
    strange = lake.read().drop("date", "batch", "queue", "duration_us", "ts")
    strange = strange.selectExpr("* EXCEPT (entry_id)", "'1-0' AS entry_id", "1 AS new")
    strange.limit(1).write.parquet(files.at(f"events/{other.path}"))
    assert ids(lake.read()) == sorted([*rows, "1-0"])
    [row] = lake.read().where("entry_id = '1-0'").collect()
    assert row.ts is None and not hasattr(row, "new")
    lake.compact(NOW)
    assert ids(lake.read()) == sorted([*rows, "1-0"])


def test_a_folder_that_is_none_of_ours_is_left_alone(lake: Lake) -> None:
    rows = lake.add(3)
    files = lake.files
    [folder] = found(files, "events")
    stranger = f"events/{folder.partition}/batch=backup"
    lake.read().write.parquet(files.at(stranger))
    assert read_folder(folder.partition, "batch=backup") is None
    assert ids(lake.read()) == sorted(rows)
    lake.compact(NOW)
    assert files.exists(stranger)


def test_a_day_is_one_of_utc_whatever_zone_the_session_has(lake: Lake) -> None:
    """Readers choose folders by it: two in the morning of a day is no evening of the day before."""
    zone = lake.spark.conf.get("spark.sql.session.timeZone")
    begin = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)
    early, late = begin + timedelta(hours=2), begin + timedelta(hours=22)
    try:
        for name in ("America/New_York", "Asia/Tokyo"):
            lake.spark.conf.set("spark.sql.session.timeZone", name)
            rows = lake.put(early) + lake.put(late)
            day = read(lake.spark, lake.path, since=begin, until=begin + timedelta(days=1))
            assert set(rows) <= set(ids(day)), name
    finally:
        lake.spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert {one.partition for one in found(lake.files, "events")} == {f"queue=mail/date={DAY}"}


def test_an_id_behind_all_moments_ends_no_lake(lake: Lake) -> None:
    """Whoever writes to Redis may choose it, and all entries behind it have to follow."""
    beyond = ["253402300800000-0", f"{2**63 - 1}-0", f"{2**64 - 1}-{2**64 - 1}"]
    rows = lake.add() + lake.bring(beyond)
    assert ids(lake.read()) == sorted(rows)
    last = [one.partition for one in found(lake.files, "events") if "9999" in one.partition]
    assert last == ["queue=mail/date=9999-12-31"]
    until = datetime(2100, 1, 1, tzinfo=UTC)
    assert ids(read(lake.spark, lake.path, until=until)) == sorted(set(rows) - set(beyond))


def test_a_default_file_system_that_is_an_object_store_is_refused(spark: SparkSession) -> None:
    """The path names no file system; the reason is told before the client of it is loaded."""
    configuration = spark._jsc.hadoopConfiguration()
    usual = configuration.get("fs.defaultFS")
    configuration.set("fs.defaultFS", "s3a://bucket")
    try:
        with pytest.raises(ConfigError, match=r"object store \(s3a:\).*rows would be lost"):
            Files(spark, "/data/lake")
        assert Files(spark, "file:/data/lake").root == "file:/data/lake"
    finally:
        configuration.set("fs.defaultFS", usual)
