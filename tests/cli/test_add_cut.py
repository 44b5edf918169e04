"""`chasqui add` that cannot go on: what is in, what is not, what is in doubt, where to go on."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from chasquimq import wire
from chasquimq.cli import add
from tests.cli.feed import data, eventually, lines, piped, unread
from tests.cli.kit import Chasqui
from tests.servers import DialectServer


def test_a_full_queue_says_how_many_are_in_and_where_to_go_on(
    chasqui: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    file = lines(tmp_path / "users.jsonl", 500)
    args = ("add", queue_name, "n", "--file", str(file), "--max-stream-len", "120")
    ended = chasqui.call(*args)
    assert ended.code == 1 and "CMQ-030" in ended.err and ended.out == "added 120 jobs\n"
    assert "added 120 jobs before that" in ended.err and "--from-line 121" in ended.err
    assert data(chasqui, queue_name) == [{"user": n} for n in range(120)]
    told = json.loads(chasqui.call(*args, "--from-line", "121", "--json").out)
    assert (told["added"], told["next"], told["not_added"]) == (0, 121, [])


def test_it_may_wait_for_room(native: Chasqui, queue_name: str, tmp_path: Path) -> None:
    file, stream = lines(tmp_path / "users.jsonl", 150), wire.Keys(queue_name).stream
    args = ("add", queue_name, "n", "--file", str(file), "--max-stream-len", "100")
    client = native.server.client()
    with native.open(*args, "--on-full", "wait", columns=100) as terminal:
        terminal.until("waiting for room")
        assert client.xlen(stream) == 100
        client.xtrim(stream, maxlen=0)
        assert terminal.end() == 0
        assert "added 150 jobs" in terminal.text
    assert client.xlen(stream) == 50


def test_memory_that_ran_out_says_which_are_in(own_server: DialectServer, tmp_path: Path) -> None:
    chasqui, client = Chasqui(own_server), own_server.client()
    chasqui.call("add", "full", "n", "0")
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 3_000_000)
    file = tmp_path / "users.jsonl"
    file.write_text("".join(f'"{n:01000d}"\n' for n in range(1, 9_001)))
    ended = chasqui.call("add", "full", "n", "--file", str(file), "--json")
    told = json.loads(ended.out)
    assert ended.code == 1 and "CMQ-030" in ended.err
    client.config_set("maxmemory", 0)
    found = [int(one) for one in data(chasqui, "full")[1:]]
    assert 0 < told["added"] == len(found) < 9_000
    missing = set(told["not_added"])
    assert sorted(found) == [n for n in range(1, told["next"]) if n not in missing]


def test_ctrl_c_says_exactly_what_is_in(native: Chasqui, queue_name: str) -> None:
    interrupted(native, queue_name, signal.SIGINT)


def test_sigterm_does_too(native: Chasqui, queue_name: str) -> None:
    interrupted(native, queue_name, signal.SIGTERM)


def interrupted(chasqui: Chasqui, queue_name: str, number: int) -> None:
    stream, client = wire.Keys(queue_name).stream, chasqui.server.client()
    with piped(chasqui, queue_name, "n", "--json") as running:
        assert running.stdin is not None
        running.stdin.write(b"".join(b"%d\n" % n for n in range(1, 3_001)))
        running.stdin.flush()
        eventually(lambda: client.xlen(stream) == 3_000)
        running.send_signal(number)
        out, err = running.communicate(timeout=30)
    told = json.loads(out)
    assert running.returncode == 130
    assert (told["added"], told["next"], told["unconfirmed"]) == (3_000, 3_001, [])
    assert b"stopped" in err and b"go on with --from-line 3001" in err
    assert client.xlen(stream) == 3_000


def test_ctrl_c_waits_for_the_answers_to_a_bulk(own_server: DialectServer) -> None:
    chasqui, stream = Chasqui(own_server), wire.Keys("bulk").stream
    client = own_server.client(socket_timeout=5)
    with piped(chasqui, "bulk", "n", "--json") as running:
        assert running.stdin is not None
        running.stdin.write(b"1\n")
        running.stdin.flush()
        eventually(lambda: client.xlen(stream) == 1)
        own_server.server.pause()
        running.stdin.write(b"2\n3\n")
        running.stdin.flush()
        eventually(lambda: unread(own_server))
        running.send_signal(signal.SIGINT)
        own_server.server.resume()
        out, _ = running.communicate(timeout=30)
    told = json.loads(out)
    assert (running.returncode, told["unconfirmed"]) == (130, [])
    assert (told["added"], told["next"], client.xlen(stream)) == (3, 4, 3)


def test_a_server_that_dies_in_a_bulk_leaves_exact_counts(
    own_server: DialectServer, tmp_path: Path
) -> None:
    chasqui, stream = Chasqui(own_server), wire.Keys("bulk").stream
    total = 12_000
    file = lines(tmp_path / "users.jsonl", total)
    with piped(chasqui, "bulk", "n", "--file", str(file), "--json") as running:
        with own_server.client(socket_timeout=5) as client:
            eventually(lambda: client.xlen(stream) > 2_000)
        own_server.server.pause()  # whatever it sends now is on its way
        own_server.server.kill()
        own_server.server.start()
        out, err = running.communicate(timeout=60)
    told = json.loads(out)
    found = own_server.client(socket_timeout=5).xlen(stream)
    doubts = len(told["unconfirmed"])
    assert told["added"] <= found <= told["added"] + doubts
    if doubts:  # those on their way, where the server cannot tell whether it has seen them
        assert running.returncode == 1 and b"nobody knows" in err
        assert all(one["job_id"] for one in told["unconfirmed"])
    else:
        assert (running.returncode, found) == (0, total)
    again = chasqui.call(
        "add", "bulk", "n", "--file", str(file), "--from-line", str(told["next"])
    )  # goes on
    assert again.code == (0 if doubts else 1)
    left = total - told["next"] + 1
    assert own_server.client(socket_timeout=5).xlen(stream) == found + left


def test_what_was_on_its_way_to_a_server_that_is_gone_is_in_doubt(
    own_server: DialectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add, "GIVE_UP_AFTER", 2)
    chasqui, stream = Chasqui(own_server), wire.Keys("bulk").stream
    fifo = tmp_path / "jobs.jsonl"
    os.mkfifo(fifo)
    client = own_server.client(socket_timeout=5)

    def write() -> None:
        with fifo.open("wb", buffering=0) as writer:
            writer.write(b"1\n")
            eventually(lambda: client.xlen(stream) == 1)
            own_server.server.pause()
            writer.write(b"2\n3\n")
            eventually(lambda: unread(own_server))
            own_server.server.kill()

    writer = threading.Thread(target=write)
    writer.start()
    ended = chasqui.call("add", "bulk", "n", "--file", str(fifo), "--json")
    writer.join()
    told = json.loads(ended.out)
    assert (ended.code, told["added"], told["next"]) == (1, 1, 4)
    assert [one["number"] for one in told["unconfirmed"]] == [2, 3]
    assert "lines 2 to 3 (2 jobs): nobody knows" in ended.err
    assert ended.err.count("reconnecting to") <= 1 and ".outcomes" not in ended.err


def test_what_came_after_the_server_had_gone_is_not_in(
    own_server: DialectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(add, "GIVE_UP_AFTER", 1)
    chasqui, stream = Chasqui(own_server), wire.Keys("bulk").stream
    fifo = tmp_path / "jobs.jsonl"
    os.mkfifo(fifo)
    client = own_server.client(socket_timeout=5)

    def write() -> None:
        with fifo.open("wb", buffering=0) as writer:
            writer.write(b"1\n")
            eventually(lambda: client.xlen(stream) == 1)
            own_server.server.kill()
            eventually(lambda: "reconnecting to" in caplog.text)
            writer.write(b"2\n3\n")

    writer = threading.Thread(target=write)
    writer.start()
    ended = chasqui.call("add", "bulk", "n", "--file", str(fifo), "--json")
    writer.join()
    told = json.loads(ended.out)
    assert (ended.code, told["added"], told["unconfirmed"], told["next"]) == (3, 1, [], 2)
    assert "added 1 job before that" in ended.err and "--from-line 2" in ended.err
    assert ended.err.count("reconnecting to") == 1
