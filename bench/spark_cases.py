"""What is measured of the Spark source and sink, and the plain loops beside it.

Every case moves the same rows. What a case says it moved is checked in Redis, outside of its time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import redis
import spark_field
import spark_plain
from arena import FailedRunError, ServerCpu
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count
from scenarios import PAYLOAD

READ, WRITTEN = "bench-read", "bench-written"
PLAIN = Path(spark_plain.__file__)
PLAIN_READ = "plain loop in one process"
PLAIN_WRITE = "plain loop in one process, pipelined XADD"
IN_TASKS = "pipelined XADD in tasks (foreachPartition)"
FIELDS = (
    "user_id BIGINT, action STRING, email STRING, amount BIGINT, currency STRING, retry BOOLEAN, "
    "locale STRING, template STRING, `order` STRING, ts BIGINT"
)


@dataclass(frozen=True)
class Measured:
    rows: int
    seconds: float
    server_cpu: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


@dataclass
class Stand:
    """Where cases run: a session, a server, and how many rows."""

    spark: SparkSession
    url: str
    client: redis.Redis
    rows: int
    _filled: set[str] = field(default_factory=set)

    def time(self, run: Callable[[], object], rows: int | None = None) -> Measured:
        cpu, begin = ServerCpu(self.client), time.perf_counter()
        run()
        seconds = time.perf_counter() - begin
        return Measured(rows or self.rows, seconds, cpu.spent())

    # -- reading -----------------------------------------------------------------------------------

    def fill(self, view: str) -> None:
        if view not in self._filled:
            spark_field.fill(self.url, READ, view, self.rows)
            self._filled.add(view)

    def frame(self, view: str, queue: str = READ, columns: str = "", **options: Any) -> DataFrame:
        reader = self.spark.read.format("chasqui").options(**options)
        if columns:
            reader = reader.schema(columns)
        return reader.option("url", self.url).option("queue", queue).option("view", view).load()

    def read(self, view: str, columns: str = "", **options: Any) -> Measured:
        self.fill(view)
        seen = Observation()
        frame = self.frame(view, columns=columns, **options).observe(seen, count("*").alias("rows"))
        measured = self.time(lambda: drain(frame))
        if seen.get["rows"] != self.rows:
            raise FailedRunError(f"{seen.get['rows']} of {self.rows} rows of {view} were read")
        return measured

    # -- writing -----------------------------------------------------------------------------------

    def payloads(self, rows: int | None = None) -> DataFrame:
        others = ", ".join(
            f"{json.dumps(value) if not isinstance(value, str) else repr(value)} AS `{name}`"
            for name, value in PAYLOAD.items()
            if name != "user_id"
        )
        numbers = self.spark.range(0, rows or self.rows, 1, numPartitions=2)
        return numbers.selectExpr(
            f"struct(id AS user_id, {others}) AS payload", "'job' AS name", "id AS number"
        )

    def write(self, rows: int | None = None, **options: Any) -> Measured:
        frame = self.payloads(rows)
        frame = (
            frame.selectExpr("payload", "name", "concat('job-', number) AS row_id")
            if "idColumn" in options
            else frame.drop("number")
        )
        writer = frame.write.format("chasqui").options(**options).option("queue", WRITTEN)
        writer = writer.option("url", self.url).option("maxStreamLen", 10_000_000)
        return self.written(lambda: writer.mode("append").save(), rows)

    def write_in_tasks(self, rows: int | None = None) -> Measured:
        for file in (PLAIN, PLAIN.with_name("scenarios.py")):
            self.spark.sparkContext.addPyFile(str(file))
        url = self.url

        def send(some: Iterable[Any]) -> None:
            from spark_plain import write

            write(url, WRITTEN, (row.payload.asDict() for row in some))

        return self.written(lambda: self.payloads(rows).foreachPartition(send), rows)

    def written(self, run: Callable[[], object], rows: int | None = None) -> Measured:
        """Into an empty queue; and each row must be there once."""
        spark_field.clear(self.client, WRITTEN)
        measured = self.time(run, rows)
        found = sorted(numbers(self.client, WRITTEN))
        if found != list(range(measured.rows)):
            raise FailedRunError(f"{len(found)} jobs, {len(set(found))} of {measured.rows} rows")
        return measured

    # -- beside it ---------------------------------------------------------------------------------

    def plain_read(self) -> Measured:
        self.fill("jobs")
        return self._plain(what="read", queue=READ)

    def plain_write(self) -> Measured:
        seconds: list[Measured] = []

        def run() -> None:
            seconds.append(self._plain(what="write", queue=WRITTEN, rows=self.rows))

        self.written(run)
        return seconds[0]

    def _plain(self, **orders: Any) -> Measured:
        cpu = ServerCpu(self.client)
        command = [sys.executable, PLAIN, json.dumps({"url": self.url, **orders})]
        told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        if told["rows"] != self.rows:
            raise FailedRunError(f"the plain loop moved {told['rows']} of {self.rows} rows")
        return Measured(told["rows"], told["seconds"], cpu.spent())


def drain(frame: DataFrame) -> None:
    """Compute every row and every column, and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def numbers(client: redis.Redis, queue: str) -> Iterable[int]:
    """`user_id` of every job in the queue."""
    unpack: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
    every: Any = client
    key, start = spark_plain.stream(queue), b"-"
    while page := every.xrange(key, start, "+", 5_000):
        yield from (unpack(unpack(fields[b"d"])[1])["user_id"] for _, fields in page)
        start = b"(" + page[-1][0]


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[[Stand], Measured]
    against: tuple[str, ...] = ()  # other cases, of which the target is for the first
    target: float | None = None


READING = (
    Case(PLAIN_READ, Stand.plain_read),
    Case("jobs, JSON", lambda it: it.read("jobs"), (PLAIN_READ,), 1.5),
    Case("jobs, binary", lambda it: it.read("jobs", payloadFormat="binary"), (PLAIN_READ,), 2.0),
    Case("jobs, struct", lambda it: it.read("jobs", payloadSchema=FIELDS), (PLAIN_READ,)),
    Case("jobs, variant", lambda it: it.read("jobs", payloadFormat="variant"), (PLAIN_READ,)),
    Case(
        "jobs, id and name alone",
        lambda it: it.read("jobs", columns="id STRING, name STRING"),
        (PLAIN_READ,),
    ),
    Case("events", lambda it: it.read("events"), (PLAIN_READ,)),
    Case("dlq, JSON", lambda it: it.read("dlq"), (PLAIN_READ,)),
    Case("delayed, JSON", lambda it: it.read("delayed"), (PLAIN_READ,)),
)
BOTH = (PLAIN_WRITE, IN_TASKS)
WRITING = (
    Case(PLAIN_WRITE, Stand.plain_write),
    Case(IN_TASKS, Stand.write_in_tasks, (PLAIN_WRITE,)),
    Case("direct", lambda it: it.write(), BOTH, 1.0),
    Case("idColumn", lambda it: it.write(idColumn="row_id"), BOTH),
    Case("staged", lambda it: it.write(commitMode="staged"), BOTH),
)
CASES = (*READING, *WRITING)
