"""Queues that Spark wrote are drained by our workers and by the reference's; and Spark reads what
the reference wrote. (The reference speaks to native servers alone.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Row, SparkSession

from chasquimq import Job, wire
from tests.chaos.kit.wait import eventually
from tests.engine.desk import Desk
from tests.engine.desk import eventually as holds
from tests.interop.keys import Keys
from tests.interop.side import Side
from tests.servers import DIALECTS, DialectServer, Servers

HOUR_MS = 3_600_000
START_MS = 2_051_222_400_000  # 2035
FAILS = 2  # runs of every job, before it succeeds
WORK: dict[str, Any] = {"concurrency": 4, "read_block_ms": 200}

SCHEMA = """
    payload STRUCT<
        order: BIGINT, total: DOUBLE, paid: BOOLEAN, note: STRING, raw: BINARY,
        lines: ARRAY<STRUCT<text: STRING, count: INT>>, tags: MAP<STRING, ARRAY<BIGINT>>>,
    name STRING, id STRING, delay_ms BIGINT, max_attempts INT,
    backoff STRUCT<kind: STRING, delay_ms: BIGINT, multiplier: DOUBLE, jitter_ms: BIGINT>
"""


class Order(NamedTuple):
    """A row, and what must come of it."""

    data: dict[str, Any]
    name: str | None = None
    job_id: str | None = None
    delay_ms: int | None = None
    max_attempts: int | None = None
    backoff: tuple[str, int, float | None, int] | None = None
    pauses: list[int] | None = None  # between its runs; None: the worker's own

    @property
    def number(self) -> int:
        return int(self.data["order"])


def data(number: int, **fields: Any) -> dict[str, Any]:
    unknown = dict.fromkeys(("total", "paid", "note", "raw", "lines", "tags"))
    return {"order": number, **unknown, **fields}


FULL = data(
    -(2**63),
    total=1.5,
    paid=True,
    note="ñandú 🦙",
    raw=b"\x00\xff",
    lines=[{"text": "a", "count": 1}, {"text": "", "count": None}],
    tags={"ids": [1, 2**63 - 1], "none": []},
)
ORDERS = [
    Order(FULL, "full", "full-1"),
    Order(data(1)),
    Order(data(2), "naïve-名前-🦙", None, 0),
    Order(data(3), "n" * 256, None, None, 9, ("fixed", 30, None, 0), [30, 30]),
    Order(data(4), "later", "later-1", 150),
    Order(data(5), "later", None, 200, None, ("exponential", 20, 3.0, 0), [20, 60]),
    Order(data(6), "much later", "later-2", HOUR_MS),
    Order(data(7), "doomed", "doomed-1", None, FAILS, ("fixed", 20, None, 0), [20]),
]
RUN = [one for one in ORDERS if one.delay_ms != HOUR_MS]
RUNS = sum(FAILS if one.name == "doomed" else FAILS + 1 for one in RUN)


def write(spark: SparkSession, url: str, queue: str) -> None:
    rows = [one[:6] for one in ORDERS]
    frame = spark.createDataFrame(rows, SCHEMA).repartition(2)
    frame.write.format("chasqui").options(queue=queue, url=url).mode("append").save()


class Run(NamedTuple):
    id: str
    name: str
    data: Any
    attempt: int


def check_arrived(seen: list[Run], keys: Keys) -> None:
    """Every job as it was written, as often as it says, after the pauses that it asks for."""
    assert len(seen) == RUNS
    pauses: dict[str, list[int]] = {}
    for _, told in keys.client.xrange(keys.stream.removesuffix("stream") + "events"):
        if told[b"e"] == b"retry-scheduled":
            pauses.setdefault(told[b"id"].decode(), []).append(int(told[b"backoff_ms"]))
    for one in RUN:
        runs = [run for run in seen if run.data["order"] == one.number]
        assert [run.attempt for run in runs] == list(range(len(runs)))
        assert len(runs) == (one.max_attempts if one.name == "doomed" else FAILS + 1)
        (job_id,) = {run.id for run in runs}
        assert job_id == one.job_id or (one.job_id is None and len(job_id) == 26)
        assert all(run.name == (one.name or "") and run.data == one.data for run in runs)
        assert one.pauses is None or pauses[job_id] == one.pauses
    ((_, dead),) = keys.client.xrange(keys.dlq)
    assert (dead[b"n"], dead[b"reason"]) == (b"doomed", b"retries_exhausted")


def check_delayed(keys: Keys, before_ms: int, after_ms: int) -> None:
    """What is to run later waits for its time, by the server's clock."""
    found = keys.client.zrange(keys.delayed, 0, -1, withscores=True)
    due = [(wire.unpack_envelope(wire.split_member(member)[1]), ms) for member, ms in found]
    wanted = {wire.encode(one.data): one.delay_ms or 0 for one in ORDERS if one.delay_ms}
    assert {envelope.payload for envelope, _ in due} == set(wanted)
    for envelope, ms in due:
        assert before_ms <= envelope.created_at_ms <= after_ms
        assert before_ms <= ms - wanted[envelope.payload] <= after_ms


