"""What Spark does with the reader of a stream, without Spark.

1. ask how far the next batch goes; 2. write that down; 3. cut it and read it; 4. commit.

`crash()` leaves whatever is written down and makes a new reader, which runs the last batch again
if it was not committed.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from chasquimq.spark.options import source_options
from chasquimq.spark.read.stream import StreamReader

SCHEMA = StructType([StructField("queue", StringType()), StructField("entry_id", StringType())])

Rows = list[tuple[str, str]]


class Follower:
    def __init__(self, url: str, queue: str, available_now: bool = False, **options: Any) -> None:
        self._given = {"view": "events", **options, "url": url, "queue": queue}
        self._available_now = available_now
        self.offsets: list[str] = []
        self.commits = 0
        self.reader = self._new_reader()

    def crash(self, **changed: Any) -> None:
        """And come back, with other options maybe."""
        self.close()
        self._available_now = changed.pop("available_now", self._available_now)
        self._given |= changed
        self.reader = self._new_reader()

    def close(self) -> None:
        self.reader.stop()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def plan(self) -> bool:
        """False where there is nothing to run."""
        if len(self.offsets) > self.commits:
            return True  # written down by one that crashed
        start = self._start()
        limit = self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(start, limit))
        if self.offsets and end == json.dumps(start):
            return False
        self.offsets.append(end)
        return True

    def parts(self) -> list[Any]:
        return list(self.reader.partitions(self._start(), json.loads(self.offsets[-1])))

    def read(self, parts: list[Any]) -> Rows:
        executor: StreamReader = pickle.loads(pickle.dumps(self.reader))
        return [row for part in parts for row in self._rows(executor, part)]

    def batch(self) -> Rows | None:
        """The rows of the next batch; None where there is none."""
        if not self.plan():
            return None
        rows = self.read(self.parts())
        self.commit()
        return rows

    def commit(self) -> None:
        self.commits += 1
        self.reader.commit(json.loads(self.offsets[-1]))

    def all(self) -> Rows:
        """Batch by batch until there is nothing more."""
        return [row for rows in self.batches() for row in rows]

    def batches(self) -> Iterator[Rows]:
        while (rows := self.batch()) is not None:
            yield rows

    @property
    def end(self) -> dict[str, Any]:
        offset: dict[str, Any] = json.loads(self.offsets[-1])
        return offset

    @property
    def limit(self) -> int | None:
        limit = self.reader.getDefaultReadLimit()
        return limit.max_rows if isinstance(limit, ReadMaxRows) else None

    def lag(self, queue: str) -> int:
        lag: int = self.reader.reportLatestOffset()[queue]["n"] - self.end[queue]["n"]
        return lag

    def _start(self) -> dict[str, Any]:
        start: dict[str, Any] = self.reader.initialOffset()
        if self.commits:
            start = json.loads(self.offsets[self.commits - 1])
        return start

    def _new_reader(self) -> StreamReader:
        given = {name: str(value) for name, value in self._given.items()}
        reader = StreamReader(SCHEMA, source_options(given))
        if self._available_now:
            reader.prepareForTriggerAvailableNow()
        return reader

    def _rows(self, executor: StreamReader, part: Any) -> Rows:
        found: Rows = []
        for batch in executor.read(pickle.loads(pickle.dumps(part))):
            columns = [batch.column(name).to_pylist() for name in ("queue", "entry_id")]
            found += zip(*columns, strict=True)
        return found


Follow = Callable[..., Follower]
