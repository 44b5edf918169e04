"""A staged write without Spark: its tasks here, its driver here or in a process of its own."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
import redis
from pyspark.sql.types import DataType, LongType, StringType, StructType

from chasquimq import wire
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.secret import Where
from chasquimq.spark.write.run import Run
from chasquimq.spark.write.staged import Stage, Staged
from chasquimq.wire import Keys

NUMBERS: dict[str, DataType] = {"payload": LongType()}
TEXTS: dict[str, DataType] = {"payload": StringType()}
BATCH = 10  # rows of an Arrow batch
_ARROW: dict[DataType, pa.DataType] = {LongType(): pa.int64(), StringType(): pa.string()}


class Write:
    """One run of a queue. Another of the same `run_id` is the same run, in another driver."""

    def __init__(self, url: str, queue: str, run_id: str = "run", **options: Any) -> None:
        self.columns: dict[str, DataType] = options.pop("columns", NUMBERS)
        self.run = options.pop("run", None) or Run(queue, run_id, write=uuid.uuid4().hex)
        self.options = SinkOptions(where=Where(url=url), queue=queue, **options)
        schema = StructType()
        for name, kind in self.columns.items():
            schema = schema.add(name, kind)
        self.way = Staged(schema, self.options, self.run)

    def stage(self, partition: int, values: Iterable[Any], attempt: int = 0) -> Stage:
        """What a task does with its rows: payloads, or tuples of all columns."""
        told = self.way.write(partition, attempt, self._batches(iter(values)))
        assert isinstance(told, Stage)
        return told

    def commit(self, *stages: Stage) -> None:
        self.way.commit(stages)

    @contextmanager
    def driver(self, *stages: Stage) -> Iterator[subprocess.Popen[bytes]]:
        """A process of its own that commits. Leaving ends it, if it is still there."""
        with subprocess.Popen(
            [sys.executable, "-m", "tests.spark_redis.driver"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            try:
                process.stdin.write(pickle.dumps((self.way, list(stages))))
                process.stdin.close()
                yield process
            finally:
                process.kill()

    def _batches(self, rows: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        while page := list(itertools.islice(rows, BATCH)):
            tuples = [row if isinstance(row, tuple) else (row,) for row in page]
            arrays = [
                pa.array(list(column), _ARROW[kind])
                for column, kind in zip(
                    zip(*tuples, strict=True), self.columns.values(), strict=True
                )
            ]
            yield pa.record_batch(arrays, names=list(self.columns))


class Shelf:
    """What Redis holds of a queue."""

    def __init__(self, client: redis.Redis, queue: str) -> None:
        self.client = client
        self.keys = Keys(queue)

    def payloads(self) -> list[Any]:
        """Of the jobs that can be seen, in their order."""
        return [payload(fields[b"d"]) for _, fields in self.client.xrange(self.keys.stream)]

    def depth(self) -> int:
        return int(self.client.xlen(self.keys.stream))

    def take(self, count: int) -> list[Any]:
        """As a worker does: the oldest go."""
        rows = self.client.xrange(self.keys.stream, count=count)
        if rows:
            self.client.xdel(self.keys.stream, *(entry_id for entry_id, _ in rows))
        return [payload(fields[b"d"]) for _, fields in rows]

    def fill(self, count: int) -> None:
        pipe = self.client.pipeline(transaction=False)
        for _ in range(count):
            pipe.xadd(self.keys.stream, {"d": b"\x94\xa1x\xc4\x01\x01\x01\x00"})
        pipe.execute()

    def run(self, run: Run) -> dict[bytes, bytes]:
        return self.client.hgetall(run.key)  # type: ignore[return-value]

    def state(self, run: Run) -> str | None:
        state = self.client.hget(run.key, "state")
        return state.decode() if state else None  # type: ignore[union-attr]

    def left(self) -> set[bytes]:
        """All keys of the sink but the runs themselves and what queries have done."""
        prefix = self.keys.tag + b"spark:"
        keys = {key for key in self.client.scan_iter(count=1_000) if key.startswith(prefix)}
        return {key[len(prefix) :] for key in keys if b":" in key[len(prefix) :]} - self.aborted()

    def aborted(self) -> set[bytes]:
        """What is remembered of writes that were."""
        prefix = self.keys.tag + b"spark:"
        found = set(self.client.scan_iter(match=b"*:aborted:*", count=1_000))
        return {key[len(prefix) :] for key in found if key.startswith(prefix)}


def payload(envelope: bytes) -> Any:
    return msgspec.msgpack.decode(wire.unpack_envelope(envelope).payload)
