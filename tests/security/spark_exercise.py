"""What Spark's roles do with a queue, every verb of it, as one user of the server. Without a JVM:
Spark calls these readers and writers as it is done here, on drivers and in tasks. The roles that
need one are in `tests/pipelines/exercise.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, get_args

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from chasquimq.address import read_url
from chasquimq.errors import QueueFullError
from chasquimq.spark import progress
from chasquimq.spark.client import Client
from chasquimq.spark.options import View
from chasquimq.spark.source import ChasquiSource
from chasquimq.spark.write.run import Run, run_of_batch
from chasquimq.spark.write.way import Way, way
from tests.engine.desk import Desk
from tests.security.exercise import Role
from tests.spark_redis.reading import fill_every_view
from tests.spark_redis.staging import Write
from tests.spark_redis.writing import Row, Writing, batches, numbered

QUEUE = StructType([StructField("queue", StringType())])  # a column of every view
ENTRY = StructType([StructField("entry_id", StringType())])
HOUR_MS = 3_600_000
WAYS: tuple[dict[str, str], ...] = ({}, {"commitMode": "staged"}, {"idColumn": "id"})


def secret(role: Role) -> str:
    """The file with the role's address: one with a password is no option."""
    file = role.folder / "address"
    file.write_text(role.url)
    return str(file)


# -- reads -----------------------------------------------------------------------------------------


async def set_scene_of_reads(desk: Desk) -> None:
    await fill_every_view(desk)
    desk.redis.xadd(desk.keys.dlq, {"d": "x", "reason": "decode_failed"})


def read(role: Role) -> None:
    """Every view at once and in parts, entries by their ids; events and dead jobs as streams."""
    given = {"secretFile": secret(role), "queue": role.desk.name}
    for view in get_args(View):
        for parts in ({}, {"minPartitions": "3"}):
            assert _rows(ChasquiSource({**given, "view": view, **parts}).reader(QUEUE)), view
    dead = ChasquiSource({**given, "view": "dlq"}).reader(ENTRY)
    [entry_id, *_] = [one for batch in _batches(dead) for one in batch["entry_id"].to_pylist()]
    picky: Any = ChasquiSource({**given, "view": "dlq", "pushdown": "true"}).reader(ENTRY)
    picky.pushFilters([EqualTo(("entry_id",), entry_id)])
    assert _rows(picky) == 1
    for view in ("events", "dlq"):
        _follow({**given, "view": view, "maxOffsetsPerTrigger": "1", "minPartitions": "2"})


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    for part in reader.partitions():
        yield from reader.read(part)


def _rows(reader: Any) -> int:
    return sum(batch.num_rows for batch in _batches(reader))


def _follow(given: dict[str, str]) -> None:
    """Two batches, the second from the first one's end."""
    stream: Any = ChasquiSource(given).streamReader(QUEUE)
    stream.prepareForTriggerAvailableNow()
    offset = stream.initialOffset()
    for _ in range(2):
        begin, offset = offset, stream.latestOffset(offset, stream.getDefaultReadLimit())
        stream.reportLatestOffset()
        parts = stream.partitions(begin, offset)
        assert sum(batch.num_rows for part in parts for batch in stream.read(part)) == 1
        stream.commit(offset)
    stream.stop()


# -- writes ----------------------------------------------------------------------------------------


async def set_scene_of_writes(desk: Desk) -> None:
    """Nothing is there: whoever writes first makes the stream."""


def write(role: Role) -> None:
    """In every way: at once and later, at a rate, by attempts that overlap, once more when it is
    done; into a full queue, given up, as batches of a stream; and a look how far one is."""
    place, queue = secret(role), role.desk.name
    for number, given in enumerate(WAYS):
        for rate in ({}, {"rowsPerSecond": 1_000}):
            _write_twice(place, queue, f"{number}-{len(rate)}", {**given, **rate})
        _overflow(place, queue, given)
        for batch in (0, 1, 1):
            _write_batch(place, queue, f"query-{number}", batch, given)
    aside = Writing(place, queue, commitMode="staged")
    aside.way().write(0, 0, batches(aside.schema, numbered([1])))
    with Client(read_url(role.url)) as client:
        assert progress.look(client, aside.run).staged == 1
    aside.way().abort([])


