"""`chasqui dev`: a server and a worker in one terminal, and nothing left behind."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import redis

from chasquimq.sync import Queue
from tests.cli.crew import all_processes, is_alive, parent_of, until
from tests.cli.kit import COMMAND, CTRL_C, Chasqui, Ended
from tests.servers import DIALECTS, Servers

CODE = """
from chasquimq import Worker

async def handle(job):
    print("hello", job.data, flush=True)

worker = Worker("desk", handle)
"""


@pytest.fixture
def native(servers: Servers) -> Chasqui:
    return Chasqui(servers.shared(DIALECTS[0]))


def test_one_command_has_it_all_and_leaves_nothing(native: Chasqui, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(CODE)
    del native.env["CHASQUI_REDIS_URL"]
    with native.open("dev", "app:worker", columns=120, cwd=tmp_path) as terminal:
        screen = terminal.until("stop     Ctrl-C")
        url = re.search(r"redis://127.0.0.1:\d+", screen)
        assert url is not None
        if not url[0].endswith(":6379"):
            assert "port 6379 is taken; programs that add jobs need this URL as redis_url" in screen
            assert f"export CHASQUI_REDIS_URL={url[0]}" in screen
        with Queue("desk", redis_url=url[0]) as queue:
            queue.add("greet", "world")
            terminal.until("hello world")
            (tmp_path / "app.py").write_text(CODE.replace("hello", "good day"))
            terminal.until("changed: app.py; reloading")
            family = descendants(terminal.process.pid)
            folder = redis.Redis.from_url(url[0]).config_get("dir")["dir"]
            assert len(family) >= 3, "a guard, its server, a worker"
            until(lambda: queue.add("greet", "sir") and "good day sir" in terminal.text)
            family |= descendants(terminal.process.pid)
        terminal.press(CTRL_C)
        assert terminal.end() == 0, terminal.text
        until(lambda: not any(map(is_alive, family)))
        assert not os.path.exists(folder)
        with pytest.raises(redis.ConnectionError):
            redis.Redis.from_url(url[0]).ping()


FAILS = """
from chasquimq import Worker

def handle(job):
    return job.data["user"]

worker = Worker("desk", handle, max_attempts=2)
"""


def test_every_run_is_shown_once_with_how_it_ended(native: Chasqui, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(FAILS)
    del native.env["CHASQUI_REDIS_URL"]
    with native.open("dev", "app:worker", columns=240, cwd=tmp_path) as terminal:
        screen = terminal.until("stop     Ctrl-C")
        url = re.search(r"redis://127.0.0.1:\d+", screen)
        assert url is not None
        with Queue("desk", redis_url=url[0]) as queue:
            job = queue.add("greet", {"usr": "ada"})
            terminal.until("moved to the DLQ (retries_exhausted)")
            done = [queue.add("greet", {"user": "ada"}).id for _ in range(5)]
            terminal.until(lambda text: text.count(" done in ") == 5)
        terminal.press(CTRL_C)
        assert terminal.end() == 0, terminal.text
    said = terminal.text
    assert f"job 'greet' {job.id} of queue 'desk' failed (attempt 1 of 2): KeyError" in said
    assert (said.count(job.id), said.count("Traceback")) == (2, 2), "a line per run, and no other"
    for one in done:
        assert (
            len(re.findall(rf"INFO .*job 'greet' {one} of queue 'desk' done in [\d.]+ ms", said))
            == 1
        )
    assert "KeyError: 'user'" in said
    assert 'app.py", line 5, in handle' in said
    assert "chasquimq/engine" not in said, "the traceback begins where their code does"


# -- what the system refuses ---------------------------------------------------------------------


def refused(ended: Ended, *words: str) -> None:
    """One line, after those of a server that had begun."""
    assert ended.code == 2, ended.err
    *before, last = ended.err.splitlines()
    assert last.startswith("chasqui: CMQ-004: ")
    for word in words:
        assert word in last
    assert all(line.startswith(("server  ", "        ")) for line in before), ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("app.py/data", "Not a directory"),
        ("app.py", "File exists"),
        ("/proc/nowhere", "No such file or directory"),
        ("/proc/sys", "No such file or directory"),
        ("x" * 300, "File name too long"),
        ("loop/data", "Too many levels of symbolic links"),
        ("\x1b[31mred/" + "x" * 300, "\\x1b[31mred"),
    ],
    ids=["behind a file", "a file", "nowhere", "not ours", "too long", "loop", "red"],
)
def test_a_folder_that_cannot_be_had_is_one_line(
    native: Chasqui, tmp_path: Path, folder: str, why: str
) -> None:
    (tmp_path / "app.py").write_text(CODE)
    (tmp_path / "loop").symlink_to("loop")
    for command in (["dev", "app:worker"], ["server"]):
        ended = native.run(*command, "--folder", folder, cwd=tmp_path)
        refused(ended, why, "cannot keep data in", "give another folder, or none")
        assert "\x1b" not in ended.err


def apart(native: Chasqui, home: Path, before: str) -> Ended:
    """`chasqui dev` with mounts and limits of its own; where the system lets nobody have these,
    there is nothing to see."""
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*inside, before], cwd=home).returncode:
        pytest.skip("no mounts and limits of one's own here")
    command = shlex.join([*COMMAND, "dev", "app:worker"])
    done = subprocess.run(
        [*inside, f"{before} && exec {command} $MORE"],
        cwd=home, env=native.env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("folder", ["disk", "disk/data"])
def test_a_folder_on_a_disk_for_reading_is_one_line(
    native: Chasqui, tmp_path: Path, folder: str
) -> None:
    (tmp_path / "app.py").write_text(CODE)
    (tmp_path / "disk").mkdir()
    native.env["MORE"] = f"--folder {folder}"
    ended = apart(native, tmp_path, "mount -t tmpfs -o ro none disk")
    refused(ended, str(tmp_path / folder), "Read-only file system")


def test_a_system_that_lets_nobody_watch_files_is_one_line(native: Chasqui, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(CODE)
    ended = apart(native, tmp_path, "echo 0 > /proc/sys/user/max_inotify_instances")
    assert ended.code == 2
    last = ended.err.splitlines()[-1]
    assert last.startswith(f"chasqui: CMQ-004: cannot watch {tmp_path} for changes: ")
    assert "Too many open files" in last and "fs.inotify" in last
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("more", [[], ["--folder", "data"]])
def test_a_current_folder_that_is_gone_is_one_line(
    native: Chasqui, tmp_path: Path, more: list[str]
) -> None:
    home = tmp_path / "gone"
    home.mkdir()
    command = shlex.join([*COMMAND, "dev", "app:worker", *more])
    done = subprocess.run(
        ["sh", "-c", f"cd {home} && rmdir {home} && exec {command}"],
        env=native.env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    refused(Ended(done.returncode, done.stdout, done.stderr), "the current folder is gone")


def descendants(pid: int) -> set[int]:
    parents = {one: parent_of(one) for one in all_processes()}
    found = {pid}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}
