"""`chasqui watch`: the table over and over, in terminals and pipes, also while a server is away."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

import pytest

from chasquimq import wire
from chasquimq.address import read_url
from chasquimq.cli import watch
from tests.cli.kit import CTRL_C, PATIENCE_S, Chasqui
from tests.servers import DIALECTS, DialectServer, Servers

ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
SHOWS_CURSOR, HIDES_CURSOR = b"\x1b[?25h", b"\x1b[?25l"
OWN_SCREEN, FIRST_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def one_server(servers: Servers) -> Iterator[DialectServer]:
    """A server of one's own on one dialect, for what no dialect makes a difference to."""
    with servers.private(DIALECTS[0]) as server:
        yield server


def put(server: DialectServer, name: str, jobs: int) -> None:
    at_once = server.client().pipeline(transaction=True)
    for _ in range(jobs):
        at_once.xadd(wire.Keys(name).stream, {"d": "x"})
    at_once.execute()


def depth(text: str) -> list[str]:
    """What stands behind `stream depth`."""
    found = re.search(r"stream depth +│? *([\d,]+)(?: *│? *([+-]?[\d,]+))?", text)
    return [one for one in found.groups() if one] if found else []


# -- in a pipe -----------------------------------------------------------------------------------


def test_a_pipe_gets_a_block_per_look(chasqui: Chasqui, queue_name: str) -> None:
    put(chasqui.server, queue_name, 3)
    ended = chasqui.call("watch", queue_name, "--count", "3", "--interval-ms", "20")
    assert (ended.code, ended.err) == (0, "")
    blocks = ended.out.split("\n\n")
    assert len(blocks) == 4 and blocks[-1] == ""
    for block in blocks[:3]:
        header = rf"chasqui watch {queue_name}  refresh=20ms  {ISO}  \(Ctrl\+C to exit\)"
        assert re.fullmatch(header, block.splitlines()[0])
    assert [depth(block) for block in blocks[:3]] == [["3"], ["3", "0"], ["3", "0"]]
    assert "Δ" not in blocks[0] and "Δ" in blocks[1]
    assert blocks[0].splitlines()[-1] == "in -/s  out -/s  dead -/s"
    assert re.match(r"in 0\.0/s  out 0\.0/s  dead 0\.0/s", blocks[1].splitlines()[-1])
    assert "\x1b" not in ended.out


def test_a_line_of_json_per_look(chasqui: Chasqui, queue_name: str) -> None:
    put(chasqui.server, queue_name, 3)
    out = chasqui.call("watch", queue_name, "--count", "2", "--interval-ms", "5", "--json").out
    first, second = map(json.loads, out.splitlines())
    assert re.fullmatch(ISO, first["at"])
    assert (first["stream_depth"], first["stream_delta"], first["in_per_s"]) == (3, None, None)
    assert (second["stream_depth"], second["stream_delta"], second["in_per_s"]) == (3, 0, 0.0)


def test_all_queues(chasqui: Chasqui, queue_name: str) -> None:
    put(chasqui.server, queue_name, 3)
    out = chasqui.call("watch", "--count", "1").out
    [row] = [line.split() for line in out.splitlines() if line.startswith(queue_name)]
    assert row[1:] == ["3", "0", "0", "0", row[5], "-", "-", "no", "workers"]
    found = json.loads(chasqui.call("watch", "--count", "1", "--json").out)
    assert queue_name in [one["queue"] for one in found["queues"]]


def test_a_queue_that_is_not_there_yet_is_waited_for(chasqui: Chasqui, queue_name: str) -> None:
    ended = chasqui.call("watch", queue_name, "--count", "1")
    assert ended.code == 0 and "there is no such queue (yet)" in ended.out


@pytest.mark.parametrize("words", [["--interval-ms", "0"], ["--count", "0"], ["a}b"]])
def test_a_wrong_command_line_is_one(chasqui: Chasqui, words: list[str]) -> None:
    assert chasqui.call("watch", *words).code == 2


def test_an_error_that_does_not_pass_ends_it(chasqui: Chasqui, queue_name: str) -> None:
    client = chasqui.server.client()
    rules = ("on", ">pw", "~*", "&*", "+@all", "-xinfo")  # not a secret
    put(chasqui.server, queue_name, 1)
    client.execute_command("ACL", "SETUSER", "watcher", *rules)
    url = chasqui.server.url.replace("redis://", "redis://watcher:pw@")
    ended = chasqui.call("watch", queue_name, "--redis-url", url)
    client.execute_command("ACL", "DELUSER", "watcher")
    assert (ended.code, ended.out) == (3, "")
    assert "looking at queue" in ended.err and len(ended.err.splitlines()) == 1


def test_a_server_that_was_never_there_is_not_waited_for(chasqui: Chasqui) -> None:
    ended = chasqui.call("watch", "mail", "--redis-url", "redis://127.0.0.1:1")
    assert (ended.code, ended.out) == (3, "")


