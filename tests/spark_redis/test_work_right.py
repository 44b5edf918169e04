"""Handlers in tasks: what is refused is refused before the first of them runs. Without Spark: the
driver's part and one task, in this process."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chasquimq import Job, UnrecoverableError
from chasquimq.errors import AccessError
from chasquimq.spark import work
from chasquimq.spark.work import SparkWorker
from chasquimq.sync import Queue
from chasquimq.wire import Keys
from tests.security.users import listed
from tests.servers import DIALECTS, Dialect, DialectServer, Servers

PASSWORD = "c4nary"  # not a secret
JOBS = ("plain", "fails", "dies")
RUNS = {("plain", "completed"), ("fails", "retried"), ("fails", "completed"), ("dies", "buried")}


class Task:
    """The only one."""

    @staticmethod
    def get() -> Task:
        return Task()

    def partitionId(self) -> int:  # as Spark has it
        return 0

    def attemptNumber(self) -> int:
        return 0


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What tasks tell, without Spark between them and the driver."""
    found: list[dict[str, Any]] = []

    def run(spark: object, orders: work.Orders, tasks: int | None) -> None:
        for page in work.run_task(orders):
            found.extend(page.to_pylist())

    monkeypatch.setattr(work, "TaskContext", Task)
    monkeypatch.setattr(work, "_rows", run)
    monkeypatch.setattr(work, "_kept", lambda *kept: kept[1])
    return found


@pytest.mark.parametrize("dialect", [DIALECTS[0], DIALECTS[2]], ids=lambda one: one.name)
def test_whoever_lacks_a_right_runs_all_jobs_or_none(
    servers: Servers,
    dialect: Dialect,
    tmp_path: Path,
    rows: list[dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whichever it is. All: also settled, each once."""
    caplog.set_level(logging.CRITICAL)
    ran: Counter[str] = Counter()

    def handle(job: Job) -> str:
        ran[job.name] += 1
        if job.name == "dies":
            raise UnrecoverableError("no")
        if job.name == "fails" and job.attempt == 0:
            raise ValueError("not yet")
        return "done"

    may, place, keys = (
        listed("spark-worker", native=dialect is DIALECTS[0]),
        tmp_path / "a",
        Keys("mail"),
    )
    refused = set()
    with servers.private(dialect) as server:
        client = server.client()
        place.write_text(server.url.replace("//", f"//app:{PASSWORD}@"))
        for lacking in sorted(may):
            client.flushall()
            rows.clear()
            ran.clear()
            rules = (f"+{name}" for name in sorted(may - {lacking}))
            user = ("app", "reset", "on", f">{PASSWORD}", "~{chasqui:mail}:*", "&{chasqui:mail}:*")
            client.execute_command("ACL", "SETUSER", *user, *rules)
            with Queue("mail", redis_url=server.url) as queue:
                queue.add_bulk([{"name": name, "data": None, "backoff": 1} for name in JOBS])
            given = {"tasks": 1, "store_results": True, "max_runtime_ms": 20_000}
            worker = SparkWorker("mail", handle, secret_file=str(place), **given)
            try:
                worker.run(None)  # type: ignore[arg-type] # nobody looks at it
            except AccessError:
                refused.add(lacking)
                assert (not ran, client.xlen(keys.stream)) == (True, len(JOBS)), lacking
            else:
                told = {(row["name"], row["outcome"]) for row in rows}
                assert (told, len(rows), sum(ran.values())) == (RUNS, 4, 4), lacking
                left = (client.xlen(keys.stream), client.zcard(keys.delayed), client.xlen(keys.dlq))
                assert left == (0, 0, 1), lacking
    assert refused >= {"unlink", "xack", "xpending", "zrem", "xreadgroup", "xinfo|consumers"}


def test_a_server_that_is_away_at_the_end_costs_no_rows(
    own_server: DialectServer, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is left to do is to forget that the run might have been stopped."""
    monkeypatch.setattr(work, "PATIENCE_S", 0.0)
    with Queue("mail", redis_url=own_server.url) as queue:
        queue.add("plain", None)

    def keep(*_: object) -> list[dict[str, Any]]:
        own_server.server.kill()
        return rows

    monkeypatch.setattr(work, "_kept", keep)
    worker = SparkWorker("mail", lambda job: None, url=own_server.url, tasks=1)
    told: Any = worker.run(None)  # type: ignore[arg-type] # nobody looks at it
    assert [row["outcome"] for row in told] == ["completed"]
    assert not worker.stop()
