"""`chasqui worker` from outside: how it begins, how it stops, how it ends."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from chasquimq.server import Server
from tests.cli.crew import ROOT, TARGET, Crew, add, all_processes, until
from tests.cli.golden import same
from tests.cli.kit import CTRL_C, Chasqui
from tests.servers import DIALECTS, DialectServer, Servers, binary_for

WORDS = {r"chasqui \d\S*": "chasqui VERSION", r"redis://\S+": "URL", r"[\d.]+ (ms|s)$": "TIME"}


@pytest.fixture
def native(servers: Servers) -> Chasqui:
    return Chasqui(servers.shared(DIALECTS[0]))


def test_two_processes_run_a_queue_dry(chasqui: Chasqui, queue_name: str, tmp_path: Path) -> None:
    ids = add(chasqui.server, queue_name, "nap", 200)
    with Crew(chasqui, queue_name, "--burst", "--processes", "2", out=tmp_path) as crew:
        assert crew.ends() == 0
        assert Counter(run.job_id for run in crew.ended) == Counter(ids)
        assert (crew.waiting(), crew.consumers()) == (0, set())


def test_what_a_burst_says(native: Chasqui, queue_name: str, tmp_path: Path) -> None:
    args, target = ("--burst", "--concurrency", "7"), "tests.cli.crew_app:calm"
    with Crew(native, queue_name, *args, target=target, out=tmp_path) as crew:
        assert crew.ends() == 0
        same("worker-burst", crew.said, {queue_name: "QUEUE", target: TARGET, **WORDS})


def test_the_first_signal_lets_jobs_end(native: Chasqui, queue_name: str, tmp_path: Path) -> None:
    args = ("--processes", "2", "--metrics", "127.0.0.1:0")
    with Crew(native, queue_name, *args, out=tmp_path) as crew:
        crew.begins().add("hold", 6)
        until(lambda: len(crew.seen) == 6)
        until(crew.reading)  # there is room for two more
        crew.signal(signal.SIGTERM)
        crew.hears("SIGTERM: draining")
        crew.stops_reading(2)
        later = crew.add("nap")
        assert not crew.has_ended()
        crew.let_go()
        assert crew.ends() == 0
        assert len(crew.ended) == 6, "every job that ran came to its end"
        assert later[0] not in {run.job_id for run in crew.seen}, "nothing new was begun"
        assert (crew.waiting(), crew.pending(), crew.consumers()) == (1, 0, set())
        assert "6 jobs done, 0 runs failed" in crew.said


def test_the_second_signal_gives_jobs_back(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    with Crew(native, queue_name, out=tmp_path) as crew:
        crew.begins().add("hold", 3)
        until(lambda: len(crew.seen) == 3)
        crew.signal(signal.SIGTERM)
        crew.hears("SIGTERM: draining")
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 143
        assert (crew.ended, crew.waiting(), crew.pending()) == ([], 3, 0)
        # The next worker has them at once.
        crew.let_go()
        with Crew(native, queue_name, "--burst", out=tmp_path) as after:
            assert after.ends() == 0
            assert (len(after.ended), after.waiting()) == (3, 0)


def test_ctrl_c_reaches_all_processes_and_counts_once(native: Chasqui, queue_name: str) -> None:
    native.env["CREW_QUEUE"] = queue_name
    client = native.server.client()
    with native.open("worker", TARGET, "--processes", "2", columns=120, cwd=ROOT) as terminal:
        terminal.until("stop     Ctrl-C")
        add(native.server, queue_name, "hold")
        until(lambda: client.llen(f"{queue_name}:seen"))
        terminal.press(CTRL_C)
        terminal.until("SIGINT: draining")
        client.set(f"{queue_name}:go", 1)
        assert terminal.end() == 0
        assert client.llen(f"{queue_name}:ended") == client.llen(f"{queue_name}:seen")
    client.delete(f"{queue_name}:go")
    with native.open("worker", TARGET, columns=120, cwd=ROOT) as terminal:
        terminal.until("stop     Ctrl-C")
        add(native.server, queue_name, "hold")
        until(lambda: client.llen(f"{queue_name}:seen") > client.llen(f"{queue_name}:ended"))
        terminal.press(CTRL_C)
        terminal.until("SIGINT: draining")
        terminal.press(CTRL_C)
        assert terminal.end() == 130
    assert client.xlen(f"{{chasqui:{queue_name}}}:stream") == 1


def test_a_closed_terminal_is_an_end(native: Chasqui, queue_name: str) -> None:
    native.env["CREW_QUEUE"] = queue_name
    with native.open("worker", TARGET, columns=120, cwd=ROOT) as terminal:
        terminal.until("stop     Ctrl-C")
        add(native.server, queue_name, "hold")
        client = native.server.client()
        until(lambda: client.llen(f"{queue_name}:seen"))
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, terminal._end)  # which closes it
        os.close(nowhere)
        client.set(f"{queue_name}:go", 1)
        assert terminal.process.wait(30) == 0
        assert client.llen(f"{queue_name}:ended") == 1


def test_no_password_is_shown_anywhere(queue_name: str, tmp_path: Path) -> None:
    secret = "hunter-2-hunter"  # not a secret
    with Server(binary_for(DIALECTS[0]), password=secret) as server:
        own = DialectServer("own", server, None)
        chasqui = Chasqui(own)
        with Crew(chasqui, queue_name, "--processes", "2", out=tmp_path) as crew:
            crew.begins().add("nap")
            until(lambda: len(crew.ended) == 1)
            assert len(crew.children()) == 2
            for pid in all_processes():
                assert secret not in _command_line(pid)
            crew.signal(signal.SIGTERM)
            assert crew.ends() == 0
            assert secret not in crew.said and ":***@" in crew.said
        own.close()
        chasqui.env["CHASQUI_REDIS_URL"] = server.url.replace(secret, "wrong-" + secret)
        ended = chasqui.run("worker", TARGET, cwd=ROOT)
        assert (ended.code, secret in ended.err) == (3, False)
        assert "CMQ-001" in ended.err


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_a_server_that_is_away_ends_a_burst_and_is_waited_for_otherwise(
    native: Chasqui, queue_name: str, tmp_path: Path, servers: Servers
) -> None:
    with servers.private(DIALECTS[0]) as own:
        chasqui = Chasqui(own)
        own.server.kill()
        assert chasqui.run("worker", TARGET, "--burst", cwd=ROOT).code == 3
        with Crew(chasqui, queue_name, out=tmp_path) as crew:
            crew.hears("is it running there?; trying again in 0.5 s")
            own.server.start()
            crew.begins().add("nap")
            until(lambda: len(crew.ended) == 1)
            crew.signal(signal.SIGINT)
            assert crew.ends() == 0


def test_json_is_all_that_is_said_where_it_was_asked_for(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    with Crew(native, queue_name, "--burst", "--log-format", "json", out=tmp_path) as crew:
        assert crew.ends() == 0
        lines = [json.loads(line) for line in crew.said.splitlines()]
        assert any("0 jobs done" in line["message"] for line in lines)
        [start] = [line for line in lines if line["message"] == "running"]
        assert (start["target"], start["processes"], start["burst"]) == (TARGET, 1, True)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["tests.cli.crew_app:wroker"], "its Workers: worker, calm, named"),
        (["tests.cli.crew_app:worker", "--max-memory", "1"], "is less than a process needs"),
    ],
)
def test_what_cannot_work_ends_the_first_start(
    native: Chasqui, args: list[str], words: str
) -> None:
    ended = native.run("worker", *args, "--processes", "2", cwd=ROOT)
    assert (ended.code, ended.err.count(words)) == (2, 1), ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["crew_app.py"], "did you mean crew_app:worker?"),
        (["crew_app:worker", "--metrics", "nonsense"], "must be a port or host:port"),
        (["crew_app:worker", "--processes", "0"], "processes"),
        (["crew_app:worker", "--log-level", "loud"], "loud"),
    ],
)
def test_a_wrong_command_line_starts_nothing(native: Chasqui, args: list[str], words: str) -> None:
    ended = native.call("worker", *args)
    assert (ended.code, words in ended.err) == (2, True), ended.err
