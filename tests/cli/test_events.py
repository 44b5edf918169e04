"""`chasqui events`: lines for people, for grep and for programs."""

from __future__ import annotations

import json

import pytest

from chasquimq import wire
from chasquimq.sync import Queue
from tests.chaos.kit.wait import eventually
from tests.cli.golden import same
from tests.cli.kit import CTRL_C, PATIENCE_S, Chasqui, Ended
from tests.servers import DialectServer

BEGAN = 1_767_225_600_000
ERROR = "no\n\x1b[31m" + "x" * 90
W1: dict[str, str | int] = {"id": "w:1", "n": "welcome"}
ROWS: list[dict[str, str | int]] = [
    {**W1, "e": "waiting", "ts": BEGAN},
    {**W1, "e": "active", "ts": BEGAN + 1, "created_ms": 5, "attempt": 1},
    {**W1, "e": "failed", "ts": BEGAN + 2, "reason": ERROR, "duration_us": 15, "attempt": 1},
    {**W1, "e": "retry-scheduled", "ts": BEGAN + 3, "backoff_ms": 7, "attempt": 2},
    {"id": "b:2", "n": "[red]bill", "e": "completed", "ts": BEGAN + 4, "attempt": 1},
    {"id": "", "e": "dlq", "ts": BEGAN + 5, "reason": "malformed", "attempt": 0},
    {"id": "", "e": "drained", "ts": BEGAN + 6},
]
KINDS = [str(row["e"]) for row in ROWS]


def tell(
    server: DialectServer, queue: str, rows: list[dict[str, str | int]], at: int = BEGAN
) -> None:
    key = wire.Keys(queue).events
    for number, row in enumerate(rows):
        server.client().xadd(key, dict(row), id=f"{at + number}-0")


@pytest.fixture
def told(chasqui: Chasqui, queue_name: str) -> str:
    tell(chasqui.server, queue_name, ROWS)
    return queue_name


def names(ended: Ended) -> list[str]:
    assert (ended.code, ended.err) == (0, "")
    return [line.split()[2] for line in ended.out.splitlines()]


# -- what is there -------------------------------------------------------------------------------


def test_each_event_is_a_line(chasqui: Chasqui, told: str) -> None:
    ended = chasqui.call("events", told, "--no-follow")
    assert (ended.code, ended.err) == (0, "")
    same("events-piped", ended.out)
    assert chasqui.call("events", told, "--from", "0", "--count", "7").out == ended.out


def test_json_lines_are_whole(chasqui: Chasqui, told: str) -> None:
    ended = chasqui.call("events", told, "--no-follow", "--json")
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert [row["event"] for row in rows] == KINDS
    assert rows[2]["fields"]["reason"] == ERROR
    assert rows[2]["id"] == f"{BEGAN + 2}-0" and rows[2]["at"] == "2026-01-01T00:00:00.002Z"
    assert (rows[5]["job_id"], rows[5]["name"]) == (None, "")


SOME = [
    (["--event", "failed"], ["failed"]),
    (["--event", "failed", "--event", "dlq"], ["failed", "dlq"]),
    (["--name", "[red]bill"], ["completed"]),
    (["--job", "w:1", "--event", "active"], ["active"]),
    (["--job", "b:2", "--job", "nobody"], ["completed"]),
    (["--count", "2"], ["waiting", "active"]),
    (["--from", f"{BEGAN + 3}-0"], ["completed", "dlq", "drained"]),
    (["--from", str(BEGAN + 5)], ["drained"]),
    (["--from", "$"], []),
    (["--from", "2026-01-01T00:00:00.004Z"], ["completed", "dlq", "drained"]),
    (["--from", "5m"], []),
    (["--from", "1000w"], KINDS),
    (["--name", "nobody"], []),
]


def test_only_some(chasqui: Chasqui, told: str) -> None:
    for words, seen in SOME:
        assert names(chasqui.call("events", told, "--no-follow", *words)) == seen, words


