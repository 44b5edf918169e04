"""The command from outside: what it prints and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import redis

from chasquimq._version import __version__
from chasquimq.cli import main
from tests.cli.crew import ROOT, TARGET, add
from tests.cli.kit import Chasqui

CHASQUI = [sys.executable, "-m", "chasquimq"]


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"chasqui {__version__}\n"


def test_help_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "chasqui doctor" in capsys.readouterr().out


def test_no_command_is_a_wrong_command_line_and_says_what_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 2
    assert "chasqui doctor" in capsys.readouterr().out


def test_an_unknown_command_is_a_wrong_command_line() -> None:
    assert main(["serve"]) == 2


def test_what_cannot_be_had_is_one_line() -> None:
    command = [*CHASQUI, "server", "--binary", "/nowhere"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == "chasqui: CMQ-004: there is no server program at '/nowhere'\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_runs_until_it_is_told_to_stop(number: signal.Signals) -> None:
    with subprocess.Popen(
        [*CHASQUI, "server"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        client = redis.Redis.from_url(command.stdout.readline().strip())
        assert client.ping()
        client.close()
        command.send_signal(number)
        assert command.wait(10) == 0
    with pytest.raises(redis.ConnectionError):
        client.ping()


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_a_stream_that_the_caller_has_closed_stops_no_command(
    native: Chasqui, queue_name: str, closed: tuple[int, ...]
) -> None:
    """As a daemon may be started, or by `>&-`."""
    add(native.server, queue_name, "nap", 2)
    env = {**native.env, "CREW_QUEUE": queue_name}

    def close() -> None:
        for number in closed:
            os.close(number)

    look = ["inspect", queue_name]  # others on this server may not be well
    for words in (["--version"], look, ["worker", TARGET, "--burst"], [*look, "--json"]):
        ended = subprocess.run(
            [*CHASQUI, *words],
            env=env,
            cwd=ROOT,
            capture_output=True,
            preexec_fn=close,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr.decode()
        assert b"Traceback" not in ended.stderr
        if words == [*look, "--json"] and 1 not in closed:
            assert json.loads(ended.stdout)["queue"] == queue_name
    done = native.server.client().lrange(f"{queue_name}:ended", 0, -1)
    assert len(done) == 2
