"""Texts of strangers on every way out: commands, logs, metrics, health; and on the way in."""

from __future__ import annotations

import json
import logging
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from chasquimq import Job, wire
from chasquimq.sync import Queue
from tests.cli.crew import Crew, page, until
from tests.cli.kit import Chasqui
from tests.engine.desk import Desk, eventually
from tests.hostile import HOSTILE, MARK, raw, strange
from tests.servers import DIALECTS, DialectServer, Servers


@pytest.fixture(scope="module")
def server(servers: Servers) -> DialectServer:
    """What is shown does not depend on the dialect."""
    return servers.shared(DIALECTS[0])


@pytest.fixture
def desk(server: DialectServer, queue_name: str) -> Desk:
    return Desk(server, queue_name)


def envelope(text: str) -> bytes:
    data = text.encode("utf-8", "replace").decode()
    return b"\x94" + _text(raw(text)) + _bin(wire.encode({data: [data]})) + b"\x02\x00"


def _text(data: bytes) -> bytes:
    return wire.str_header(len(data)) + data


def _bin(data: bytes) -> bytes:
    return wire.bin_header(len(data)) + data


def fill(desk: Desk) -> None:
    """Every place that another program can write to."""
    client, keys = desk.redis, desk.keys
    for text in HOSTILE.values():
        data, body = raw(text), envelope(text)
        desk.put_raw(body, data)
        client.zadd(keys.delayed, {wire.join_member(data, body): 9e12})
        row = {"d": body, "n": data, "source_id": data, "reason": data, "detail": data}
        client.xadd(keys.dlq, {**row, "job_id": data, "error_type": data, "error": data})
        event = {"e": data, "id": data, "n": data, "reason": data, "ts": "1"}
        client.xadd(keys.events, event)
        client.xadd(keys.events, {**event, "e": "failed", "attempt": data})
        client.zadd(keys.repeat, {data: 9e12})
        client.hset(keys.spec(data), mapping={"spec": data, "fired": data})
        client.set(keys.result(data), data)
        client.xgroup_create(keys.stream, data[:60], mkstream=True)
    desk.abandon(3, HOSTILE["colours"])
    client.set(keys.paused, raw("".join(HOSTILE.values())))


