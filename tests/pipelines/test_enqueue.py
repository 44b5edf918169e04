"""`chasqui spark enqueue`: rows of all sources, as Redis has them then."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chasquimq.spark.pipelines import enqueue as shaped
from tests.cli.kit import Chasqui, Ended
from tests.servers import DialectServer, Servers
from tests.spark.session import NATIVE
from tests.spark.test_write import BATCH, ROWS, failing, numbers
from tests.spark_redis.test_rate import crowded, moments
from tests.spark_redis.writing import Shelf

USERS = [{"user": n, "email": f"user{n}@example.org", "total": n + 0.5} for n in range(60)]
Enqueue = Callable[..., Ended]


@pytest.fixture
def shelf(server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(server.client(), queue_name)


@pytest.fixture
def enqueue(spark: SparkSession, server: DialectServer, queue_name: str) -> Enqueue:
    return command(server, queue_name)


@pytest.fixture
def native(spark: SparkSession, servers: Servers, queue_name: str) -> Enqueue:
    """Where the server makes no difference."""
    return command(servers.shared(NATIVE), queue_name)


def command(server: DialectServer, queue: str, **environment: str) -> Enqueue:
    chasqui = Chasqui(server)
    chasqui.env |= environment
    return lambda *words: chasqui.call("spark", "enqueue", queue, *map(str, words))


@pytest.fixture(scope="module")
def files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same users in each format."""
    folder = tmp_path_factory.mktemp("users")
    frame = spark.createDataFrame(USERS, "user BIGINT, email STRING, total DOUBLE")
    frame.repartition(3).write.parquet(str(folder / "users.parquet"))
    frame.write.orc(str(folder / "users.orc"))
    lines = "".join(f"{one['user']},{one['email']},{one['total']}\n" for one in USERS)
    text = "user,email,total\n" + lines
    (folder / "users.csv").write_text(text)
    (folder / "users.tsv").write_text(text.replace(",", "\t"))
    (folder / "users.jsonl").write_text("".join(json.dumps(one) + "\n" for one in USERS))
    (folder / "users.json").write_text(json.dumps(USERS, indent=1))
    (folder / "emails.txt").write_text("".join(f"{one['email']}\n" for one in USERS))
    return folder


def users(shelf: Shelf) -> list[dict[str, Any]]:
    return sorted((job.payload for job in shelf.jobs()), key=lambda user: user["user"])


# -- what comes in ---------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["users.parquet", "users.orc", "users.csv", "users.jsonl"])
def test_files_come_in(enqueue: Enqueue, shelf: Shelf, files: Path, file: str) -> None:
    ended = enqueue(files / file, "--name", "welcome", "--json")
    assert ended.code == 0, ended
    assert users(shelf) == USERS
    assert {job.name for job in shelf.jobs()} == {"welcome"}
    told = json.loads(ended.out)
    assert (told["rows"], told["added"], told["skipped"]) == (60, 60, 0)


