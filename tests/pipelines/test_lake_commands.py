"""`chasqui spark lake`, `rollup` and others of the lake: what people type, and what they see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chasquimq import wire
from chasquimq.spark.lake.table import read
from chasquimq.wire import Keys
from tests.cli.kit import COMMAND, Chasqui, Ended
from tests.pipelines.test_lake import ids, placed
from tests.pipelines.told import Told, at
from tests.servers import DIALECTS, DialectServer, Servers
from tests.spark_redis.events import Events

Call = Callable[..., Ended]


@pytest.fixture
def server(servers: Servers) -> DialectServer:
    """One kind will do: what differs between them is below the commands."""
    return servers.shared(DIALECTS[0])


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def call(spark: SparkSession, server: DialectServer, lake: str) -> Call:
    command = Chasqui(server)

    def run(verb: str, *args: str) -> Ended:
        words = ["--lake", lake] if "--lake" not in args else []
        return command.call("--redis-url", server.url, "spark", verb, *args, *words)

    return run


@pytest.fixture
def told(server: DialectServer, queue_name: str) -> Iterator[Told]:
    """Events that are written to the server by `write`."""
    yield Told(queue_name)
    server.client().delete(Keys(queue_name).events, Keys(queue_name).dlq)


def write(server: DialectServer, told: Told) -> None:
    """In the order in which they happened, as a server takes them in."""
    pipe = server.client().pipeline(transaction=False)
    rows = sorted(told.rows, key=lambda row: row["ts"])
    for row in rows:
        extras = {
            key: row[key]
            for key in ("attempt", "duration_us", "reason", "backoff_ms", "delay_ms")
            if row.get(key) is not None
        }
        if row.get("created_at"):
            extras["created_ms"] = round(row["created_at"].timestamp() * 1000)
        ms = round(row["ts"].timestamp() * 1000)
        fields = wire.pack_event(row["event"], row["job_id"] or "", ms, row["name"] or "", extras)
        pipe.execute_command("XADD", Keys(told.queue).events, f"{ms}-*", *fields)
    pipe.execute()


def a_day(told: Told) -> None:
    for number in range(20):
        told.run(number * 1000 + 50, f"a{number}", 1, 10, created=number * 1000)
        bad = {"reason": "no"} if number % 2 else {}
        told.run(number * 1000 + 10, f"b{number}", 1, 500, created=number * 1000, name="b", **bad)
    told.say(70_000, "active", "hangs", "b", attempt=1, created=69_000)


def test_what_happened_as_tables(call: Call, told: Told, server: DialectServer, lake: str) -> None:
    a_day(told)
    write(server, told)
    done = call("lake", told.queue, "--available-now")
    assert (done.code, done.out) == (
        0,
        f"brought {len(told.rows)} events and 0 dead jobs into {lake}\n",
    )
    again = call("lake", told.queue, "--available-now", "--json")
    assert json.loads(again.out)["rows"] == {"events": 0, "dlq": 0}

    windows = call("rollup", "--by", "queue").out.splitlines()
    assert windows[0].split()[:6] == ["window", "(UTC)", "queue", "started", "done", "per"]
    assert windows[1].split()[:3] == ["2026-11-16", "09:01", told.queue]
    assert windows[2].split()[3:7] == ["40", "30", "0.5", "25.0%"]

    names = call("rollup", told.queue, "--total", "--sort", "failure_rate").out.splitlines()
    assert [line.split()[1:5] for line in names[1:]] == [
        ["b", "21", "10", "50.0%"],
        ["a", "20", "20", "0.0%"],
    ]
    [b, a] = json.loads(call("rollup", "--total", "--sort", "run_p95_ms", "--json").out)
    assert (b["run_p95_ms"], a["run_p95_ms"], a["wait_p50_ms"]) == (500.0, 10.0, 50.0)

    stuck = call("lifecycle", "--stuck", "--state", "running").out.splitlines()
    assert len(stuck) == 2 and stuck[1].split()[1:5] == ["hangs", "b", "running,", "stuck"]
    jobs = [json.loads(line) for line in call("lifecycle", "--json").out.splitlines()]
    assert len(jobs) == 41
    [one] = [job for job in jobs if job["job_id"] == "a3"]
    assert (one["state"], one["total_ms"]) == ("completed", 60.0)
    assert one["created_at"] == at(3000).isoformat()
    [line] = call("lifecycle", "--job", "b1").out.splitlines()[1:]
    assert "retrying" in line and line.endswith("no")  # it has failed, and that is all we heard


def test_a_deploy(call: Call, told: Told, server: DialectServer) -> None:
    for number in range(10):
        told.run(number * 1000, f"a{number}", 1, 100, created=number * 1000)
        told.run(60_000 + number * 1000, f"n{number}", 1, 250, created=60_000 + number * 1000)
    write(server, told)
    call("lake", told.queue, "--available-now", "--no-dlq")
    when = at(60_000).isoformat()
    head, line, note = call("compare", "--at", when, "--for", "1m").out.splitlines()
    assert head.split()[:4] == ["queue", "name", "done", "per"]
    assert "100ms → 250ms (2.50×)" in line
    [row] = json.loads(call("compare", "--at", when, "--for", "1m", "--json").out)["rows"]
    assert (row["before_completed"], row["after_completed"]) == (10, 10)
    assert note.startswith("before → after")


def test_rows_into_files(
    call: Call, told: Told, server: DialectServer, spark: SparkSession, tmp_path: Path
) -> None:
    a_day(told)
    write(server, told)
    call("lake", told.queue, "--available-now")
    out = str(tmp_path / "rollup")
    assert call("rollup", "--out", out).out == f"written to {out}\n"
    assert call("rollup", "--since", at(60_000).isoformat(), "--out", out).code == 0
    # The day is whole, though --since lies in the middle of it.
    assert spark.read.parquet(out).selectExpr("sum(started)").collect()[0][0] == 41
    jobs = str(tmp_path / "jobs")
    call("lifecycle", "--out", jobs)
    assert spark.read.parquet(jobs).count() == 41


def test_waits_of_runs_that_were_due_before_since(
    call: Call, told: Told, server: DialectServer
) -> None:
    told.say(0, "delayed", "later", delay_ms=100_000)
    told.run(100_020, "later", 1, 5, created=0)
    write(server, told)
    call("lake", told.queue, "--available-now")
    since = ("--since", at(90_000).isoformat(), "--json")
    [total] = json.loads(call("rollup", "--total", *since).out)
    assert (total["wait_p50_ms"], total["delayed"]) == (20.0, 0)
    [window] = json.loads(call("rollup", *since).out)
    assert window["wait_p50_ms"] == 20.0


def test_putting_files_together(call: Call, server: DialectServer, queue_name: str) -> None:
    events = Events(server, queue_name)
    for _ in range(2):
        events.add(3)
        call("lake", queue_name, "--available-now", "--no-dlq")
    assert call("compact").out.startswith("nothing to do")
    done = json.loads(call("compact", "--least", "2", "--json").out)
    assert (done["written"], done["put_together"], done["removed"]) == (1, 2, 0)
    said = call("compact", "--grace", "0s").out
    assert "removed 2 that were superseded" in said
    events.redis.delete(events.key)


def test_when_the_lake_falls_behind(call: Call, server: DialectServer, queue_name: str) -> None:
    events = Events(server, queue_name)
    events.add(60)
    calm = call("lake", queue_name, "--available-now", "--events-cap", "200")
    assert calm.err == ""
    events.add(60)
    near = call("lake", queue_name, "--available-now", "--events-cap", "100")
    assert (
        near.code == 0 and "60 events of queue" in near.err and "events_max_stream_len" in near.err
    )
    events.add(10)
    events.trim(5)
    lost = call("lake", queue_name, "--available-now")
    assert lost.code == 1 and "CHASQUI_DATA_LOSS" in lost.err and "Traceback" not in lost.err
    assert call("lake", queue_name, "--available-now", "--allow-loss").code == 0
    events.redis.delete(events.key)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rollup"], "there is no lake in"),
        (["rollup", "--sort", "failed"], "--sort is for --total"),
        (["rollup", "--total", "--sort", "slow"], "--sort must be one of started"),
        (["rollup", "--by", "job"], "--by must be one of name, queue, all"),
        (["rollup", "--every", "soon"], "--every: 'soon' is no duration"),
        (["lifecycle", "--state", "done"], "--state must be one of completed"),
        (["lake", "a{b}"], "queue name"),
        (["lake", "mail,orders"], "a name of one queue, got 'mail,orders'"),
        (["rollup", "mail,orders"], "a name of one queue, got 'mail,orders'"),
        (["lake", "mail", "--available-now", "--every", "1s"], "not both"),
        (["compact", "--grace", "x"], "--grace: 'x' is no duration"),
        (["compare", "--at", "noon"], "--at: 'noon' is no moment"),
    ],
)
def test_what_makes_no_sense(call: Call, words: list[str], says: str) -> None:
    ended = call(*words)
    assert ended.code == 2 and says in ended.err, ended.err


def test_without_a_lake(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHASQUI_LAKE", raising=False)
    ended = subprocess.run([*COMMAND, "spark", "rollup"], capture_output=True, text=True)
    assert ended.returncode == 2 and "$CHASQUI_LAKE" in ended.stderr


# -- processes that are killed ---------------------------------------------------------------------


class Follower:
    """`chasqui spark lake`, or `run`, as a process of its own."""

    def __init__(self, server: DialectServer, verb: str, queue: str, *words: str) -> None:
        java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # it lives for seconds
        self._process = subprocess.Popen(
            [*COMMAND, "spark", verb, queue, *words, "--every", "100ms", "--master", "local[1]"],
            env={**os.environ, "CHASQUI_REDIS_URL": server.url, "JDK_JAVA_OPTIONS": java},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def end(self, number: int) -> tuple[int, str, str]:
        """All of it, or (SIGTERM) itself alone, as a supervisor does."""
        if number == signal.SIGKILL:
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)
        out, err = self._process.communicate(timeout=60)
        return self._process.returncode, out, err

    def alive(self) -> bool:
        return self._process.poll() is None


def wait_for(condition: Callable[[], Any], follower: Follower) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert follower.alive(), follower.end(signal.SIGTERM)
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_killed_and_started_again_each_event_is_there_once(
    spark: SparkSession, server: DialectServer, queue_name: str, lake: str
) -> None:
    events = Events(server, queue_name)
    rows = events.add(100)
    folder = Path(lake)
    for number in (signal.SIGKILL, signal.SIGTERM):
        before = len(list(folder.glob("events/*/*/*/*.parquet")))
        follower = Follower(server, "lake", queue_name, "--lake", lake, "--no-dlq")

        def some(before: int = before) -> bool:
            rows.extend(events.add(7))  # it never finds an end
            return len(list(folder.glob("events/*/*/*/*.parquet"))) > before + 2

        wait_for(some, follower)
        code, out, err = follower.end(number)
        assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL), err
    assert "brought" in out
    rows += events.add(10)
    command = Chasqui(server)
    url = ("--redis-url", server.url)
    last = command.call(*url, "spark", "lake", queue_name, "--lake", lake, "--available-now")
    assert last.code == 0, last.err
    assert ids(read(spark, lake)) == placed(rows)
    events.redis.delete(events.key)


def test_the_whole_pipeline_goes_on_until_it_is_stopped(
    spark: SparkSession, server: DialectServer, queue_name: str, lake: str, tmp_path: Path
) -> None:
    events, page = Events(server, queue_name), tmp_path / "report.html"
    rows = events.add(100)
    words = ("--lake", lake, "--out", str(page), "--report-every", "1s")
    follower = Follower(server, "run", queue_name, *words)
    wait_for(page.exists, follower)
    first = page.stat().st_mtime_ns
    rows += events.add(7)
    wait_for(lambda: page.stat().st_mtime_ns > first, follower)
    code, _, err = follower.end(signal.SIGTERM)
    assert code == 0, err
    assert ids(read(spark, lake)) == placed(rows)
    events.redis.delete(events.key)
