"""`chasqui jobs`, as people and programs see it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from chasquimq import wire
from chasquimq.job import Envelope
from chasquimq.sync import Queue
from tests.cli.golden import same
from tests.cli.kit import Chasqui

LONG = r"\d+ (?:d|h|min) \d+ (?:h|min|s)|[\d.]+ m?s"  # as `render.ago` says it
WORDS = {
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z": "MOMENT",
    rf"\(in ({LONG})\)": "(IN)",
    rf"({LONG}) ago": "AGO",
    rf"(?<= )({LONG})(?= |$)": "LONG",
    r"\b0[0-9A-HJKMNP-TV-Z]{25}\b": "ULID",
    r"\b\d{13}-\d+\b": "ENTRY",
}


def door(chasqui: Chasqui, name: str) -> Queue:
    return Queue(name, redis_url=chasqui.server.url, dialect=chasqui.server.forced_dialect)


def take(chasqui: Chasqui, name: str, consumer: str = "w-1") -> None:
    client, stream = chasqui.server.client(), wire.Keys(name).stream
    client.xgroup_create(stream, "default", id="0", mkstream=True)
    client.xreadgroup("default", consumer, {stream: ">"}, count=1)


def bury(chasqui: Chasqui, name: str, job_id: str) -> None:
    fields = wire.pack_dead(
        wire.pack_envelope(Envelope(job_id, wire.encode({"user": 1}), 1_700_000_000_000, 2)),
        b"welcome",
        b"1700000000000-0",
        "retries_exhausted",
        job_id=job_id,
        attempt=3,
        error_type="ValueError",
        error="no such user\x1b[31m",
        failed_at_ms=1_700_000_060_000,
    )
    chasqui.server.client().execute_command("XADD", wire.Keys(name).dlq, "*", *fields)


def told(text: str, name: str) -> str:
    """Ages, ids and moments in words. Columns are as wide as these happen to be, so widths are
    left out."""
    for pattern, word in {name: "QUEUE", **WORDS}.items():
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return re.sub(" {2,}", "  ", text)


# -- show ------------------------------------------------------------------------------------------


def test_a_delayed_job_in_a_pipe(chasqui: Chasqui, queue_name: str) -> None:
    with door(chasqui, queue_name) as queue:
        queue.add("later", {"user": 42}, job_id="order-17", delay_ms=3_600_000, attempts=3)
    ended = chasqui.call("jobs", "show", queue_name, "order-17")
    assert (ended.code, ended.err) == (0, "")
    same("jobs-show-delayed", told(ended.out, queue_name))


def test_a_job_in_several_places_in_a_terminal(native: Chasqui, queue_name: str) -> None:
    with door(native, queue_name) as queue:
        queue.add("welcome", {"user": 42}, job_id="order-17")
    take(native, queue_name)
    bury(native, queue_name, "order-17")
    client, keys = native.server.client(), wire.Keys(queue_name)
    client.set(keys.result("order-17"), wire.encode({"sum": 3}), ex=3_600)
    with native.open("jobs", "show", queue_name, "order-17", columns=100, rows=50) as terminal:
        assert terminal.end() == 0
        text = terminal.text
    dead = text.index("dead: retries_exhausted")
    assert text.index("running: w-1 has it") < dead < text.index('{"sum": 3}')
    assert "\\x1b[31m" in text


def test_a_running_and_dead_job_in_a_pipe(chasqui: Chasqui, queue_name: str) -> None:
    with door(chasqui, queue_name) as queue:
        queue.add("welcome", {"user": 42}, job_id="order-17")
    take(chasqui, queue_name)
    bury(chasqui, queue_name, "order-17")
    client, keys = chasqui.server.client(), wire.Keys(queue_name)
    client.set(keys.result("order-17"), wire.encode({"sum": 3}), ex=3_600)
    event = wire.pack_event("active", "order-17", 1_700_000_000_000, b"welcome", {"attempt": 1})
    client.execute_command("XADD", keys.events, "*", *event)
    ended = chasqui.call("jobs", "show", queue_name, "order-17")
    assert (ended.code, ended.err) == (0, "")
    same("jobs-show-places", told(ended.out, queue_name))


def test_a_job_as_json(chasqui: Chasqui, queue_name: str) -> None:
    data = {"user": 42, "raw": b"\x00\xff", "n": float("nan")}
    with door(chasqui, queue_name) as queue:
        job = queue.add("welcome", data)
    take(chasqui, queue_name)
    found = json.loads(chasqui.call("jobs", "show", queue_name, job.id, "--json").out)
    [place] = found["places"]
    assert (found["found"], found["job_id"], place["state"]) == (True, job.id, "running")
    assert place["consumer"] == "w-1"
    assert place["data"] == {"user": 42, "raw": {"base64": "AP8="}, "n": "NaN"}
    assert found["looked"][0] == {"place": "stream", "rows": 1, "total": 1}


def test_data_are_cut_unless_all_of_it_is_wanted(chasqui: Chasqui, queue_name: str) -> None:
    with door(chasqui, queue_name) as queue:
        job = queue.add("welcome", "x" * 10_000)
    ended = chasqui.call("jobs", "show", queue_name, job.id)
    assert "x" * 1_900 in ended.out and "x" * 2_100 not in ended.out
    assert "data shown in part, of 10,003 bytes; --full shows all" in ended.out
    assert "x" * 10_000 in chasqui.call("jobs", "show", queue_name, job.id, "--full").out


def test_a_job_in_a_long_queue_is_found_or_the_way_to_it_is_told(
    chasqui: Chasqui, queue_name: str
) -> None:
    """2,500 jobs are added in a moment, and 300 rows are looked at."""
    with door(chasqui, queue_name) as queue:
        bulks = [
            queue.add_bulk([{"name": "n", "data": n, "job_id": f"own-{at}-{n}"} for n in range(50)])
            for at in range(25)
        ]
        ours = queue.add("n", None)
        for at in range(25, 50):
            queue.add_bulk([{"name": "n", "data": n, "job_id": f"own-{at}-{n}"} for n in range(50)])
    assert len(bulks) == 25
    stream = wire.Keys(queue_name).stream
    [(entry, _)] = [
        row for row in chasqui.server.client().xrange(stream) if ours.id.encode() in row[1][b"d"]
    ]
    for asked in (ours.id, entry.decode()):
        ended = chasqui.call("jobs", "show", queue_name, asked, "--scan", "300", "--json")
        places = json.loads(ended.out)["places"]
        assert (ended.code, [one["entry_id"] for one in places]) == (0, [entry.decode()])
    ended = chasqui.call("jobs", "show", queue_name, "own-20-25", "--scan", "300")
    assert ended.code == 1
    words = " ".join(ended.err.split())
    assert "knows no job 'own-20-25' as far as was looked: stream (300 of 2,501)" in words
    assert "It may be in the rest: --scan 2501 looks at everything" in words
    assert chasqui.call("jobs", "show", queue_name, "own-20-25", "--scan", "2501").code == 0


def test_a_job_that_is_nowhere_says_where_was_looked(chasqui: Chasqui, queue_name: str) -> None:
    with door(chasqui, queue_name) as queue:
        queue.add_bulk([{"name": "n", "data": None} for _ in range(60)])
    ended = chasqui.call("jobs", "show", queue_name, "nobody\x1b", "--scan", "50")
    assert (ended.code, ended.out) == (1, "")
    assert "knows no job 'nobody\\x1b'" in ended.err.replace("\\\\", "\\")
    assert "stream (50 of 60), delayed (all 0), DLQ (all 0), events (all 0)" in ended.err
    ended = chasqui.call("jobs", "show", queue_name, "nobody", "--json")
    assert ended.code == 1 and json.loads(ended.out)["found"] is False


def test_an_entrys_id_shows_its_job(chasqui: Chasqui, queue_name: str) -> None:
    with door(chasqui, queue_name) as queue:
        job = queue.add("welcome", None)
    [(entry_id, _)] = chasqui.server.client().xrange(wire.Keys(queue_name).stream)
    ended = chasqui.call("jobs", "show", queue_name, entry_id.decode())
    assert ended.code == 0 and f"job {job.id} (entry {entry_id.decode()})" in ended.out


def test_a_long_look_shows_how_far_it_is(native: Chasqui, queue_name: str) -> None:
    keys, pipe = wire.Keys(queue_name), native.server.client().pipeline()
    body = wire.pack_envelope(Envelope("a", b"\xc0", 1))
    for _ in range(21_000):
        pipe.execute_command("XADD", keys.stream, "*", b"d", body)
    pipe.execute()
    with native.open("jobs", "show", queue_name, "nobody", columns=120) as terminal:
        assert terminal.end() == 1
        assert b"looking for nobody" in terminal.raw and b"21,000 rows" in terminal.raw
        assert "knows no job 'nobody'" in terminal.text.replace("\n", "")
        assert "looking for" not in terminal.text


# -- list ------------------------------------------------------------------------------------------


def test_lists_in_a_pipe(chasqui: Chasqui, queue_name: str) -> None:
    with door(chasqui, queue_name) as queue:
        queue.add_bulk([{"name": "welcome", "data": n} for n in range(4)])
        queue.add("later", None, job_id="order-17", delay_ms=3_600_000)
    take(chasqui, queue_name)
    bury(chasqui, queue_name, "order-16")
    ended = chasqui.call("jobs", "list", queue_name, "--limit", "2")
    assert (ended.code, ended.err) == (0, "")
    same("jobs-list", told(ended.out, queue_name))


def test_a_list_of_one_state_and_name_as_json(chasqui: Chasqui, queue_name: str) -> None:
    with door(chasqui, queue_name) as queue:
        jobs = queue.add_bulk([{"name": name, "data": name} for name in ("a", "b", "a", "b")])
    args = ("jobs", "list", queue_name, "--state", "waiting", "--name", "b", "--json")
    found = json.loads(chasqui.call(*args).out)
    assert [one["job_id"] for one in found] == [jobs[1].id, jobs[3].id]
    assert found[0]["data"] == "b"
    assert json.loads(chasqui.call(*args[:3], "--state", "dead", "--json").out) == []


def test_a_list_counts_failures_crashes_and_the_run_that_is_on(
    chasqui: Chasqui, queue_name: str
) -> None:
    client, stream = chasqui.server.client(), wire.Keys(queue_name).stream
    body = wire.pack_envelope(Envelope("twice-failed", b"\xc0", 1_700_000_000_000, 2))
    entry_id = client.xadd(stream, {"d": body})
    take(chasqui, queue_name)
    client.xclaim(stream, "default", "w-2", 0, [entry_id])  # w-1 has crashed
    [row] = [
        line for line in chasqui.call("jobs", "list", queue_name).out.splitlines() if "w-2" in line
    ]
    assert " 4  w-2, last sign of life" in row


def test_an_empty_queue_has_an_empty_list(chasqui: Chasqui, queue_name: str) -> None:
    assert "(no jobs)" in chasqui.call("jobs", "list", queue_name).out


# -- cancel and reschedule -------------------------------------------------------------------------


def test_cancelling_says_for_each_what_happened(chasqui: Chasqui, queue_name: str) -> None:
    keys, client = wire.Keys(queue_name), chasqui.server.client()
    with door(chasqui, queue_name) as queue:
        running = queue.add("n", None).id
        take(chasqui, queue_name)
        waiting = queue.add("n", None).id
        later = queue.add("n", None, delay_ms=600_000).id
    bury(chasqui, queue_name, "buried")
    retry = wire.join_member(b"n", wire.pack_envelope(Envelope("again", b"\xc0", 1, 1)))
    client.zadd(keys.delayed, {retry: 9e12})
    ids = (later, running, waiting, "buried", "again", "nobody")
    ended = chasqui.call("jobs", "cancel", queue_name, *ids)
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.splitlines() == [
        f"{later}: cancelled",
        f"{running}: not cancelled: it runs: w-1 has it",
        f"{waiting}: not cancelled: it waits in the stream: its time has come",
        "buried: not cancelled: it is dead (retries_exhausted): see chasqui dlq",
        "again: not cancelled: it waits for another run: retries cannot be changed",
        "nobody: not cancelled: it is unknown; looked at: stream (all 2), delayed (all 1), "
        "DLQ (all 1)",
    ]
    assert client.zrange(keys.delayed, 0, -1) == [retry]


def test_cancelling_all_of_them_is_a_success(chasqui: Chasqui, queue_name: str) -> None:
    with door(chasqui, queue_name) as queue:
        ids = [queue.add("n", None, delay_ms=600_000).id for _ in range(3)]
    ended = chasqui.call("jobs", "cancel", queue_name, *ids, "--json")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert ended.code == 0
    assert lines == [{"job_id": job_id, "cancelled": True} for job_id in ids]
    assert chasqui.server.client().zcard(wire.Keys(queue_name).delayed) == 0


@pytest.mark.parametrize(
    ("how", "low_ms", "high_ms"),
    [
        (("--in", "5m"), 290_000, 300_000),
        (("--at", "2099-01-01T00:00Z"), None, None),
        (("--now",), -60_000, 0),
    ],
)
def test_a_delayed_job_gets_another_time(
    chasqui: Chasqui, queue_name: str, how: Any, low_ms: int | None, high_ms: int | None
) -> None:
    keys, client = wire.Keys(queue_name), chasqui.server.client()
    with door(chasqui, queue_name) as queue:
        queue.add("n", None, job_id="order-17", delay_ms=60_000)
    args = ("jobs", "reschedule", queue_name, "order-17", *how)
    if low_ms is None:  # more than thirty days
        ended = chasqui.call(*args)
        assert ended.code == 2 and "max_delay_secs" in ended.err
        return
    ended = chasqui.call(*args)
    assert (ended.code, ended.err) == (0, "")
    assert "order-17: is due" in ended.out
    [(_, score)] = client.zrange(keys.delayed, 0, -1, withscores=True)
    seconds, micros = client.time()
    assert low_ms <= score - (seconds * 1000 + micros // 1000) <= high_ms


def test_what_cannot_be_rescheduled_says_why(chasqui: Chasqui, queue_name: str) -> None:
    with door(chasqui, queue_name) as queue:
        queue.add("n", None, job_id="order-17")
    args = ("jobs", "reschedule", queue_name, "order-17")
    ended = chasqui.call(*args, "--in", "5m")
    assert ended.code == 1 and "it waits in the stream" in ended.err
    ended = chasqui.call(*args, "--now", "--json")
    assert json.loads(ended.out)["rescheduled"] is False and ended.code == 1


@pytest.mark.parametrize("how", [(), ("--in", "5m", "--now"), ("--in", "5 parsecs")])
def test_a_time_that_makes_no_sense_is_a_usage_error(
    native: Chasqui, queue_name: str, how: Any
) -> None:
    assert native.call("jobs", "reschedule", queue_name, "a", *how).code == 2


def test_help_has_examples(native: Chasqui) -> None:
    for verb in ("show", "list", "cancel", "reschedule"):
        ended = native.call("jobs", verb, "--help")
        assert ended.code == 0 and f"chasqui jobs {verb} mail" in ended.out
