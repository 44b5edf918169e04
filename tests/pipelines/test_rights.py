"""Users that may do what the page lists, and nothing else, can do what it is listed for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chasquimq import Job
from chasquimq.config import DialectName
from chasquimq.spark import right
from chasquimq.spark.act import purge, replay
from chasquimq.spark.work import SparkWorker
from chasquimq.store.exam.right import needed, talked
from chasquimq.wire import Keys
from tests.house.tree import ROOT
from tests.pipelines.dying import Deaths
from tests.servers import DialectServer
from tests.spark.session import PORTABLE
from tests.spark_redis.test_right import known

PAGE = ROOT / "docs/how-to/spark/deploy.md"
KEYS = Keys("mail")


def listed(what: str) -> set[str]:
    """The commands that the page's table has for it."""
    [row] = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {what} |")]
    return {name.replace("\\|", "|") for name in re.findall(r"\+([a-z]+(?:\\\|[a-z]+)?)", row)}


READ, WRITE = listed("reading"), listed("writing")
ACT = listed("`chasqui spark replay` and `purge`")
WORK = listed("`chasqui spark work`")


def of_a_worker(server: DialectServer) -> set[str]:
    dialect: DialectName = "portable" if server.name == PORTABLE.name else "native"
    return {name for calls in (needed(KEYS, dialect), talked(KEYS)) for name, _ in calls}


def test_the_page_and_the_doctor_have_the_same_lists() -> None:
    assert {*dict(right.reading(KEYS))} == READ
    assert {*dict(right.writing(KEYS)), *right.ASKED} == WRITE
    assert {*dict(right.acting(KEYS))} == ACT
    assert {*dict(right.working(KEYS))} == WORK


@pytest.fixture
def deaths(server: DialectServer, queue_name: str) -> Deaths:
    return Deaths(server, queue_name)


def let_in(deaths: Deaths, commands: set[str], folder: Path) -> str:
    """The path of a file with the address of a user that may run these on the queue's keys."""
    user, tag = f"clerk-{deaths.queue}", f"{{chasqui:{deaths.queue}}}:*"
    rules = ["reset", "on", ">word", f"~{tag}", f"&{tag}", *(f"+{name}" for name in commands)]
    deaths.redis.execute_command("ACL", "SETUSER", user, *rules)
    address = folder / "address"
    address.write_text(deaths.url.replace("//", f"//{user}:word@"))  # not a secret
    return str(address)


def test_replay_and_purge_need_no_more(
    spark: SparkSession, server: DialectServer, deaths: Deaths, tmp_path: Path
) -> None:
    secret = {"secretFile": let_in(deaths, known(server, READ | WRITE | ACT), tmp_path)}
    deaths.numbered(6)
    dead = spark.read.format("chasqui").options(**secret, queue=deaths.queue, view="dlq").load()
    few = {*sorted(deaths.dead)[:2]}
    replay(dead.where(dead.entry_id.isin(few)), secret, rate=1_000)
    assert len(deaths.waiting) == 2
    purge(dead, secret)
    assert deaths.dead == {}


def handle(job: Job) -> int:
    if job.data["n"] % 2:
        raise ValueError("odd")
    return 1


def test_handlers_in_tasks_need_no_more(
    spark: SparkSession, server: DialectServer, deaths: Deaths, tmp_path: Path
) -> None:
    """With results, retries, jobs for later and the DLQ."""
    deaths.numbered(4)
    replay(
        spark.read.format("chasqui").options(url=deaths.url, queue=deaths.queue, view="dlq").load(),
        {"url": deaths.url},
    )
    secret = let_in(deaths, of_a_worker(server) | WORK, tmp_path)
    name = f"{__name__}:handle"
    work = SparkWorker(
        deaths.queue, name, secret_file=secret, tasks=2, max_attempts=1, store_results=True
    )
    rows = work.run(spark).collect()
    assert sorted(row.outcome for row in rows) == ["buried", "buried", "completed", "completed"]
    assert len(deaths.dead) == 2 and deaths.waiting == []
