"""The command from outside: what it prints and how it ends."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from chasquimq import wire
from chasquimq._version import __version__
from chasquimq.cli import main
from chasquimq.job import Envelope
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


DEAD = [f"a{number}" for number in range(3)]
FULL = "chasqui: cannot write to stdout: No space left on device"
WRITING = [  # a command, and what it says beside that
    ("--version", ""),
    ("--help", ""),
    ("dlq export --help", ""),
    ("inspect {}", ""),
    ("inspect {} --json", ""),
    ("jobs list {}", ""),
    ("jobs list {} --json", ""),
    ("jobs show {} a1", ""),
    ("doctor {} --json", ""),
    ("dlq peek {}", ""),
    ("dlq export {}", ""),
    ("dlq export {} - --format msgpack", ""),
    ("dlq replay {} --limit 1 --yes", ""),
    ("repeatable list {} --json", ""),
    ("add {} x 1", "; added 1 job"),
    ("add {} x --file {file} --ids --json", "; added 300 jobs"),
    ("events {} --no-follow", ""),
    ("watch {} --json", ""),
    ("pause {}", ""),
    ("server", ""),
]


def run_full(native: Chasqui, words: list[str], stream: str) -> subprocess.CompletedProcess[str]:
    """A command one of whose streams is on a full disk."""
    with open("/dev/full", "w") as full:
        streams = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            stream: full,
        }
        return subprocess.run(
            [*CHASQUI, *words],
            env=native.env,
            cwd=ROOT,
            text=True,
            timeout=60,
            check=False,
            **streams,  # type: ignore[call-overload]
        )


@pytest.fixture
def filled(native: Chasqui, queue_name: str, tmp_path: Path) -> dict[str, str]:
    """A queue with something of everything, and a file of records."""
    add(native.server, queue_name, "nap", 2)
    for job_id in DEAD:
        body = wire.pack_envelope(Envelope(job_id, b"\xc0", 1, 2))
        fields = wire.pack_dead(body, b"n", b"1-0", "retries_exhausted", job_id=job_id, attempt=3)
        native.server.client().execute_command("XADD", wire.Keys(queue_name).dlq, "*", *fields)
    keys, event = wire.Keys(queue_name), wire.pack_event("active", "a", 7)
    native.server.client().execute_command("XADD", keys.events, "*", *event)
    (tmp_path / "jobs.jsonl").write_text("1\n" * 300)
    return {"queue": queue_name, "file": str(tmp_path / "jobs.jsonl")}


@pytest.mark.parametrize(("command", "more"), WRITING, ids=[words for words, _ in WRITING])
def test_a_full_disk_behind_stdout_is_one_line_and_an_exit_code(
    native: Chasqui, filled: dict[str, str], command: str, more: str
) -> None:
    words = command.format(filled["queue"], file=filled["file"]).split()
    ended = run_full(native, words, "stdout")
    assert (ended.returncode, ended.stderr) == (1, f"{FULL}{more}\n")


@pytest.mark.parametrize(
    ("command", "code"),
    [("inspect {}", 0), ("dlq export {}", 0), ("jobs show {} nobody", 1), ("nonsense", 2)],
)
def test_a_full_disk_behind_stderr_changes_no_exit_code(
    native: Chasqui, filled: dict[str, str], command: str, code: int
) -> None:
    ended = run_full(native, command.format(filled["queue"]).split(), "stderr")
    assert ended.returncode == code
    assert command != "dlq export {}" or len(ended.stdout.splitlines()) == len(DEAD)


def test_a_file_that_cannot_be_written_to_its_end_is_named_and_not_left(
    native: Chasqui, filled: dict[str, str], tmp_path: Path
) -> None:
    words = ["dlq", "export", filled["queue"]]
    ended = run_full(native, [*words, "/dev/full", "--force"], "stdin")
    line = "chasqui: /dev/full: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (1, line)
    folder = tmp_path / "out"
    folder.mkdir()
    limited = subprocess.run(
        [*CHASQUI, *words, str(folder / "dead.jsonl")],
        env=native.env,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
        check=False,
    )
    line = f"chasqui: {folder / 'dead.jsonl'}: File too large\n"
    assert (limited.returncode, limited.stderr) == (1, line)
    assert list(folder.iterdir()) == []


def test_a_worker_goes_on_when_its_log_cannot_be_written(native: Chasqui, queue_name: str) -> None:
    add(native.server, queue_name, "nap", 2)
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*CHASQUI, "worker", TARGET, "--burst", "--log-level", "debug"],
            env={**native.env, "CREW_QUEUE": queue_name},
            cwd=ROOT,
            stdout=full,
            stderr=full,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 0
    assert native.server.client().llen(f"{queue_name}:ended") == 2


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