def test_a_row_that_is_no_event_is_passed_over(chasqui: Chasqui, told: str) -> None:
    tell(chasqui.server, told, [{"x": "no event"}], at=BEGAN + 50)
    ended = chasqui.call("events", told, "--no-follow", "--event", "dlq")
    assert (ended.code, len(ended.out.splitlines())) == (0, 1)
    assert f"{BEGAN + 50}-0 of queue {told!r} is no event, passed over" in ended.err


def test_a_queue_without_events_has_none(chasqui: Chasqui, queue_name: str) -> None:
    chasqui.call("add", queue_name, "welcome", "null")
    assert names(chasqui.call("events", queue_name, "--no-follow")) == []


WRONG = [
    (["--event", "complted"], "did you mean 'completed'?"),
    (["--event", "zzz"], "known: waiting, active"),
    (["--from", "yesterday"], "--from"),
    (["--from", "1-2-3"], "--from"),
    (["--count", "0"], "--count"),
]


def test_a_wrong_command_line_is_one(chasqui: Chasqui) -> None:
    for words, told in WRONG:
        ended = chasqui.call("events", "mail", *words)
        assert (ended.code, ended.out) == (2, "") and told in ended.err


def test_a_key_in_the_way_is_told(chasqui: Chasqui, queue_name: str) -> None:
    chasqui.server.client().set(wire.Keys(queue_name).events, "in the way")
    ended = chasqui.call("events", queue_name, "--no-follow")
    assert ended.code == 3 and "WRONGTYPE" in ended.err


# -- what comes ----------------------------------------------------------------------------------


def test_a_terminal_follows_in_colours_until_ctrl_c(chasqui: Chasqui, queue_name: str) -> None:
    server = chasqui.server
    with (
        chasqui.open("events", queue_name, "--from", "0", columns=120) as terminal,
        Queue(queue_name, redis_url=server.url, dialect=server.forced_dialect) as queue,
    ):
        queue.add("welcome", None, job_id="w:1", delay_ms=60_000)
        text = terminal.until(" delayed id=w:1 name=welcome delay_ms=60000")
        assert len(text.splitlines()) == 1
        tell(server, queue_name, ROWS[4:6], at=99 * BEGAN)
        text = terminal.until("dlq id=- name=- attempt=0 reason=malformed")
        assert "completed id=b:2 name=[red]bill attempt=1" in text
        assert b"\x1b[32mcompleted" in terminal.raw and b"\x1b[1;31mdlq" in terminal.raw
        terminal.press(CTRL_C)
        assert terminal.end() == 0


def test_a_server_that_goes_away_is_waited_for(own_server: DialectServer) -> None:
    chasqui = Chasqui(own_server)
    tell(own_server, "mail", ROWS[:1])
    with chasqui.open("events", "mail", "--from", "0", columns=200) as terminal:
        terminal.until("waiting id=w:1")
        own_server.server.kill()
        terminal.until("chasqui: ")
        own_server.server.start()
        eventually(own_server.client().ping)
        tell(own_server, "mail", ROWS[4:5], at=BEGAN + 9)
        text = terminal.until("completed id=b:2")
        assert text.count("waiting id=w:1") == 1
        assert len([line for line in text.splitlines() if "reconnecting" in line]) <= 1
        terminal.press(CTRL_C)
        assert terminal.end() == 0


def test_lines_come_at_once_and_a_reader_that_leaves_ends_it_quietly(
    native: Chasqui, queue_name: str
) -> None:
    tell(native.server, queue_name, ROWS)
    with native.follow("events", queue_name, "--from", "0") as following:
        assert following.stdout is not None and following.stderr is not None
        seen = [following.stdout.readline().split()[2] for _ in range(7)]
        assert seen[-1] == b"drained"
        following.stdout.close()
        tell(native.server, queue_name, ROWS[:1], at=BEGAN + 100)
        assert following.wait(PATIENCE_S) == 0
        assert following.stderr.read() == b""
