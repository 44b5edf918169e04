"""`chasqui spark work`: what it prints, how it ends, and what Ctrl-C does."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from chasquimq.cli import main
from chasquimq.cli import render_spark_work as render
from chasquimq.cli.screen import plain
from tests.chaos.kit.wait import eventually
from tests.pipelines.test_work import HERE, PATIENCE_S, Place
from tests.servers import DIALECTS, Servers


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Command:
    def __init__(self, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
        self.place = place
        self._capsys = capsys

    def __call__(self, *words: str, target: str = f"{HERE}:handle") -> Ended:
        self._capsys.readouterr()
        code = main(["spark", "work", target, "--queue", self.place.queue, "--tasks", "2", *words])
        return Ended(code, *self._capsys.readouterr())


@pytest.fixture
def work(
    spark: SparkSession,
    servers: Servers,
    queue_name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    place = Place(servers.shared(DIALECTS[0]), queue_name)
    monkeypatch.setenv("CHASQUI_REDIS_URL", "")
    return Command(place, capsys)


def test_it_says_what_ran_and_ends_well_whatever_became_of_jobs(
    work: Command, tmp_path: Path, spark: SparkSession
) -> None:
    place, out = work.place, str(tmp_path / "runs")
    place.add(["good"] * 5 + ["bad"] * 2 + ["hopeless"])
    ended = work("--redis-url", place.url, "--max-attempts", "1", "--results", "--out", out)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    words = {line.split()[0]: line.split() for line in lines if line}
    assert lines[0] == f"{place.queue}: runs of handlers"
    assert words["good"][1:4] == ["5", "5", "-"]
    assert words["all"][1:5] == ["8", "5", "-", "3"]
    assert f"rows are in {out}" in lines
    assert any("ValueError" in line and "bad luck with" in line for line in lines)
    assert place.client.xlen(place.keys.dlq) == 3 and place.client.xlen(place.keys.stream) == 0
    assert spark.read.parquet(out).count() == 8
    told = json.loads(work("--redis-url", place.url, "--json").out)
    assert (told["runs"], told["names"], told["stopped"]) == (0, [], False)


def test_a_password_on_the_command_line_is_handed_on_by_name(work: Command) -> None:
    """To Spark's own processes, which began before; so they do not find it, and say so."""
    url = work.place.url.replace("redis://", "redis://user:canary@")  # not a secret
    ended = work("--redis-url", url)
    assert ended.code != 0 and "canary" not in ended.out + ended.err


@pytest.mark.parametrize(
    ("words", "target", "code", "says"),
    [
        ([], f"{HERE}:handel", 2, "has no 'handel'; did you mean 'handle'?"),
        ([], f"{HERE}:worker", 2, "is a Worker; name the handler itself"),
        ([], "handle", 2, "write it as package.module:name"),
        (["--py-file", "none.zip"], f"{HERE}:handle", 2, "there is no file 'none.zip'"),
        (["--time-slice", "soon"], f"{HERE}:handle", 2, "--time-slice: 'soon' is no duration"),
        (["--redis-url", "redis://127.0.0.1:1"], f"{HERE}:handle", 3, "cannot reach Redis"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(
    work: Command, words: list[str], target: str, code: int, says: str
) -> None:
    ended = work("--redis-url", work.place.url, *words, target=target)
    assert ended.code == code and says in ended.err


def test_what_spark_fails_at_is_said_in_a_few_words(work: Command, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where a folder should be")
    work.place.add(["good"])
    ended = work("--redis-url", work.place.url, "--out", str(tmp_path / "runs" / "here"))
    assert ended.code == 1 and len(ended.err.splitlines()) < 10 and "Spark failed" in ended.err


def pressed(then: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=then, daemon=True)
    thread.start()
    return thread


def test_ctrl_c_lets_handlers_end_and_gives_back_the_rest(work: Command) -> None:
    place = work.place
    place.add(["slow"] * 6)

    def press() -> None:
        eventually(lambda: len(place.seen()) == 2, PATIENCE_S)
        os.kill(os.getpid(), signal.SIGINT)
        eventually(lambda: place.client.keys(f"*{place.queue}*:stop"), PATIENCE_S)

    pressing = pressed(press)
    told = work("--redis-url", place.url, "--drain", "100ms", "--json")
    pressing.join()
    place.go()
    assert told.code == 0 and "stopping" in told.err
    counts: dict[str, Any] = json.loads(told.out)
    assert counts["stopped"] and counts["outcomes"]["given_back"] == 2
    assert place.client.xlen(place.keys.stream) == 6 and place.pending() == 0


def test_a_second_signal_ends_it_at_once_and_leaves_its_jobs_to_their_leases(
    work: Command,
) -> None:
    place = work.place
    ids = place.add(["slow"] * 2)

    def press() -> None:
        eventually(lambda: len(place.seen()) == 2, PATIENCE_S)
        os.kill(os.getpid(), signal.SIGINT)
        eventually(lambda: place.client.keys(f"*{place.queue}*:stop"), PATIENCE_S)
        os.kill(os.getpid(), signal.SIGTERM)

    pressing = pressed(press)
    ended = work("--redis-url", place.url, "--drain", "1h")
    pressing.join()
    assert ended.code == 143
    assert place.ids(place.keys.stream) == sorted(ids), "nothing is lost"
    place.go()


def test_a_sheet_without_names_and_with_strange_ones() -> None:
    line = dict.fromkeys(("completed", "retried", "buried", "lost", "given_back"), 0)
    names = [
        {"name": "", "runs": 1, **line, "lost": 1, "p50_ms": 0.25, "p95_ms": 61_000.0},
        {"name": "a\x1b[31m", "runs": 1, **line, "buried": 1, "p50_ms": None, "p95_ms": None},
    ]
    errors = [{"name": "", "error_type": "E", "runs": 1, "example": "x" * 500}]
    told = {"runs": 2, "outcomes": {**line, "lost": 1, "buried": 1}, "names": names}
    shown = [*render.sheets("q", {**told, "errors": errors, "stopped": True, "out": None}, None)]
    text = "".join(map(plain, shown))
    assert "(no name)" in text and "0.2 ms" in text and "61.0 s" in text and "\x1b" not in text
    assert "stopped before its end" in text and "x" * 101 not in text
