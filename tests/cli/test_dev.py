"""`chasqui dev`: a server and a worker in one terminal, and nothing left behind."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import redis

from chasquimq.sync import Queue
from tests.cli.crew import all_processes, is_alive, parent_of, until
from tests.cli.kit import CTRL_C, Chasqui
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


def descendants(pid: int) -> set[int]:
    parents = {one: parent_of(one) for one in all_processes()}
    found = {pid}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}
