"""A write without Spark: rows as dicts, tasks as calls, and what Redis has of it afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import redis
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from chasquimq import wire
from chasquimq.job import Envelope
from chasquimq.spark.options import SinkOptions, sink_options
from chasquimq.spark.write.run import Run
from chasquimq.spark.write.way import Way, Written, way
from chasquimq.wire import Keys

Row = dict[str, Any]

PAYLOAD = StructType([StructField("n", LongType()), StructField("text", StringType())])


def schema_of(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def batch(schema: StructType, rows: Sequence[Row]) -> pa.RecordBatch:
    """As Spark hands them over."""
    return pa.RecordBatch.from_pylist(list(rows), to_arrow_schema(schema, timezone="UTC"))


def batches(schema: StructType, rows: Sequence[Row], size: int = 10) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(rows), size):
        yield batch(schema, rows[first : first + size])


def sink(url: str = "redis://localhost", queue: str = "mail", **given: Any) -> SinkOptions:
    """`url` may be the name of an environment variable, as in $REDIS, or the path of a file."""
    named = {"$": {"urlEnv": url[1:]}, "/": {"secretFile": url}}
    where = named.get(url[0], {"url": url})
    return sink_options({"queue": queue, **where, **{k: str(v) for k, v in given.items()}})


def numbered(numbers: Iterable[int], **columns: Any) -> list[Row]:
    return [{"payload": {"n": n, "text": f"row {n}"}, **columns} for n in numbers]


class Writing:
    """One write into a queue, as a driver made it; `again()`: the same run in another driver."""

    def __init__(
        self,
        url: str,
        queue: str,
        columns: dict[str, DataType] | None = None,
        run_id: str | None = None,
        **given: Any,
    ) -> None:
        self.schema = schema_of(**{"payload": PAYLOAD, **(columns or {})})
        self.run = Run(queue, run_id or uuid.uuid4().hex)
        given = {"chunkRows": 10, **given}
        self.options = sink(url, queue, **given)
        self._given = (url, queue, columns)
        self._options = given

    def way(self) -> Way:
        return way(self.schema, self.options, self.run)

    def again(self, **given: Any) -> Writing:
        url, queue, columns = self._given
        return Writing(url, queue, columns, self.run.run_id, **{**self._options, **given})

    def task(
        self, rows: Sequence[Row], partition: int = 0, attempt: int = 0, size: int = 10
    ) -> Written:
        return self.feed(batches(self.schema, rows, size), partition, attempt)

    def feed(self, fed: Iterator[pa.RecordBatch], partition: int = 0, attempt: int = 0) -> Written:
        told = self.way().write(partition, attempt, fed)
        assert isinstance(told, Written)
        return told

    def commit(self, *told: Written) -> None:
        self.way().commit(told)


class Found(NamedTuple):
    """A job that lies in Redis."""

    payload: Any
    name: str
    envelope: Envelope
    due_ms: int | None = None


class Shelf:
    """What Redis has of a queue."""

    def __init__(self, client: redis.Redis, queue: str) -> None:
        self.client = client
        self.keys = Keys(queue)

    def jobs(self) -> list[Found]:
        rows: list[Any] = self.client.xrange(self.keys.stream)
        return [found(fields[b"d"], fields.get(b"n", b"")) for _, fields in rows]

    def delayed(self) -> list[Found]:
        rows: list[Any] = self.client.zrange(self.keys.delayed, 0, -1, withscores=True)
        jobs = []
        for member, score in rows:
            name, envelope = wire.split_member(member)
            jobs.append(found(envelope, name)._replace(due_ms=int(score)))
        return jobs

    def numbers(self) -> list[int]:
        """What `numbered` made, in the order of the stream."""
        return [job.payload["n"] for job in self.jobs()]

    def run(self, run: Run) -> dict[str, str]:
        told: Any = self.client.hgetall(run.key)
        return {key.decode(): value.decode() for key, value in told.items()}

    def left(self, run: Run) -> list[bytes]:
        """The keys of a run beside its hash."""
        return sorted(self.client.scan_iter(match=run.key + b":*", count=10_000))

    def drain(self, most: int) -> list[int]:
        """Take the oldest, as workers do; their numbers."""
        rows: list[Any] = self.client.xrange(self.keys.stream, count=most)
        if rows:
            self.client.xdel(self.keys.stream, *[entry_id for entry_id, _ in rows])
        return [found(fields[b"d"], b"").payload["n"] for _, fields in rows]


def found(envelope: bytes, name: bytes) -> Found:
    read = wire.unpack_envelope(envelope)
    return Found(wire.decode(read.payload), name.decode(), read)
