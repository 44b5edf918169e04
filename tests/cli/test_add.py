"""`chasqui add`: every record is accounted for, whatever happens."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from chasquimq import wire
from chasquimq.job import RetryOverride
from chasquimq.sync import Queue
from tests.cli.feed import data, eventually, lines, members, piped, stored
from tests.cli.golden import same
from tests.cli.kit import Chasqui

# -- one job ---------------------------------------------------------------------------------------


def test_a_job_from_the_command_line_prints_its_id(chasqui: Chasqui, queue_name: str) -> None:
    ended = chasqui.call("add", queue_name, "welcome", '{"user": 42, "n": [1.5, null, "é"]}')
    [(name, found, job_id)] = stored(chasqui, queue_name)
    assert (ended.code, ended.out, ended.err) == (0, f"{job_id}\n", "")
    assert (name, found) == ("welcome", {"user": 42, "n": [1.5, None, "é"]})


def test_the_options_of_a_job_reach_it(chasqui: Chasqui, queue_name: str) -> None:
    options = (
        "--delay",
        "5m",
        "--job-id",
        "a",
        "--attempts",
        "3",
        "--backoff",
        "exponential:1s:1m",
    )
    assert chasqui.call("add", queue_name, "later", "null", *options).out == "a\n"
    [(envelope, score)] = members(chasqui, queue_name)
    seconds, _ = chasqui.server.client().time()
    assert envelope.id == "a" and 290 < score / 1000 - seconds <= 301
    assert isinstance(envelope.retry, RetryOverride) and envelope.retry.max_attempts == 3
    backoff = envelope.retry.backoff
    assert (backoff.kind, backoff.delay_ms, backoff.max_delay_ms) == ("exponential", 1000, 60000)


def test_a_moment_may_have_a_zone(native: Chasqui, queue_name: str) -> None:
    seconds, _ = native.server.client().time()
    at_ms = (seconds + 3_600) * 1000
    assert native.call("add", queue_name, "later", "null", "--at", str(at_ms)).code == 0
    [(_, score)] = members(native, queue_name)
    assert score == at_ms


def test_a_unique_job_that_is_there_is_told(chasqui: Chasqui, queue_name: str) -> None:
    args = ("add", queue_name, "welcome", "1", "--job-id", "a", "--until-done")
    assert chasqui.call(*args).err == ""
    again = chasqui.call(*args)
    assert (again.code, again.out) == (0, "a\n") and "it was there already" in again.err
    assert len(stored(chasqui, queue_name)) == 1
    told = json.loads(chasqui.call(*args, "--json").out)
    assert (told["added"], told["duplicates"], told["job_id"]) == (0, 1, "a")


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity, -Infinity]", "18446744073709551615", '"\\u0000"']
)
def test_json_values_are_taken_as_queue_add_takes_them(
    native: Chasqui, queue_name: str, text: str
) -> None:
    assert native.call("add", queue_name, "n", text).code == 0
    assert repr(data(native, queue_name)) == repr([json.loads(text)])


@pytest.mark.parametrize(
    ("args", "code", "why"),
    [
        (("n", "{'a': 1}"), 2, "DATA is not JSON"),
        (("n", "1" * 5_000), 2, "DATA holds a number that is too long; text has quotes"),
        (("n", "[" * 60_000), 2, "DATA is nested too deep; text has quotes"),
        (("n", "18446744073709551616"), 1, "beyond 64 bits"),
        (("n", '"\\ud800"'), 1, "no valid text"),
        (("a\x1bb", "1"), 2, "control characters"),
        (("n" * 300, "1"), 2, "limit is 256"),
        ((), 2, "NAME is missing"),
        (("n", "1", "--file", "x.json"), 2, "not both"),
        (("n", "--file", "/nowhere/x.json"), 2, "No such file"),
        (("n", "1", "--delay", "soon"), 2, "--delay"),
        (("n", "1", "--delay", "5m", "--at", "2099-01-01"), 2, "not both"),
        (("n", "1", "--backoff", "linear:1s"), 2, "--backoff"),
        (("n", "1", "--unique-for", "1h"), 2, "needs a job_id"),
        (("n", "1", "--format", "msgpack"), 2, "DATA is JSON"),
        (("n", "--job-id", "a", "--format", "jsonl"), 2, "--job-id is for one job"),
    ],
)
def test_what_makes_no_sense_adds_nothing(
    native: Chasqui, queue_name: str, args: tuple[str, ...], code: int, why: str
) -> None:
    ended = native.call("add", queue_name, *args, input=b"1\n")
    assert (ended.code, ended.out) == (code, "") and why in ended.err
    assert "\x1b" not in ended.err
    assert not native.server.client().exists(wire.Keys(queue_name).stream)


def test_an_empty_pipe_is_no_job(native: Chasqui, queue_name: str) -> None:
    ended = native.call("add", queue_name, "nightly", input=b"")
    assert ended.code == 1 and "stdin is empty" in ended.err
    assert native.call("add", queue_name, "nightly", "--file", "-", input=b"").code == 0


# -- many jobs -------------------------------------------------------------------------------------


def test_a_file_of_lines_becomes_jobs_in_order(
    chasqui: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    file = lines(tmp_path / "users.jsonl", 4_500)  # more than two bulks
    ended = chasqui.call("add", queue_name, "welcome", "--file", str(file))
    assert (ended.code, ended.out, ended.err) == (0, "added 4,500 jobs\n", "")
    assert data(chasqui, queue_name) == [{"user": n} for n in range(4_500)]


def test_a_stream_of_messagepack_from_a_pipe(native: Chasqui, queue_name: str) -> None:
    values = [{"raw": b"\x00\xff"}, 1, [None, 2**64 - 1]]
    packed = b"".join(map(wire.encode, values))
    ended = native.call("add", queue_name, "n", "--format", "msgpack", input=packed)
    assert (ended.code, ended.out) == (0, "added 3 jobs\n")
    assert data(native, queue_name) == values


def test_records_may_be_jobs(chasqui: Chasqui, queue_name: str) -> None:
    records = [
        {"name": "a", "data": 1},
        {"data": 2, "job_id": "two"},
        {"name": "late", "data": 3, "delay_ms": 3_600_000, "attempts": 2},
        {"name": "cron", "data": 4, "repeat": {"kind": "every", "interval_ms": 60_000}},
    ]
    text = "\n".join(map(json.dumps, records)).encode()
    ended = chasqui.call("add", queue_name, "usual", "--as-jobs", "--json", "--ids", input=text)
    told = json.loads(ended.out)
    assert ended.code == 0 and (told["added"], len(told["ids"])) == (4, 4)
    found = stored(chasqui, queue_name)
    assert [(name, value) for name, value, _ in found] == [("a", 1), ("usual", 2)]
    assert found[1][2] == "two" == told["ids"][1]
    [(late, _)] = members(chasqui, queue_name)
    assert (late.id, late.retry.max_attempts) == (told["ids"][2], 2)
    assert chasqui.server.client().zcard(wire.Keys(queue_name).repeat) == 1


def test_options_are_defaults_where_records_are_jobs(native: Chasqui, queue_name: str) -> None:
    text = b'{"data": 1}\n{"data": 2, "delay_ms": 7200000, "attempts": 9}\n'
    args = ("--as-jobs", "--delay", "1h", "--attempts", "5")
    assert native.call("add", queue_name, "n", *args, input=text).code == 0
    (first, soon), (two, late) = members(native, queue_name)
    assert (first.retry.max_attempts, two.retry.max_attempts) == (5, 9)
    assert 3_590_000 < late - soon < 3_610_000


@pytest.mark.parametrize("skip", [False, True])
def test_a_bad_line_is_named_and_nothing_is_left_out_silently(
    chasqui: Chasqui, queue_name: str, tmp_path: Path, skip: bool
) -> None:
    good = [str(n) for n in range(1, 5_001)]
    bad = {2_500: "{nonsense", 2_600: str(2**64), 4_999: '"' + "x" * 1_100_000 + '"'}
    for number, line in bad.items():
        good[number - 1] = line
    file = tmp_path / "users.jsonl"
    file.write_text("\n".join(good))
    args = ("add", queue_name, "n", "--file", str(file))
    ended = chasqui.call(*args, *(["--skip-bad"] if skip else []))
    assert ended.code == 1
    if skip:
        assert ended.out == "added 4,997 jobs\n"
        told = [f"line {number:,}: " in ended.err for number in bad]
        assert told == [True] * 3
        assert data(chasqui, queue_name) == [n for n in range(1, 5_001) if n not in bad]
        return
    assert "line 2500 of" in ended.err and "not JSON" in ended.err
    assert "added 2,499 jobs before that" in ended.err
    assert "go on with --from-line 2500" in ended.err
    assert data(chasqui, queue_name) == list(range(1, 2_500))
    # A job that the queue refuses ends it in the same way.
    ended = chasqui.call(*args, "--from-line", "2501")
    assert ended.code == 1 and "line 2600 of" in ended.err and "beyond 64 bits" in ended.err
    assert data(chasqui, queue_name) == [*range(1, 2_500), *range(2_501, 2_600)]


def test_a_dry_run_checks_every_record_and_needs_no_server(
    native: Chasqui, queue_name: str
) -> None:
    args = ("add", queue_name, "n", "--dry-run", "--redis-url", "redis://127.0.0.1:1")
    ended = native.call(*args, input=b"1\n2\n")
    assert (ended.code, ended.out) == (0, "would add 2 jobs\n")
    ended = native.call(*args, "--json", input=b"1\n18446744073709551616\n3\n")
    told = json.loads(ended.out)
    assert ended.code == 1 and (told["would_add"], told["bad"], told["next"]) == (1, 1, 2)
    ended = native.call(*args, "--skip-bad", input=b"1\n18446744073709551616\nx\n4\n")
    assert (ended.code, ended.out) == (1, "would add 2 jobs\n")


# -- in a terminal ---------------------------------------------------------------------------------


def test_a_large_file_shows_how_far_it_is(native: Chasqui, queue_name: str, tmp_path: Path) -> None:
    file = lines(tmp_path / "users.jsonl", 30_000)
    args = ("add", queue_name, "n", "--file", str(file))
    with native.open(*args, columns=110) as terminal:
        assert terminal.end() == 0
        shown = terminal.raw.decode()
        assert "adding" in shown and "%" in shown and "jobs/s" in shown and "30,000 jobs" in shown
        assert terminal.lines == ["added 30,000 jobs"]
    assert native.server.client().xlen(wire.Keys(queue_name).stream) == 30_000


def test_no_bar_comes_between_a_pipes_lines(native: Chasqui, queue_name: str) -> None:
    ended = native.run("add", queue_name, "n", "--ids", input=b"1\n2\n")
    ids = [job_id for _, _, job_id in stored(native, queue_name)]
    assert (ended.code, ended.out, ended.err) == (0, "".join(f"{one}\n" for one in ids), "")


def test_who_stops_reading_ids_does_not_stop_the_jobs(native: Chasqui, queue_name: str) -> None:
    with piped(native, queue_name, "n", "--ids") as running:
        assert running.stdin is not None and running.stdout is not None
        running.stdout.close()
        _, err = running.communicate(b"".join(b"%d\n" % n for n in range(5_000)), timeout=30)
    assert (running.returncode, err) == (0, b"")
    assert len(stored(native, queue_name)) == 5_000


def test_what_is_said_of_a_bad_line(native: Chasqui, queue_name: str) -> None:
    ended = native.call("add", queue_name, "n", input=b"1\n2\nnonsense\n4\n")
    same("add-bad-line", ended.err, {})


def test_two_doors_add_the_same(chasqui: Chasqui, queue_name: str) -> None:
    """The command is Queue.add: same bytes but for id and time."""
    chasqui.call("add", queue_name, "n", '{"a": [1, 2.0]}')
    server = chasqui.server
    with Queue(queue_name, redis_url=server.url, dialect=server.forced_dialect) as queue:
        queue.add("n", {"a": [1, 2.0]})
    first, second = (fields for _, fields in server.client().xrange(wire.Keys(queue_name).stream))
    assert list(first) == list(second)
    assert wire.unpack_envelope(first[b"d"]).payload == wire.unpack_envelope(second[b"d"]).payload


def test_a_fifo_is_read_as_it_comes(native: Chasqui, queue_name: str, tmp_path: Path) -> None:
    fifo, stream = tmp_path / "jobs.jsonl", wire.Keys(queue_name).stream
    os.mkfifo(fifo)
    client = native.server.client()
    with piped(native, queue_name, "n", "--file", str(fifo)) as running:
        with fifo.open("wb", buffering=0) as writer:
            for count in (1, 2):
                writer.write(b"1\n")
                eventually(lambda count=count: client.xlen(stream) == count)
        out, _ = running.communicate(timeout=30)
    assert out == b"added 2 jobs\n"