@pytest.fixture(params=[pytest.param(DIALECTS[0], id=DIALECTS[0].name)])
def native(request: pytest.FixtureRequest, servers: Servers) -> DialectServer:
    return servers.shared(request.param)


@pytest.fixture
def reference(native: DialectServer, queue_name: str, tmp_path: Path) -> Iterator[Side]:
    with Side("reference", native.url, queue_name, tmp_path / "stderr") as side:
        yield side


# -- Spark writes ------------------------------------------------------------------------------


async def test_our_workers_drain_what_spark_wrote(
    spark: SparkSession, dialect_server: DialectServer, queue_name: str
) -> None:
    desk, keys = Desk(dialect_server, queue_name), Keys(dialect_server, queue_name)
    before_ms = keys.now_ms()
    write(spark, dialect_server.url, queue_name)
    check_delayed(keys, before_ms, keys.now_ms())
    seen: list[Run] = []

    async def handle(job: Job) -> None:
        seen.append(Run(job.id, job.name, job.data, job.attempt))
        if job.attempt < FAILS:
            raise RuntimeError("as ordered")

    async with desk.working(handle, max_attempts=25):
        await holds(lambda: len(seen) == RUNS and len(desk.dead()) == 1)
        await holds(lambda: desk.waiting() == 0 and desk.delayed() == 1)
    check_arrived(seen, keys)
    async with desk.queue() as queue:
        assert await queue.cancel_delayed("later-2") is True


def test_workers_of_the_reference_drain_what_spark_wrote(
    spark: SparkSession, native: DialectServer, queue_name: str, reference: Side
) -> None:
    keys = Keys(native, queue_name)
    before_ms = keys.now_ms()
    write(spark, native.url, queue_name)
    check_delayed(keys, before_ms, keys.now_ms())
    reference.work(fail_below=FAILS, **WORK)
    seen = reference.wait_seen(RUNS)
    keys.wait_dead(1)
    eventually(lambda: keys.client.xlen(keys.stream) == 0)
    check_arrived([Run(*run[:4]) for run in seen], keys)
    assert reference.cancel_delayed("later-2") is True
    assert keys.client.zcard(keys.delayed) == 0


# -- Spark reads -------------------------------------------------------------------------------


def view(spark: SparkSession, url: str, queue: str, name: str) -> list[Row]:
    reader = spark.read.format("chasqui").options(queue=queue, url=url, view=name)
    rows = reader.load().collect()
    assert all(row.queue == queue and row._corrupt_record is None for row in rows)
    return rows


def ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def test_spark_reads_the_jobs_and_specs_that_the_reference_wrote(
    spark: SparkSession, native: DialectServer, queue_name: str, reference: Side
) -> None:
    keys = Keys(native, queue_name)
    backoff = {"kind": "exponential", "delay_ms": 10, "max_delay_ms": 90, "multiplier": 1.5}
    added = [
        reference.add("名前", {"n": 1, "deep": [None, {"a": 1.5}]}),
        reference.add("", "text", job_id="ñ-id"),
        reference.add("careful", [2**64 - 1], attempts=3, backoff={**backoff, "jitter_ms": 7}),
    ]
    later = reference.add("later", None, delay_ms=HOUR_MS, job_id="later", attempts=4)
    berlin = {"kind": "cron", "expression": "0 9 * * 1-5", "tz": "Europe/Berlin"}
    cron = reference.upsert("report", {"a": 1}, repeat=berlin, limit=5)
    every = reference.upsert(
        "", None, repeat={"kind": "every", "interval_ms": HOUR_MS}, start_after_ms=START_MS
    )
    created = keys.created_at_ms()

    rows = {row.id: row for row in view(spark, native.url, queue_name, "jobs")}
    assert rows.keys() == {job.id for job in added}
    for job in added:
        row = rows[job.id]
        assert (row.name or "", row.attempt) == (job.name, 0)
        assert json.loads(row.payload) == job.data
        assert ms(row.created_at) == created[job.id]
        assert ms(row.enqueued_at) == int(row.entry_id.partition("-")[0])
    careful = rows[added[2].id]
    assert careful.max_attempts == 3
    assert careful.backoff.asDict() == {**backoff, "jitter_ms": 7}
    assert [rows[job.id].max_attempts for job in added[:2]] == [None, None]
    assert [rows[job.id].backoff for job in added[:2]] == [None, None]

    (delayed,) = view(spark, native.url, queue_name, "delayed")
    assert (delayed.id, delayed.name, delayed.payload) == ("later", "later", "null")
    assert (delayed.max_attempts, ms(delayed.created_at)) == (4, created[later.id])
    assert ms(delayed.run_at) == keys.client.zrange(keys.delayed, 0, 0, withscores=True)[0][1]

    specs = {row.key: row for row in view(spark, native.url, queue_name, "repeatables")}
    assert specs.keys() == {cron, every}
    assert specs[cron][2:5] == ("report", "0 9 * * 1-5", "Europe/Berlin")
    assert (specs[cron].limit, specs[cron].fired) == (5, 0)
    assert specs[every][2:5] == (None, f"every:{HOUR_MS}", None)
    assert (specs[every].limit, ms(specs[every].start_after)) == (None, START_MS)
    for key, row in specs.items():
        assert ms(row.next_fire) == keys.score(key)


def test_spark_reads_what_workers_of_the_reference_left(
    spark: SparkSession, native: DialectServer, queue_name: str, reference: Side
) -> None:
    keys = Keys(native, queue_name)
    doomed = reference.add("名前", {"n": 1}, attempts=2, backoff=20)
    fine = reference.add("echo", {"n": [2]}, attempts=3, backoff=20)
    reference.work(fail_below=2, echo=True, store_results=True, **WORK)
    keys.wait_dead(1)
    reference.wait_seen(5)
    keys.wait_drained()
    reference.stop()

    (dead,) = view(spark, native.url, queue_name, "dlq")
    ((dlq_id, fields),) = keys.client.xrange(keys.dlq)
    assert (dead.id, dead.name, dead.reason) == (doomed.id, "名前", "retries_exhausted")
    assert (dead.entry_id, dead.source_id) == (dlq_id.decode(), fields[b"source_id"].decode())
    assert ms(dead.failed_at) == int(dlq_id.partition(b"-")[0])
    assert json.loads(dead.payload) == {"n": 1}
    assert (dead.detail, dead.error_type, dead.error) == (None, None, None)

    (result,) = view(spark, native.url, queue_name, "results")
    assert (result.job_id, json.loads(result.value)) == (fine.id, {"n": [2]})
    assert result.ttl_ms is None or result.ttl_ms > 0

    events = view(spark, native.url, queue_name, "events")
    written = keys.client.xrange(keys.stream.removesuffix("stream") + "events")
    assert [row.entry_id for row in events] == [entry_id.decode() for entry_id, _ in written]
    for row, (_, told) in zip(events, written, strict=True):
        texts = {name.decode(): value.decode() for name, value in told.items()}
        assert (row.event, row.job_id or "", row.name) == (
            texts["e"],
            texts["id"],
            texts.get("n") or None,
        )
        assert ms(row.ts) == int(texts["ts"])
        for name in ("attempt", "backoff_ms", "delay_ms", "duration_us"):
            assert row[name] == (int(texts[name]) if name in texts else None)
        assert row.reason == texts.get("reason")
    assert {"active", "failed", "retry-scheduled", "completed", "dlq"} <= {
        row.event for row in events
    }
