"""`chasqui worker --reload`: a changed file is run, a broken one is told."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from chasquimq.cli.crew.reload import check_reload
from chasquimq.errors import ConfigError
from tests.cli.crew import Crew, until
from tests.cli.kit import Chasqui
from tests.servers import DIALECTS, Servers

CODE = """
import os
import redis
from chasquimq import Worker
from words import WORD

QUEUE = os.environ["CREW_QUEUE"]
client = redis.Redis.from_url(os.environ["CHASQUI_REDIS_URL"])


async def handle(job):
    client.rpush(f"{QUEUE}:ended", f"{os.getpid()} {job.id} {WORD}")


worker = Worker(QUEUE, handle)
"""


@pytest.fixture
def native(servers: Servers) -> Chasqui:
    return Chasqui(servers.shared(DIALECTS[0]))


def test_a_change_is_run_and_a_broken_file_is_told(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "app.py").write_text(CODE)
    (code / "words.py").write_text("WORD = 'first'\n")
    args = {"target": "app:worker", "folder": code}
    with Crew(native, queue_name, "--reload", out=tmp_path, **args) as crew:  # type: ignore[arg-type]
        crew.begins().hears("reloads  when a Python file changes in")
        crew.add("say")
        until(lambda: len(crew.ended) == 1)

        (code / "words.py").write_text("WORD = first.broken\n")
        crew.hears("NameError: name 'first' is not defined")
        crew.hears("goes on with the code that it has")
        crew.add("say")
        until(lambda: len(crew.ended) == 2)

        (code / "words.py").write_text("WORD = 'second'\n")
        until(lambda: crew.said.count("; reloading") >= 2)
        until(lambda: crew.add("say") and crew.ended[-1].name == "second")
        assert [run.name for run in crew.ended[:2]] == ["first", "first"]
        assert crew.ended[-1].pid != crew.ended[0].pid
        until(lambda: len(crew.children()) == 1)
        crew.signal(signal.SIGINT)
        assert crew.ends() == 0


def test_what_is_broken_from_the_start_waits_for_its_mending(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "app.py").write_text("this is no Python\n")
    (code / "words.py").write_text("WORD = 'mended'\n")
    args = {"target": "app:worker", "folder": code}
    with Crew(native, queue_name, "--reload", out=tmp_path, **args) as crew:  # type: ignore[arg-type]
        crew.hears("SyntaxError")
        crew.hears("waiting for the next change")
        (code / "app.py").write_text(CODE)
        crew.begins().add("say")
        until(lambda: len(crew.ended) == 1)
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(ConfigError, match=r"pip install 'chasquimq-py\[reload\]'"):
        check_reload()