COMMANDS = (
    ("inspect", "QUEUE", "--consumers"),
    ("watch", "QUEUE", "--count", "1"),
    ("jobs", "list", "QUEUE"),
    ("jobs", "list", "QUEUE", "--state", "delayed"),
    ("jobs", "show", "QUEUE", "ID"),
    ("dlq", "peek", "QUEUE", "--full", "--payload"),
    ("dlq", "peek", "QUEUE", "--by", "error"),
    ("dlq", "export", "QUEUE", "-"),
    ("dlq", "replay", "QUEUE", "--dry-run", "--yes"),
    ("repeatable", "list", "QUEUE"),
    ("events", "QUEUE", "--from", "0", "--count", "5"),
    ("doctor", "QUEUE"),
    ("resume", "ID"),
    ("pause", "QUEUE"),
    ("jobs", "cancel", "QUEUE", "ID"),
    ("repeatable", "remove", "QUEUE", "ID"),
    ("dlq", "peek", "ID"),
    ("--redis-url", "ID", "inspect"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_a_command_shows_lines_and_nothing_else(desk: Desk, words: tuple[str, ...]) -> None:
    fill(desk)
    chasqui = Chasqui(desk.server)
    for text in HOSTILE.values() if "ID" in words else [""]:
        said = {"QUEUE": desk.name, "ID": text}
        for json_too in ((), ("--json",)):
            ended = chasqui.call(*[said.get(word, word) for word in words], *json_too)
            assert strange(ended.out + ended.err) == [], ended
            if json_too and ended.code == 0:
                lines = words[0] == "events" or words[1] in ("export", "cancel")
                for line in ended.out.splitlines() if lines else [ended.out]:
                    json.loads(line)


def test_a_queue_of_a_hostile_name_spoils_no_list(own_server: DialectServer) -> None:
    client = own_server.client()
    for text in HOSTILE.values():
        client.xadd(b"{chasqui:%b}:stream" % raw(text), {"d": "x"})
    for words in (("inspect",), ("watch", "--count", "1"), ("doctor",), ("inspect", "--json")):
        ended = Chasqui(own_server).call(*words)
        assert strange(ended.out + ended.err) == [], ended


def test_queues_with_names_that_are_refused_now_are_still_shown(own_server: DialectServer) -> None:
    names = ["../x", "/etc", "\u202eevil", "q" * 250]
    for name in names:
        own_server.client().xadd(wire.Keys(name).stream, {"d": "x"})
    chasqui = Chasqui(own_server)
    listed = json.loads(chasqui.call("inspect", "--json").out)
    assert sorted(row["queue"] for row in listed) == sorted(names)
    for name in names:
        for words in (
            ("inspect", name),
            ("dlq", "show", name),
            ("doctor", name),
            ("events", name, "--no-follow"),
            ("jobs", "list", name),
        ):
            ended = chasqui.call(*words)
            assert "queue name" not in ended.err and strange(ended.out + ended.err) == [], ended
        ended = chasqui.call("add", name, "1")
        assert ended.code == 2 and "queue name" in ended.err, ended


LAST = f"{2**64 - 1}-{2**64 - 1}"  # no stream has a place behind it


def test_no_queue_keeps_the_others_from_being_shown(own_server: DialectServer) -> None:
    """Who may write to one queue of a server only: its numbers are theirs to choose."""
    client, chasqui = own_server.client(), Chasqui(own_server)
    client.xadd(wire.Keys("innocent").stream, {"d": "x"})
    last, never = wire.Keys("last"), wire.Keys("never")
    client.xgroup_create(last.stream, "default", LAST, mkstream=True)
    for score in ("-inf", "inf", "-1e300"):
        client.zadd(never.delayed, {f"x{score}": score})
        client.zadd(never.repeat, {f"x{score}": score})
    for words in (("inspect",), ("watch", "--count", "1"), ("doctor", "--quick"), ("doctor",)):
        for json_too in ((), ("--json",)):
            ended = chasqui.call(*words, *json_too)
            assert ended.code in (0, 5) and ended.err == "", ended
            assert all(name in ended.out for name in ("innocent", "last", "never"))
            assert "not-looked-at" not in ended.out


def test_the_last_entry_that_a_stream_can_have_is_shown_like_others(desk: Desk) -> None:
    keys, client = desk.keys, desk.redis
    row = {"d": envelope("mine"), "n": "x", "e": "active", "id": "mine", "reason": "x"}
    for key in (keys.stream, keys.dlq, keys.events):
        for entry_id in (*(f"{number}-1" for number in range(1, 10)), LAST):  # a page has ten
            client.xadd(key, row, id=entry_id)
    client.xgroup_create(keys.stream, "default", "0")
    client.xreadgroup("default", "me", {keys.stream: ">"}, count=10)
    for words in (
        ("jobs", "list", desk.name),
        ("jobs", "list", desk.name, "--state", "running"),
        ("jobs", "list", desk.name, "--state", "waiting"),
        ("jobs", "list", desk.name, "--state", "dead"),
        ("jobs", "show", desk.name, "mine"),
        ("jobs", "show", desk.name, LAST),
        ("dlq", "peek", desk.name, "--by", "reason"),
        ("dlq", "export", desk.name, "-"),
        ("inspect", desk.name),
    ):
        ended = Chasqui(desk.server).call(*words)
        assert ended.code == 0, ended
        assert words[0] != "dlq" or "10" in ended.out + ended.err


def test_an_id_that_looks_like_an_entry_s_and_is_none_is_looked_for(desk: Desk) -> None:
    job_id = f"{2**64}-0"
    with Queue(desk.name, redis_url=desk.server.url) as door:
        door.add("x", None, job_id=job_id)
    ended = Chasqui(desk.server).call("jobs", "show", desk.name, job_id)
    assert ended.code == 0 and job_id in ended.out, ended


@pytest.mark.parametrize("name", ["--fix", "--redis-url=redis://somewhere.invalid", "-y", "a 'b"])
def test_no_name_becomes_an_option_in_a_line_to_paste(server: DialectServer, name: str) -> None:
    client, keys, chasqui = server.client(), wire.Keys(name), Chasqui(server)
    client.xadd(keys.dlq, {"d": "x"})
    client.set(keys.paused, 1)
    client.zadd(keys.repeat, {name: 9e12})
    client.hset(keys.spec(name), "spec", "x")
    found = json.loads(chasqui.call("doctor", "--quick", "--json", "--", name).out)
    lines = {one["code"]: one["fix"] for one in found if one["queue"] == name}
    for code in ("queue.paused", "queue.dead", "queue.spec-unreadable"):
        ended = chasqui.call(*shlex.split(lines[code])[1:])
        assert ended.code == 0, ended
    assert not client.exists(keys.paused, keys.repeat)
    client.delete(keys.dlq)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_worker_logs_and_tells_lines_and_nothing_else(
    desk: Desk, form: str, tmp_path: Path
) -> None:
    chasqui = Chasqui(desk.server)
    options = ("--log-format", form, "--log-level", "debug", "--metrics", "127.0.0.1:0")
    target = "tests.security.app_hostile:worker"
    with Crew(chasqui, desk.name, *options, target=target, out=tmp_path) as crew:
        if form == "text":
            crew.begins()
        for text in HOSTILE.values():
            desk.put_raw(envelope(text), raw(text)[:255])
        until(lambda: len(desk.dead()) == len(HOSTILE))
        [where, *_] = until(lambda: re.findall(r"http://127\.0\.0\.1:(\d+)", crew.said))
        until(lambda: "chasquimq_jobs" in page(int(where), "/metrics")[1])
        # What is no text is no id, either: that one never begins.
        until(lambda: crew.said.count("begin ") >= len(HOSTILE) - 1)
        pages = [page(int(where), path)[1] for path in ("/metrics", "/health", "/readyz")]
    for text in pages:
        assert text and strange(text) == []
    assert strange(crew.said) == []
    if form == "json":
        assert all(json.loads(line) for line in crew.said.splitlines() if line.startswith("{"))


async def test_no_message_of_a_worker_needs_a_careful_log(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Programs that set up logging themselves get lines as well; tracebacks are Python's own."""
    caplog.set_level(logging.DEBUG, "chasquimq")
    due = dict.fromkeys(map(raw, HOSTILE.values()), 1.0)
    for key in due:
        desk.redis.hset(desk.keys.spec(key), "spec", key)
    desk.redis.zadd(desk.keys.repeat, due)
    for text in HOSTILE.values():
        desk.put_raw(envelope(text), raw(text)[:255])

    async def fails(job: Job) -> None:
        raise ValueError(f"{job.id} {job.name}")

    async def fails_too(job: Job, *_: object) -> None:
        raise KeyError(job.id)

    async with desk.working(fails, max_attempts=1, on_error=fails_too):
        await eventually(lambda: len(desk.dead()) == len(HOSTILE))
        await eventually(lambda: desk.redis.zcount(desk.keys.repeat, 0, 1) == 0)
    said = [record.getMessage() for record in caplog.records]
    assert sum("on_error failed" in text for text in said) >= len(HOSTILE) - 1
    assert sum("put aside" in text for text in said) == len(HOSTILE)
    assert [text for text in said if not text.isprintable()] == []


@settings(max_examples=60)
@given(
    some.sampled_from(list(HOSTILE.values())) | some.text(max_size=60),
    some.sampled_from(list(HOSTILE.values())) | some.text(max_size=60),
)
def test_what_is_sent_is_data_and_never_a_script(
    server: DialectServer, name: str, job_id: str
) -> None:
    """Whatever a caller gives goes through as it is, or is refused; nothing beside it changes."""
    queue, client = "hostile-data", server.client()
    keys = wire.Keys(queue)
    client.set("hostile-canary", "alive")
    with Queue(queue, redis_url=server.url) as door:
        for options in ({}, {"delay_ms": 60_000}, {"unique": "until_done"}):
            try:
                job = door.add(
                    name, {"name": name.encode(errors="replace")}, job_id=job_id, **options
                )
            except ValueError:
                continue
            assert (job.name, job.id) == (name, job_id)
            rows = client.xrange(keys.stream)
            found = [(row.get(b"n", b""), wire.unpack_envelope(row[b"d"]).id) for _, row in rows]
            members = [wire.split_member(member) for member in client.zrange(keys.delayed, 0, -1)]
            found += [(name_, wire.unpack_envelope(body).id) for name_, body in members]
            assert (name.encode(), job_id) in found
    assert client.get("hostile-canary") == b"alive"
    ours = list(client.keys("*hostile-data*"))
    assert all(key.startswith(keys.tag) for key in ours)
    client.delete("hostile-canary", *ours)


def test_the_table_would_be_noticed() -> None:
    """Each of these is strange before it is shown."""
    plain = {"formats", "markup", "a page", "a script", "long"}
    assert {name for name, text in HOSTILE.items() if strange(text)} == {*HOSTILE} - plain
    assert strange(f"x\n{MARK}") == [MARK]