def test_a_reader_that_leaves_ends_it_quietly(native: Chasqui, queue_name: str) -> None:
    with native.follow("watch", queue_name, "--interval-ms", "1") as watching:
        assert watching.stdout is not None and watching.stderr is not None
        assert watching.stdout.readline().startswith(b"chasqui watch")
        watching.stdout.close()
        assert watching.wait(PATIENCE_S) == 0
        assert watching.stderr.read() == b""


# -- in a terminal -------------------------------------------------------------------------------


def test_a_terminal_follows_changes_and_sizes_until_ctrl_c(
    chasqui: Chasqui, queue_name: str
) -> None:
    put(chasqui.server, queue_name, 3)
    with chasqui.open("watch", queue_name, "--interval-ms", "100") as terminal:
        terminal.until(lambda text: depth(text) == ["3", "0"])
        put(chasqui.server, queue_name, 2)
        terminal.until(lambda text: depth(text) == ["5", "0"] and "in 0.0/s" not in text)
        assert b"+2" in terminal.raw
        terminal.resize(132, 30)
        wide = terminal.until(lambda text: f"queue: {queue_name}" in text)
        assert "waiting ▅" in wide or "waiting ▆" in wide
        put(chasqui.server, queue_name, 1)
        terminal.until(lambda text: depth(text) == ["6", "0"])
        assert b"\x1b[2J" not in terminal.raw  # nothing is wiped: that would flicker
        drawn = len(terminal.raw)
        terminal.press(CTRL_C)
        assert terminal.end() == 0
        assert terminal.raw.startswith(OWN_SCREEN)
        _, left, rest = terminal.raw[drawn - 100 :].partition(FIRST_SCREEN)
        assert left and b"stream depth" in rest  # it stays, to be read
        assert terminal.raw.count(HIDES_CURSOR) == terminal.raw.count(SHOWS_CURSOR) == 1


def test_a_server_that_goes_away_is_waited_for(own_server: DialectServer) -> None:
    chasqui = Chasqui(own_server)
    put(own_server, "mail", 3)
    with chasqui.open("watch", "mail", "--interval-ms", "50") as terminal:
        terminal.until(lambda text: depth(text) == ["3", "0"])
        own_server.server.kill()
        text = terminal.until("no answer")
        where = f"no answer from {own_server.url} since {ISO}; trying again"
        assert re.search(where, text.replace("\n", " "))
        assert depth(text)[0] == "3"  # what was known last
        own_server.server.start()
        text = terminal.until(lambda text: "no answer" not in text)
        put(own_server, "mail", 1)
        terminal.until(lambda text: depth(text) == ["4", "0"])
        # Whoever ends it: the terminal is left as it was found.
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 0
        assert terminal.raw.count(SHOWS_CURSOR) == 1 and FIRST_SCREEN in terminal.raw


def test_a_pipe_is_told_that_the_server_is_away(one_server: DialectServer) -> None:
    put(one_server, "mail", 1)
    flags = ("--interval-ms", "50", "--json")
    with Chasqui(one_server).follow("watch", "mail", *flags) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["stream_depth"] == 1
        one_server.server.kill()
        lines = (json.loads(line) for line in watching.stdout)
        away = next(line for line in lines if "no_answer_since" in line)
        assert set(away) == {"at", "no_answer_since"} and away["no_answer_since"] < away["at"]
        one_server.server.start()
        back = next(line for line in lines if "stream_depth" in line)
        assert back["stream_depth"] == 1
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE_S) == 0


def test_more_queues_than_a_terminal_has_rows(one_server: DialectServer) -> None:
    chasqui = Chasqui(one_server)
    for number in range(30):
        put(one_server, f"queue-{number:02}", 1 + number)
    with chasqui.open("watch", "--interval-ms", "600000") as terminal:
        text = terminal.until("17 of 30 queues: those with the most to do")
        assert "queue-29" in text and "queue-12" not in text
        assert len(terminal.lines) <= 24
        terminal.resize(100, 40)
        assert "queue-00" in terminal.until("queue-12")
        terminal.press(CTRL_C)
        assert terminal.end() == 0


def test_a_terminal_that_cannot_be_drawn_over_gets_blocks(native: Chasqui, queue_name: str) -> None:
    native.env["TERM"] = "dumb"
    with native.open("watch", queue_name, "--count", "2", "--interval-ms", "5") as terminal:
        assert terminal.end() == 0
        assert terminal.raw.count(b"chasqui watch") == 2 and b"\x1b" not in terminal.raw


async def test_queues_that_come_later_are_found(one_server: DialectServer) -> None:
    put(one_server, "first", 1)
    view = watch.View(None, 1, "here")
    watcher = watch.Watcher(read_url(one_server.url), None, "default", view)
    await watcher.open()
    await watcher.look()
    assert list(view.trends) == ["first"]
    put(one_server, "second", 1)
    one_server.client().delete(wire.Keys("first").stream)
    await watcher.look()
    assert view.every() == []  # gone
    await watcher.survey()
    await watcher.look()
    assert [one.last.queue for one in view.every()] == ["second"]
    await watcher.close()
