"""`chasqui spark recover`: what a driver that died has left behind is found and finished."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress

import pytest

from chasquimq.errors import QueueFullError
from tests.cli.kit import Chasqui
from tests.spark_redis.staging import Shelf, Write


@pytest.fixture
def shelf(chasqui: Chasqui, queue_name: str) -> Shelf:
    return Shelf(chasqui.server.client(), queue_name)


def half_way(chasqui: Chasqui, queue: str, run_id: str = "half") -> Write:
    """100 rows are promised, 40 are in, more than 40 may not be."""
    write = Write(chasqui.server.url, queue, run_id, max_stream_len=40, on_full="fail")
    with suppress(QueueFullError):
        write.commit(write.stage(0, range(100)))
    return write


def staging(chasqui: Chasqui, queue: str, run_id: str = "lying", rows: int = 7) -> Write:
    write = Write(chasqui.server.url, queue, run_id)
    write.stage(0, range(rows))
    return write


def test_what_is_not_finished_is_listed(chasqui: Chasqui, queue_name: str, shelf: Shelf) -> None:
    half_way(chasqui, queue_name)
    staging(chasqui, queue_name)
    ended = chasqui.call("spark", "recover", queue_name)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == f"{queue_name}: runs of the Spark sink that are not finished"
    words = {line.split()[0]: line.split() for line in lines[1:]}
    assert words["half"][1:5] == ["moving", "staged", "40", "60"]
    assert words["half"][-1] == "--complete"
    assert words["lying"][1:5] == ["open", "staged", "0", "7"]
    told = json.loads(chasqui.call("spark", "recover", queue_name, "--json").out)
    assert told["queue"] == queue_name
    by_name = {one["run"]: one for one in told["runs"]}
    assert set(by_name) == {"half", "lying"}
    half = by_name["half"]
    assert (half["state"], half["rows"], half["staged"], half["total"]) == ("moving", 40, 60, 100)
    assert (half["remedy"], half["missing"], half["expires_ms"]) == ("complete", 0, None)
    assert shelf.payloads() == list(range(40))


def test_nothing_is_listed_where_all_is_finished(native: Chasqui, queue_name: str) -> None:
    ended = native.call("spark", "recover", queue_name)
    assert ended.code == 0 and "(all runs are finished)" in ended.out
    assert native.call("spark", "recover", queue_name, "--complete", "--abort").out == (
        f"{queue_name}: nothing to abort or complete\n"
    )


@pytest.mark.parametrize("how", [("--complete",), ("half",), ("half", "--complete")])
def test_what_is_promised_is_brought_in(
    chasqui: Chasqui, queue_name: str, shelf: Shelf, how: tuple[str, ...]
) -> None:
    half_way(chasqui, queue_name)
    staging(chasqui, queue_name)
    room = ("--max-stream-len", "1000")
    asked = chasqui.call("spark", "recover", queue_name, *how, *room)
    assert asked.code == 1 and "complete 1 run (60 rows)" in asked.err and "--yes" in asked.err
    would = chasqui.call("spark", "recover", queue_name, *how, "--dry-run")
    assert (would.code, would.out) == (0, "would complete run half: 60 rows\n")
    assert shelf.payloads() == list(range(40))
    ended = chasqui.call("spark", "recover", queue_name, *how, *room, "--yes")
    assert ended == (0, "completed run half: 100 rows in the queue\n", "")
    assert shelf.payloads() == list(range(100))
    assert {key.partition(b":")[0] for key in shelf.left()} == {b"lying"}


def test_a_full_queue_stays_as_full_as_the_writer_wanted(
    chasqui: Chasqui, queue_name: str, shelf: Shelf
) -> None:
    half_way(chasqui, queue_name)
    ended = chasqui.call("spark", "recover", queue_name, "--complete", "-y", "--timeout", "20ms")
    assert ended.code == 1 and "CHASQUI_QUEUE_FULL" in ended.err
    assert shelf.payloads() == list(range(40))


def test_what_was_left_lying_is_cleared_away(
    chasqui: Chasqui, queue_name: str, shelf: Shelf
) -> None:
    half_way(chasqui, queue_name)
    staging(chasqui, queue_name)
    young = chasqui.call("spark", "recover", queue_name, "--abort", "--yes")
    assert (young.code, young.out) == (0, f"{queue_name}: nothing to abort\n")
    assert young.err == "1 run staged rows within 1h00m, left alone; name it, or give --idle\n"
    ended = chasqui.call(
        "spark", "recover", queue_name, "--abort", "--idle", "0ms", "--yes", "--json"
    )
    assert json.loads(ended.out) == {
        "queue": queue_name,
        "runs": [{"run": "lying", "verb": "abort", "rows": 7}],
        "dry_run": False,
    }
    assert {key.partition(b":")[0] for key in shelf.left()} == {b"half"}
    staging(chasqui, queue_name, "second")
    ended = chasqui.call("spark", "recover", queue_name, "second", "--abort", "--yes")
    assert ended == (0, "aborted run second: 7 rows deleted\n", "")
    assert shelf.payloads() == list(range(40))


def test_what_is_promised_is_deleted_by_its_name_only(
    chasqui: Chasqui, queue_name: str, shelf: Shelf
) -> None:
    half_way(chasqui, queue_name)
    everything = ("--abort", "--idle", "0ms", "--yes")
    assert chasqui.call("spark", "recover", queue_name, *everything).code == 0
    refused = chasqui.call("spark", "recover", queue_name, "half", *everything)
    assert refused.code == 1 and "run half has a manifest, so not abort" in refused.err
    for wrong in (("--give-up",), ("half", "--give-up", "--complete")):
        assert chasqui.call("spark", "recover", queue_name, *wrong, "--yes").code == 2
    assert len(shelf.left()) > 0
    ended = chasqui.call("spark", "recover", queue_name, "half", "--give-up", "--yes")
    assert ended == (0, "gave up run half: 60 rows deleted\n", "")
    assert (shelf.left(), shelf.payloads()) == (set(), list(range(40)))


def test_a_run_that_cannot_be_helped_says_why(native: Chasqui, queue_name: str) -> None:
    staging(native, queue_name)
    unknown = native.call("spark", "recover", queue_name, "liyng")
    assert unknown.code == 1
    assert f"queue {queue_name} has no unfinished run 'liyng'; did you mean 'lying'?" in unknown.err
    early = native.call("spark", "recover", queue_name, "lying")
    assert early.code == 1 and "has no manifest" in early.err and "--abort" in early.err


def test_rows_that_are_gone_are_an_error_and_the_next_run_is_helped(
    native: Chasqui, queue_name: str
) -> None:
    shelf = Shelf(native.server.client(), queue_name)
    broken = half_way(native, queue_name, "broken")
    shelf.client.delete(shelf.client.lindex(broken.run.manifest, 0))  # type: ignore[arg-type]
    half_way(native, queue_name, "whole")
    room = ("--max-stream-len", "1000")
    listed = native.call("spark", "recover", queue_name).out
    assert re.search("broken .* 60 rows gone: --give-up", listed)
    ended = native.call("spark", "recover", queue_name, "--complete", "--yes", *room)
    assert ended.code == 1 and "has moved 40 of the 100 rows" in ended.err
    assert ended.out == "completed run whole: 100 rows in the queue\n"
    assert shelf.payloads() == [*range(40), *range(100)]


def test_neither_spark_nor_arrow_is_needed(native: Chasqui, queue_name: str) -> None:
    half_way(native, queue_name)
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('pyspark', 'pyarrow', 'pandas')))\n"
        "from chasquimq.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = (sys.executable, "-c", code, "spark", "recover", queue_name, "--complete", "--yes")
    ended = subprocess.run(
        [*command, "--max-stream-len", "1000"], env=native.env, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (0, "completed run half: 100 rows in the queue\n")


def test_a_person_at_a_terminal_is_asked(native: Chasqui, queue_name: str) -> None:
    half_way(native, queue_name)
    shelf = Shelf(native.server.client(), queue_name)
    with native.open("spark", "recover", queue_name, columns=60) as terminal:
        assert terminal.end() == 0
        assert "half" in terminal.text and "--complete" in terminal.text
    with native.open(
        "spark", "recover", queue_name, "half", "--max-stream-len", "1000"
    ) as terminal:
        terminal.until("complete 1 run (60 rows) of queue")
        terminal.press(b"y\n")
        assert terminal.end() == 0
    assert shelf.payloads() == list(range(100))


def test_a_server_that_is_away_is_said(native: Chasqui, queue_name: str) -> None:
    ended = native.call("spark", "recover", queue_name, "--redis-url", "redis://127.0.0.1:1")
    assert ended.code == 3 and "cannot reach Redis" in ended.err
