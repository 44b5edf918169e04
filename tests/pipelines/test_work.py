"""Handlers on executors: rows say what Redis and the handlers saw."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from pyspark import TaskContext
from pyspark.sql import SparkSession

from chasquimq import BackoffSpec, ConfigError, Job, Queue, Router, UnrecoverableError, Worker, wire
from chasquimq.spark.secret import Where
from chasquimq.spark.task import group, ledger
from chasquimq.spark.task.burst import drive
from chasquimq.spark.task.ledger import SCHEMA
from chasquimq.spark.work import Orders, SparkWorker, run_task
from tests.chaos.kit.wait import eventually
from tests.servers import DIALECTS, DialectServer, Servers

HERE = "tests.pipelines.test_work"
LATER = BackoffSpec.fixed(3_600_000, jitter_ms=0)
PATIENCE_S = 60.0


# -- handlers, as executors import them ------------------------------------------------------------


def handle(job: Job) -> Any:
    """As its name says; and it notes that it ran."""
    with redis.Redis.from_url(job.data["url"]) as client:
        client.rpush(job.data["seen"], json.dumps([job.data["n"], job.name, job.attempts_made]))
        if job.name == "slow":
            client.blpop(job.data["seen"] + ":go", timeout=60)
    if job.name == "bad":
        raise ValueError(f"bad luck with {job.data['n']}")
    if job.name == "hopeless":
        raise UnrecoverableError("never")
    return {"square": job.data["n"] ** 2}


async def handle_soon(job: Job) -> Any:
    return await asyncio.to_thread(handle, job)


def quietly(job: Job) -> None:
    pass


router = Router({"good": handle})
router.otherwise(handle_soon)
worker = Worker("elsewhere", handle)


# -- what a test has -------------------------------------------------------------------------------


class Place:
    """A queue, and what became of its jobs, as Redis knows it."""

    def __init__(self, server: DialectServer, queue: str) -> None:
        self.url = server.url
        self.queue = queue
        self.keys = wire.Keys(queue)
        self.client: Any = server.client()

    def add(self, names: list[str], **options: Any) -> list[str]:
        """Jobs of these names, numbered; answers their ids."""

        async def main() -> list[str]:
            data = {"url": self.url, "seen": f"seen:{self.queue}"}
            jobs = [
                {"name": name, "data": {**data, "n": n}, **options} for n, name in enumerate(names)
            ]
            async with Queue(self.queue, redis_url=self.url) as door:
                return [job.id for job in await door.add_bulk(jobs)]

        return asyncio.run(main())

    def work(self, handler: Any = handle, **options: Any) -> SparkWorker:
        return SparkWorker(self.queue, handler, url=self.url, **{"tasks": 2, **options})

    def seen(self) -> list[Any]:
        """Number, name and earlier runs of each run, as its handler saw them."""
        return [json.loads(one) for one in self.client.lrange(f"seen:{self.queue}", 0, -1)]

    def go(self) -> None:
        self.client.rpush(f"seen:{self.queue}:go", *range(100))

    def ids(self, key: bytes) -> list[str]:
        """Of the jobs in a stream."""
        entries = self.client.xrange(key)
        return sorted(msgspec.msgpack.decode(fields[b"d"])[0] for _, fields in entries)

    def delayed(self) -> list[str]:
        members = self.client.zrange(self.keys.delayed, 0, -1)
        return sorted(wire.unpack_envelope(wire.split_member(one)[1]).id for one in members)

    def pending(self) -> int:
        return int(self.client.xpending(self.keys.stream, "default")["pending"])


@pytest.fixture
def place(server: DialectServer, queue_name: str) -> Place:
    return Place(server, queue_name)


@pytest.fixture
def native(servers: Servers, queue_name: str) -> Place:
    """For what does not depend on the server."""
    return Place(servers.shared(DIALECTS[0]), queue_name)


# -- outcomes --------------------------------------------------------------------------------------


def test_rows_say_what_redis_and_the_handlers_saw(spark: SparkSession, place: Place) -> None:
    names = ["good"] * 20 + ["bad"] * 3 + ["hopeless"] * 2
    ids = place.add(names)
    found = place.work(store_results=True, backoff=LATER).run(spark)
    rows = {row.job_id: row for row in found.collect()}
    assert found.count() == len(rows) == 25, "one row for each run"
    assert sorted(n for n, _, _ in place.seen()) == list(range(25)), "counting ran nothing again"
    by_name = {
        name: [job for job, its in zip(ids, names, strict=True) if its == name]
        for name in set(names)
    }
    outcomes = {"good": "completed", "bad": "retried", "hopeless": "buried"}
    for job_id, name in zip(ids, names, strict=True):
        row = rows[job_id]
        assert (row.name, row.outcome, row.attempt) == (name, outcomes[name], 1)
        assert row.queue == place.queue and row.consumer == f"spark-{row.run}-{row.task}"
        assert row.duration_us > 0 and row.started_at.year >= 2026
    n = ids.index(by_name["bad"][0])
    bad, hopeless = rows[ids[n]], rows[by_name["hopeless"][0]]
    assert (bad.error_type, bad.error, bad.reason) == ("ValueError", f"bad luck with {n}", None)
    assert (hopeless.error_type, hopeless.reason) == ("UnrecoverableError", "unrecoverable")
    assert {row.error for row in rows.values() if row.outcome == "completed"} == {None}
    # ... and what Redis has
    assert place.ids(place.keys.stream) == []
    assert place.delayed() == sorted(by_name["bad"])
    assert place.ids(place.keys.dlq) == sorted(by_name["hopeless"])
    for job_id in by_name["good"]:
        kept = msgspec.msgpack.decode(place.client.get(place.keys.result(job_id)))
        assert kept == {"square": ids.index(job_id) ** 2}
    assert place.client.xinfo_consumers(place.keys.stream, "default") == [], "they left"


def test_what_can_never_run_has_a_row(spark: SparkSession, place: Place) -> None:
    place.client.xadd(place.keys.stream, {"d": b"\xc1 this is no envelope"})
    place.add(["good"])
    rows = {row.outcome: row for row in place.work(tasks=1).run(spark).collect()}
    assert sorted(rows) == ["buried", "completed"]
    assert (rows["buried"].reason, rows["buried"].attempt) == ("decode_failed", 0)
    assert rows["buried"].job_id is None and rows["buried"].duration_us is None


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(f"{HERE}:handle", id="name"),
        pytest.param(f"{HERE}:router", id="name of a Router"),
        pytest.param({"good": handle, "bad": handle_soon}, id="mapping"),
        pytest.param(router, id="Router"),
        pytest.param(handle_soon, id="async def"),
    ],
)
def test_a_handler_is_what_a_worker_takes(spark: SparkSession, native: Place, handler: Any) -> None:
    native.add(["good", "bad"])
    rows = native.work(handler, tasks=1, backoff=LATER).run(spark).collect()
    assert sorted((row.name, row.outcome) for row in rows) == [
        ("bad", "retried"),
        ("good", "completed"),
    ]
    assert sorted(native.seen()) == [[0, "good", 0], [1, "bad", 0]]


def test_attempts_are_those_of_any_worker(spark: SparkSession, place: Place) -> None:
    """Due retries are run by the next burst, and the budget ends where it ends."""
    [job_id] = place.add(["bad"])
    work = place.work(tasks=1, max_attempts=3, backoff=BackoffSpec.fixed(1, jitter_ms=0))
    told: list[Any] = []
    while not place.client.xlen(place.keys.dlq):
        assert len(told) < 3
        told += work.run(spark).collect()
    assert [(row.attempt, row.outcome, row.reason) for row in told] == [
        (1, "retried", None),
        (2, "retried", None),
        (3, "buried", "retries_exhausted"),
    ]
    assert [made for _, _, made in place.seen()] == [0, 1, 2]
    assert place.ids(place.keys.dlq) == [job_id]


def test_a_share_is_all_that_a_task_takes(spark: SparkSession, native: Place) -> None:
    native.add(["good"] * 20)
    rows = native.work(tasks=2, share=4).run(spark).collect()
    assert Counter(row.task for row in rows) == {0: 4, 1: 4}
    assert native.client.xlen(native.keys.stream) == 12 and native.pending() == 0


def test_as_many_tasks_as_spark_finds_right(spark: SparkSession, native: Place) -> None:
    native.add(["good"] * 4)
    rows = native.work(tasks=None, share=2).run(spark).collect()
    assert {row.task for row in rows} == set(range(spark.sparkContext.defaultParallelism))


def test_rows_are_kept_in_files_beside_those_of_earlier_runs(
    spark: SparkSession, native: Place, tmp_path: Path
) -> None:
    out, work = str(tmp_path / "runs"), native.work()
    native.add(["good"] * 3)
    first = work.run(spark, out)
    native.add(["good"] * 2)
    second = work.run(spark, out)
    assert (first.count(), second.count()) == (3, 2)
    assert spark.read.parquet(out).groupBy("run").count().count() == 2
    assert len(native.seen()) == 5, "reading them ran nothing again"
    assert work.run(spark, out).count() == 0, "there was nothing to run"


def test_more_rows_than_leave_a_task_together(spark: SparkSession, native: Place) -> None:
    async def quick(job: Job) -> None:
        return None

    ids = native.add(["quick"] * 2_500)
    rows = native.work(quick, tasks=1, concurrency=100).run(spark)
    assert rows.where("outcome = 'completed'").select("job_id").distinct().count() == len(ids)


# -- beside others, and stopped --------------------------------------------------------------------


def test_a_queue_is_shared_with_a_worker_outside(spark: SparkSession, place: Place) -> None:
    place.add(["good"] * 60)
    own: list[str] = []

    async def outside() -> None:
        async def run(job: Job) -> Any:
            own.append(job.id)
            return await asyncio.to_thread(handle, job)

        door = Worker(place.queue, run, redis_url=place.url, concurrency=1)
        working = asyncio.create_task(door.run())
        rows.extend((await asyncio.to_thread(place.work().run, spark)).collect())
        await door.close()
        await working

    rows: list[Any] = []
    asyncio.run(outside())
    assert sorted(n for n, _, _ in place.seen()) == list(range(60)), "each ran once"
    assert len(own) + len(rows) == 60 and not {row.job_id for row in rows} & set(own)
    assert place.client.xlen(place.keys.stream) == 0


def test_it_can_be_stopped_and_gives_back_what_did_not_end(
    spark: SparkSession, native: Place
) -> None:
    ids = native.add(["slow"] * 6)
    work = native.work(drain_ms=100)
    rows: list[Any] = []
    running = threading.Thread(target=lambda: rows.extend(work.run(spark).collect()))
    running.start()
    eventually(lambda: len(native.seen()) == 2, PATIENCE_S)
    with pytest.raises(ConfigError, match="runs already"):
        work.run(spark)
    work.stop()
    running.join(PATIENCE_S)
    native.go()  # for threads that still wait: a plain function cannot be cancelled
    assert [(row.outcome, row.attempt) for row in rows] == [("given_back", 1)] * 2
    assert native.ids(native.keys.stream) == sorted(ids) and native.pending() == 0
    assert not native.client.keys(f"*{native.queue}*spark-work*"), "the next run is not stopped"


def test_a_copy_of_a_task_runs_nothing_while_the_task_lives(
    spark: SparkSession, place: Place
) -> None:
    """Speculation makes copies of tasks that take long, and ends the slower of the two."""
    place.add(["slow", "good"])
    options = place.work()._options
    orders = Orders(uuid.uuid4().hex[:12], place.queue, handle, Where(url=place.url), options)
    answers: dict[int, list[Any]] = {}

    def attempt(number: int) -> None:
        def work(batches: Any) -> Any:
            for _ in batches:
                pass
            task = TaskContext.get()
            assert task is not None
            task._attemptNumber = number
            group.COPY_S = 0.0
            yield from run_task(orders)

        rows = spark.range(0, 1, 1, 1).mapInArrow(work, SCHEMA)
        answers[number] = rows.collect()

    both = [threading.Thread(target=attempt, args=[number]) for number in (0, 1)]
    both[0].start()
    eventually(lambda: place.seen() == [[0, "slow", 0]], PATIENCE_S)
    both[1].start()
    clients = place.client.client_list
    eventually(lambda: "xinfo|consumers" in [one["cmd"] for one in clients()], PATIENCE_S)
    assert 1 not in answers and len(place.seen()) == 1
    place.go()
    for thread in both:
        thread.join(PATIENCE_S)
    assert [row.outcome for row in answers[0]] == ["completed"] * 2
    assert answers[1] == [] and len(place.seen()) == 2


def test_a_worker_whose_rows_nobody_takes_stops_and_gives_back(
    native: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a query is cancelled and Spark closes the task's rows."""
    monkeypatch.setattr(ledger, "BATCH", 1)
    native.add(["good"] * 20)
    rows = ledger.Ledger("r", native.queue, 0, "spark-r-0")
    door = Worker(
        native.queue, handle, redis_url=native.url, concurrency=1, burst=True, tracing=rows
    )
    pages = drive(door, rows)
    assert [row["outcome"] for row in next(pages).to_pylist()] == ["completed"]
    pages.close()
    left = native.client.xlen(native.keys.stream)
    assert door.is_closed and native.pending() == 0
    assert 0 < left == 20 - len(native.seen())
    assert "chasqui-burst" not in [one.name for one in threading.enumerate()]
