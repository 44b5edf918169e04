"""What those of Spark's roles do that need a JVM, every verb of it, as one user of the server: dead
jobs are looked at, brought back and deleted, and handlers run in tasks. The others are in
`tests/security/spark_exercise.py`; here they come by the commands that people type.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import reduce
from pathlib import Path
from typing import get_args

from pyspark.sql import DataFrame, SparkSession

from chasquimq import Job, UnrecoverableError
from chasquimq.spark.act import purge, replay
from chasquimq.spark.options import View
from chasquimq.spark.work import SparkWorker
from tests.chaos.kit.wait import eventually
from tests.cli.kit import Chasqui
from tests.engine.desk import Desk
from tests.pipelines.dying import Deaths
from tests.security.exercise import EVERY_MINUTE, LEASE_MS, Role
from tests.security.spark_exercise import secret, set_scene_of_reads, set_scene_of_writes

HERE = __name__
PATIENCE_S = 60.0
Scene = Callable[[Desk], Awaitable[None]]


def call(role: Role, *commands: tuple[str, ...]) -> None:
    """Commands of `chasqui spark`, one after another; each must do what it says."""
    chasqui = Chasqui(role.desk.server)
    for words in commands:
        ended = chasqui.call("spark", *words, "--secret-file", secret(role))
        assert ended.code == 0, (words, ended)


# -- dead jobs -------------------------------------------------------------------------------------


async def set_scene_of_deaths(desk: Desk) -> None:
    """Some died, of one kind each; two of them with an id that is theirs alone until they are done.
    No stream is left: whoever brings a job back makes it."""
    deaths = Deaths(desk.server, desk.name)
    await asyncio.to_thread(deaths.numbered, 3)
    for job_id in ("own", "other"):
        job = {"name": "own", "data": {"say": "no"}, "job_id": job_id, "unique": "until_done"}
        await asyncio.to_thread(deaths.die, [job])
    desk.redis.delete(desk.keys.stream)


def triage(role: Role, spark: SparkSession) -> None:
    """Look at what died of what; bring back and delete, at a rate and as a trial, what a condition
    and what a DataFrame names, and what is gone."""
    queue = role.desk.name
    call(
        role,
        ("triage", queue),
        ("replay", queue, "--all", "--dry-run"),
        ("replay", queue, "--where", "id = 'own'", "--yes"),
        ("replay", queue, "--where", "name = 'n'", "--rate", "1000", "--yes"),
    )
    where = {"secretFile": secret(role)}
    gone = spark.createDataFrame([(queue, "1-1")], "queue STRING, entry_id STRING")
    assert [row.outcome for row in replay(gone, where).collect()] == ["gone"]
    assert [row.outcome for row in purge(gone, where).collect()] == ["gone"]
    call(role, ("purge", queue, "--all", "--yes"))


# -- handlers --------------------------------------------------------------------------------------


async def handle(job: Job) -> str | None:
    """In tasks: some jobs fail, one outlives its lease, and one lasts until it is stopped."""
    if job.name == "dies":
        raise UnrecoverableError("no")
    if job.name in ("fails", "unique") and job.attempt == 0:
        raise ValueError("not yet")
    if job.name == "long":
        await asyncio.sleep(LEASE_MS / 1000 * 1.5)
    if job.name == "held":
        Path(job.data).touch()
        await asyncio.Event().wait()
    return "done"


async def set_scene_of_work(desk: Desk) -> None:
    """Jobs for now and for later, specs that are due, and what others held who are gone: a worker,
    and a task of another run."""
    for consumer in ("ghost", "spark-0123456789ab-0"):
        desk.put(consumer, name="left")
        desk.abandon(1, consumer)
    desk.put("lost", name="lost")
    [entry] = desk.abandon(1, "ghost")
    desk.redis.xdel(desk.keys.stream, entry)  # pending, without a body
    async with desk.queue() as queue:
        await queue.add("later", None, delay_ms=1, job_id="due")
        await queue.add("unique", None, job_id="unique", unique="until_done", backoff=1)
        await queue.add("fails", None, attempts=2, backoff=1)
        for name in ("dies", "long", "plain"):
            await queue.add(name, None)
        await queue.upsert_repeatable_job("tick", None, repeat=EVERY_MINUTE, key="tick", limit=1)
        await queue.upsert_repeatable_job("tock", None, repeat=EVERY_MINUTE, key="tock")
    seconds, micros = desk.redis.time()
    for key in ("tick", "tock"):
        desk.redis.zadd(desk.keys.repeat, {key: seconds * 1000 + micros // 1000})  # due


def work(role: Role, spark: SparkSession) -> None:
    """Jobs, retries, burials, results, leases, due jobs and specs, what others left; a stop, and
    what is given back then; the command."""
    desk = role.desk
    worker = SparkWorker(
        desk.name,
        f"{HERE}:handle",
        secret_file=secret(role),
        tasks=2,
        concurrency=10,
        drain_ms=1,
        store_results=True,
        claim_min_idle_ms=LEASE_MS,
        run_scheduler=True,
    )
    rows = worker.run(spark).collect()
    done = {row.name for row in rows if row.outcome == "completed"}
    assert {"left", "later", "long", "plain", "tick", "tock"} <= done, rows
    assert {row.name for row in rows if row.outcome == "retried"} == {"fails", "unique"}
    began = role.folder / "began"
    desk.put("held", name="held", data=str(began))
    running = threading.Thread(target=lambda: rows.extend(worker.run(spark).collect()))
    running.start()
    eventually(began.exists, PATIENCE_S)
    assert worker.stop()
    running.join(PATIENCE_S)
    assert rows[-1].outcome == "given_back" and desk.waiting() == 1
    desk.redis.delete(desk.keys.stream, desk.keys.delayed)
    command = ("work", f"{HERE}:handle", "--queue", desk.name, "--tasks", "1")
    call(role, command)  # which makes the stream and the group
    desk.put("plain", name="plain")
    desk.put("fails", name="fails")  # the first of those for later, which promoters are told
    call(role, command)
    assert desk.waiting() == 0


# -- reads and writes, as Spark calls them ---------------------------------------------------------


def read(role: Role, spark: SparkSession) -> None:
    """Every view, and the events on their way into a lake."""
    given, views = {"secretFile": secret(role), "queue": role.desk.name}, get_args(View)
    source = spark.read.format("chasqui").options(**given)
    rows = [source.option("view", one).load().selectExpr(f"'{one}' AS view") for one in views]
    found = {row.view for row in reduce(DataFrame.unionAll, rows).collect()}
    assert found == {*views}
    lake = str(role.folder / "lake")
    call(role, ("lake", role.desk.name, "--lake", lake, "--available-now", "--no-dlq"))


def write(role: Role, spark: SparkSession) -> None:
    """Rows of a file, aside and by their ids, and as a stream."""
    file, queue = role.folder / "rows" / "some.csv", role.desk.name
    file.parent.mkdir()
    file.write_text("user,n\nann,1\nbob,2\n")
    call(
        role,
        ("enqueue", queue, str(file), "--commit", "staged", "--delay", "1h"),
        ("enqueue", queue, str(file), "--id-column", "user", "--rate", "1000"),
    )
    rows = spark.readStream.schema("user STRING, n INT").csv(str(file.parent), header=True)
    given = {"secretFile": secret(role), "queue": queue}
    given["checkpointLocation"] = str(role.folder / "checkpoint")
    stream = rows.selectExpr("struct(*) AS payload").writeStream.format("chasqui")
    stream.options(**given).trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
    assert role.desk.waiting() == 4 and role.desk.delayed() == 2


EXERCISES = {
    "spark-triage": (set_scene_of_deaths, triage),
    "spark-worker": (set_scene_of_work, work),
}
COMMANDS = {
    "spark-reader": (set_scene_of_reads, read),
    "spark-writer": (set_scene_of_writes, write),
}