@pytest.mark.parametrize(
    "words",
    [
        ["users.tsv"],
        ["users.json", "--option", "multiLine=true"],
        ["*.csv", "--option", "header=true"],
        ["users.csv", "--schema", "user INT, email STRING, total DOUBLE"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_readers_are_told_how(
    native: Enqueue, servers: Servers, queue_name: str, files: Path, words: list[str]
) -> None:
    ended = native(files / words[0], *words[1:])
    assert ended.code == 0, ended
    assert users(Shelf(servers.shared(NATIVE).client(), queue_name)) == USERS


def test_a_query_a_table_and_a_database_come_in(
    spark: SparkSession, enqueue: Enqueue, shelf: Shelf, files: Path, tmp_path: Path
) -> None:
    spark.read.parquet(str(files / "users.parquet")).createOrReplaceTempView("known_users")
    assert enqueue("--table", "known_users", "--where", "user < 20").code == 0
    query = "SELECT * FROM source WHERE user >= 20 AND user < 40"
    assert enqueue(files / "users.csv", "--query", query).code == 0
    assert enqueue("--query", "SELECT * FROM known_users WHERE user BETWEEN 40 AND 49").code == 0
    database = f"jdbc:derby:memory:{tmp_path.name};create=true"
    spark.sparkContext._jvm.java.lang.System.setProperty(
        "derby.stream.error.file", str(tmp_path / "derby.log")
    )
    late = spark.table("known_users").where("user >= 50").selectExpr(
        "CAST(user AS INT) AS USERNO", "email", "total"
    )  # fmt: skip
    late.write.format("jdbc").options(url=database, dbtable="users").save()
    (tmp_path / "password").write_text("canary")  # not a secret
    asked = 'SELECT USERNO AS "user", "email", "total" FROM users'
    secret = ("--jdbc-password-file", tmp_path / "password")
    ended = enqueue("--jdbc-url", database, "--query", asked, "--option", "user=APP", *secret)
    assert ended.code == 0, ended
    assert "canary" not in ended.out + ended.err
    assert users(shelf) == USERS


def test_each_row_says_what_becomes_of_it(
    spark: SparkSession, enqueue: Enqueue, shelf: Shelf, tmp_path: Path
) -> None:
    file = tmp_path / "mixed.csv"
    file.write_text("key,kind,when,a,b\nx-1,mail,2030-01-01,1,one\nx-2,sms,,2,two\n")
    words = ("--name-column", "kind", "--id-column", "key", "--attempts", 4)
    ended = enqueue(file, *words, "--run-at-column", "when", "--remember", "40d")
    assert ended.code == 1 and "maxDelayMs" in ended.err, ended  # it is more than 30 days away
    assert shelf.jobs() == shelf.delayed() == []
    ended = enqueue(file, *words, "--delay", "1h", "--column", "a", "--column", "when")
    assert ended.code == 0, ended
    jobs = sorted(shelf.delayed(), key=lambda job: job.envelope.id)
    assert [(job.envelope.id, job.name) for job in jobs] == [("x-1", "mail"), ("x-2", "sms")]
    assert [job.payload for job in jobs] == [
        {"a": 1, "when": "2030-01-01"},
        {"a": 2, "when": None},
    ]
    assert {job.envelope.retry.max_attempts for job in jobs if job.envelope.retry} == {4}
    for job in jobs:
        assert abs((job.due_ms or 0) - job.envelope.created_at_ms - 3_600_000) < 120_000


def test_lines_and_json_are_payloads(enqueue: Enqueue, shelf: Shelf, files: Path) -> None:
    assert enqueue(files / "emails.txt", "--limit", 3).code == 0
    assert all(isinstance(job.payload, str) for job in shelf.jobs()) and len(shelf.jobs()) == 3
    shelf.client.delete(shelf.keys.stream)
    json_lines = (files / "users.jsonl", "--format", "text", "--payload-column", "value")
    assert enqueue(*json_lines, "--payload-format", "json").code == 0
    assert users(shelf) == USERS


# -- once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [(), ("--commit", "staged"), ("--id-column", "user")], ids=str)
def test_the_same_run_adds_nothing(
    enqueue: Enqueue, shelf: Shelf, files: Path, how: tuple[str, ...]
) -> None:
    words = (files / "users.parquet", "--run-id", "monday", "--column", "user", *how)
    first = enqueue(*words)
    assert first.code == 0, first
    assert first.out.startswith(f"60 rows came into queue {shelf.keys.queue} in ")
    assert "run it again with --run-id monday: nothing comes in twice" in first.out
    again = enqueue(*words)
    assert "run monday was done before: nothing was added" in again.out
    assert [user["user"] for user in users(shelf)] == list(range(60))


def test_ids_come_in_once_in_whatever_run(enqueue: Enqueue, shelf: Shelf, files: Path) -> None:
    words = ("--id-column", "user", "--column", "user", "--json")
    assert (
        json.loads(enqueue(files / "users.csv", *words, "--where", "user < 40").out)["added"] == 40
    )
    told = json.loads(enqueue(files / "users.parquet", *words).out)
    assert (told["added"], told["skipped"]) == (20, 40)
    assert [user["user"] for user in users(shelf)] == list(range(60))


def test_a_full_queue_fails_and_the_run_goes_on(
    enqueue: Enqueue, shelf: Shelf, files: Path
) -> None:
    words = (files / "users.csv", "--run-id", "half", "--on-full", "fail", "--timeout", "1s")
    ended = enqueue(*words, "--max-stream-len", 40)
    assert ended.code == 1 and "had no room for 10 more" in ended.err
    assert "CHASQUI_QUEUE_FULL" in ended.err and "raise --max-stream-len" in ended.err
    assert "40 rows came in; run it again with --run-id half to add the others" in ended.err
    ended = enqueue(*words, "--max-stream-len", 1_000)
    assert "20 rows came into queue" in ended.out and "it is 60 rows" in ended.out
    assert users(shelf) == USERS


def test_a_full_queue_is_waited_for(enqueue: Enqueue, shelf: Shelf, files: Path) -> None:
    words = (files / "users.csv", "--max-stream-len", 40, "--timeout", "100ms")
    ended = enqueue(*words)
    assert ended.code == 1 and "had no room for 100 ms" in ended.err
    assert len(shelf.jobs()) == 40


# -- at a rate -------------------------------------------------------------------------------------


def test_the_command_keeps_to_its_rate(enqueue: Enqueue, shelf: Shelf, files: Path) -> None:
    """Three files, so three tasks."""
    ended = enqueue(files / "users.parquet", "--rate", 80)
    assert ended.code == 0, ended
    assert users(shelf) == USERS
    assert crowded(moments(shelf), 80, 20) == []


@pytest.fixture
def small(spark: SparkSession) -> Iterator[SparkSession]:
    """Small batches, so that a task that fails has written some of its rows."""
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(key)
    spark.conf.set(key, BATCH)
    yield spark
    spark.conf.set(key, before)


@pytest.mark.parametrize("given", [{}, {"idColumn": "id"}], ids=["direct", "id"])
def test_tasks_that_fail_and_run_again_keep_to_it(
    small: SparkSession, server: DialectServer, shelf: Shelf, given: dict[str, str]
) -> None:
    frame = failing(numbers(small), server.url, shelf.keys.stream).selectExpr("id AS n", "padding")
    jobs = shaped(frame, id_column="n" if given else None, payload=["n", "padding"])
    where = {"url": server.url, "queue": shelf.keys.queue, "rowsPerSecond": "1200"}
    jobs.write.format("chasqui").options(**where, **given).mode("append").save()
    assert sorted(shelf.numbers()) == list(range(ROWS * 2))
    assert crowded(moments(shelf), 1_200, 250) == []


def test_a_rate_that_outlasts_the_markers_is_refused(
    native: Enqueue, servers: Servers, queue_name: str, files: Path
) -> None:
    ended = native(files / "users.parquet", "--rate", 30, "--remember", "1s")
    assert ended.code == 2
    assert "60 rows take 2.0 s" in ended.err and "--remember" in ended.err
    assert Shelf(servers.shared(NATIVE).client(), queue_name).jobs() == []


# -- what is shown, and what is refused ------------------------------------------------------------


def test_a_dry_run_shows_and_writes_nothing(
    native: Enqueue, servers: Servers, queue_name: str, files: Path
) -> None:
    words = (
        files / "users.csv",
        "--name",
        "welcome",
        "--dry-run",
        "--redis-url",
        "redis://[::1]:1",
    )
    ended = native(*words)  # nobody asks the server
    assert ended.code == 0, ended
    lines = ended.out.splitlines()
    assert lines[0] == f"{queue_name}: what would be written"
    assert "payload  struct<user:int,email:string,total:double>" in lines
    assert '{"user":0,"email":"user0@example.org","total":0.5}  welcome' in lines
    assert lines[-2:] == ["... and 55 rows more", "60 rows in all; nothing was written"]
    told = json.loads(native(*words, "--json").out)
    assert (told["rows"], len(told["first"]), told["dry_run"]) == (60, 5, True)
    assert told["columns"]["name"] == "string"
    assert not servers.shared(NATIVE).client().keys(f"*{queue_name}*")


CSV = "users.csv"
REFUSED: list[tuple[list[str], int, str]] = [
    ([], 2, "rows of what"),
    ([CSV, "--format", "cvs"], 2, "there is no format 'cvs'; did you mean 'csv'"),
    (["users"], 2, "the ending of .* does not tell its format"),
    ([CSV, "--option", "heder=true"], 2, "no option 'heder'; did you mean 'header'"),
    ([CSV, "--option", "header"], 2, "--option is KEY=VALUE, got 'header'"),
    ([CSV, "--name-column", "emial"], 2, "there is no column 'emial'; did you mean 'email'"),
    ([CSV, "--column", "usr"], 2, "there is no column 'usr'; did you mean 'user'"),
    ([CSV, "--where", "usr > 3"], 2, "`usr` cannot be resolved. Did you mean .*`user`"),
    ([CSV, "--name", "a", "--name-column", "email"], 2, "give name or name_column, not both"),
    ([CSV, "--delay", "1h", "--run-at-column", "email"], 2, "delay_ms or run_at_column, not both"),
    ([CSV, "--id-column", "user", "--commit", "staged"], 2, "leave out --commit"),
    ([CSV, "--commit", "stagd"], 2, "--commit must be one of direct, staged"),
    ([CSV, "--on-full", "trim"], 2, "--on-full must be one of wait, fail"),
    ([CSV, "--rate", "0"], 2, "rowsPerSecond must be from 0.001|--rate must be from 0.001"),
    ([CSV, "--run-id", "a:b"], 2, "must be 1 to 200 of the characters"),
    ([CSV, "--id-column", "total"], 2, "column id is string or a whole number, got double"),
    ([CSV, "--table", "t"], 2, "or a table, not both"),
    (["--table", "nowhere"], 1, "`nowhere` cannot be found"),
    (["missing.csv"], 1, "Path does not exist: .*missing.csv"),
    (["--query", "SELEC 1"], 2, "Syntax error at or near 'SELEC'"),
    (["--table", "t", "--jdbc-url", "jdbc:x://u:canary@h"], 2, "holds a password"),  # not a secret
    (["--table", "t", "--jdbc-url", "jdbc:x:y", "--option", "password=canary"], 2, "everybody"),
    (["--table", "t", "--jdbc-url", "jdbc:nowhere:y"], 1, "No suitable driver"),
    ([CSV, "--redis-url", "redis://127.0.0.1:1"], 3, "cannot reach Redis"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "says"), REFUSED, ids=lambda one: str(one)[:60])
def test_what_makes_no_sense_is_refused(
    native: Enqueue,
    servers: Servers,
    queue_name: str,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    says: str,
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr("chasquimq.cli.spark.rows.PATIENCE_S", 0.0)
    ended = native(*words)
    assert (ended.code, ended.out) == (code, ""), ended
    assert len(ended.err.splitlines()) == 1 and "canary" not in ended.err, ended
    assert re.search(says, ended.err), ended
    assert not servers.shared(NATIVE).client().keys(f"*{queue_name}*")


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("bad.csv", "a,b\n1,2\n3\n5,6\n", r"bad.csv: the row \[3,null\] does not fit"),
        ("bad.jsonl", '{"a": 1}\n{"a": oops}\n', r"bad.jsonl: the row '{\"a\": oops}' is no JSON"),
        ("bad.json", '[\n{"a": 1}\n]\n', r"the row '\[' is no JSON.*multiLine=true"),
    ],
)
def test_a_row_that_does_not_fit_is_named(
    native: Enqueue,
    servers: Servers,
    queue_name: str,
    tmp_path: Path,
    file: str,
    text: str,
    says: str,
) -> None:
    (tmp_path / file).write_text(text)
    ended = native(tmp_path / file)
    assert ended.code == 1 and re.search(says, ended.err), ended
    assert Shelf(servers.shared(NATIVE).client(), queue_name).jobs() == []


# -- as an application -----------------------------------------------------------------------------


def test_the_entry_runs_every_command(
    spark: SparkSession,
    server: DialectServer,
    shelf: Shelf,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chasqui = Chasqui(server)
    ended = chasqui.call("spark", "entry")
    path = ended.out.strip()
    monkeypatch.setenv("CHASQUI_REDIS_URL", server.url)
    before = [*sys.path]
    for words, code in (
        (["enqueue", shelf.keys.queue, str(files / "users.csv")], 0),
        (["nothing"], 2),
    ):
        monkeypatch.setattr(sys, "argv", [path, *words])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(path, run_name="__main__")
        assert end.value.code == code
    assert users(shelf) == USERS
    assert [*sys.path] == before