def _columns(given: dict[str, Any], **more: DataType) -> dict[str, DataType]:
    return {**more, **({"id": StringType()} if "idColumn" in given else {})}


def _fitting(schema: StructType, rows: list[Row]) -> list[Row]:
    return [{name: row[name] for name in schema.names} for row in rows]


def _write_twice(place: str, queue: str, tag: str, given: dict[str, Any]) -> None:
    """The second attempt ends before the first, which has begun, has read a row."""
    columns = _columns(given, delay_ms=LongType(), name=StringType())
    writing = Writing(place, queue, columns, **given)
    rows = numbered([1], id=f"now {tag}", delay_ms=None, name="now")
    rows += numbered([2], id=f"later {tag}", delay_ms=HOUR_MS, name="later")
    asked = _fitting(writing.schema, rows)

    def slowly() -> Iterator[pa.RecordBatch]:
        writing.way().write(0, 1, batches(writing.schema, asked))
        yield from batches(writing.schema, asked)

    told = writing.way().write(0, 0, slowly())
    writing.way().commit([told])
    again = writing.way().write(0, 2, batches(writing.schema, asked))
    writing.way().commit([again])
    writing.way().abort([told])


def _overflow(place: str, queue: str, given: dict[str, Any]) -> None:
    """What is staged has its manifest by then, and is promised: whoever comes again finds it."""
    few = {"maxStreamLen": 3, "chunkRows": 2, "waitTimeoutMs": 30}
    writing = Writing(place, queue, _columns(given), **given, **few)
    rows = [row | {"id": f"full {n}"} for n, row in enumerate(numbered(range(6)))]
    fed = batches(writing.schema, _fitting(writing.schema, rows))
    if "commitMode" in given:
        told = writing.way().write(0, 0, fed)
        for _ in range(2):
            with pytest.raises(QueueFullError):
                writing.way().commit([told])
    else:
        with pytest.raises(QueueFullError):
            writing.way().write(0, 0, fed)
    writing.way().abort([])


def _write_batch(place: str, queue: str, query: str, batch: int, given: dict[str, Any]) -> None:
    writing = Writing(place, queue, _columns(given), **given)
    rows = _fitting(writing.schema, [row | {"id": query} for row in numbered([batch])])
    run = run_of_batch(queue, query, batch)
    door: Way = way(writing.schema, writing.options, run, streaming=True)
    door.commit([door.write(0, 0, batches(writing.schema, rows))])


# -- what writes have left behind ------------------------------------------------------------------


async def set_scene_of_recovery(desk: Desk) -> None:
    """Two runs whose drivers died over their manifests, with rows for later and a rate, one of them
    a batch of a stream; and one whose driver died before it had any."""
    columns = {"payload": LongType(), "delay_ms": LongType(), "id": StringType()}
    given: dict[str, Any] = {"columns": columns, "max_stream_len": 1, "on_full": "fail"}
    rows = [(1, 0, "a"), (2, 0, "b"), (3, HOUR_MS, "c")]
    for run in (run_of_batch(desk.name, "query", 1), Run(desk.name, "lost")):
        write = Write(desk.server.url, desk.name, run=run, rows_per_second=1_000.0, **given)
        stages = write.stage(0, rows[:2]), write.stage(1, rows)
        with pytest.raises(QueueFullError):
            write.commit(*stages)
    Write(desk.server.url, desk.name, "aside").stage(0, range(3))


async def recover(role: Role) -> None:
    """List what is not finished; bring it in, clear it away, give it up."""
    words = ("spark", "recover", role.desk.name)
    await role.call(
        words,
        (*words, "--complete", "--dry-run"),
        (*words, "query-1", "--max-stream-len", "100", "--yes"),
        (*words, "aside", "--abort", "--yes"),
        (*words, "lost", "--give-up", "--yes"),
        (*words, "--complete", "--yes"),
    )


async def _read(role: Role) -> None:
    await asyncio.to_thread(read, role)


async def _write(role: Role) -> None:
    await asyncio.to_thread(write, role)


SPARK = {
    "spark-reader": (set_scene_of_reads, _read),
    "spark-writer": (set_scene_of_writes, _write),
    "spark-recover": (set_scene_of_recovery, recover),
}
