"""Targets that end their process, or fail, before it is ready: told once, and not for ever."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from pathlib import Path

import pytest

from chasquimq.cli.crew import backoff
from chasquimq.cli.crew.backoff import HOPELESS
from chasquimq.cli.crew.message import Orders
from chasquimq.cli.crew.supervisor import Plan, Supervisor
from tests.cli.crew import Crew, until
from tests.cli.kit import Chasqui
from tests.engine.desk import eventually

ENDS = "import os\nos._exit({})\n"
KILLED = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
FAILS = """
from chasquimq import Worker

class Broken(Worker):
    async def run(self):
        raise RuntimeError("the engine room is empty")

async def handle(job): ...

worker = Broken("mail", handle)
"""
WORKS = """
import os, redis
from chasquimq import Worker
client = redis.Redis.from_url(os.environ["CHASQUI_REDIS_URL"])
QUEUE = os.environ["CREW_QUEUE"]

async def handle(job):
    client.rpush(f"{QUEUE}:ended", f"{os.getpid()} {job.id} done")

worker = Worker(QUEUE, handle)
"""
NAMED = WORKS.replace("handle)\n", "handle, consumer_id='desk')\n")


def runs(native: Chasqui, queue: str, home: Path, *args: str) -> Crew:
    return Crew(native, queue, *args, target="app:worker", folder=home, out=home)


@pytest.mark.parametrize(
    ("code", "how"),
    [
        pytest.param(ENDS.format(0), "ended with exit code 0", marks=pytest.mark.slow),
        pytest.param(KILLED, "was killed by SIGSEGV", marks=pytest.mark.slow),
        (FAILS, "ended with exit code 1: RuntimeError: the engine room is empty"),
    ],
    ids=["ends well", "killed", "fails"],
)
def test_a_target_that_never_works_is_given_up(
    native: Chasqui, queue_name: str, tmp_path: Path, code: str, how: str
) -> None:
    (tmp_path / "app.py").write_text(code)
    with runs(native, queue_name, tmp_path) as crew:
        assert crew.ends() == 1
    *_, last = crew.said.splitlines()
    assert last.startswith(f"chasqui: CMQ-000: process 1 has ended {HOPELESS} times")
    assert f"before it was ready; the last time it {how}" in last
    assert "starting again in 0.5 s" in crew.said
    assert crew.said.count("starting again") == HOPELESS - 1
    assert crew.said.count(how) == 2, "at first, and at last"
    assert crew.said.count("Traceback") == (1 if code is FAILS else 0)


def test_several_processes_that_never_work_are_given_up_once(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(ENDS.format(3))
    with runs(native, queue_name, tmp_path, "--processes", "3", "--log-format", "json") as crew:
        assert crew.ends() == 1
        assert not crew.children()
    rows = [json.loads(line) for line in crew.said.splitlines()]
    assert [row["level"] for row in rows].count("critical") == 1
    assert "before it was ready" in rows[-1]["message"]


async def test_what_has_worked_once_is_started_again_as_long_as_it_takes(
    native: Chasqui, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_S", 0.01)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(WORKS)
    orders = Orders(target="app:worker", redis_url=native.server.url)
    env = {**native.env, "CREW_QUEUE": queue_name, "CHASQUI_REDIS_URL": native.server.url}
    crew = Supervisor(Plan(orders, env), lambda index, text: None, lambda member: None)
    running = asyncio.create_task(crew.run())
    try:
        await eventually(lambda: crew.members and crew.members[0].ready.is_set(), 30)
        (tmp_path / "app.py").write_text(ENDS.format(3))
        os.kill(crew.members[0].pid, signal.SIGKILL)
        await eventually(lambda: crew.slots[0].stillborn > HOPELESS, 30)
        (tmp_path / "app.py").write_text(WORKS)
        await eventually(lambda: crew.members and crew.members[0].ready.is_set(), 30)
    finally:
        crew._stop_all()
        assert await running == 0


def test_while_files_are_watched_it_waits_for_a_change(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(ENDS.format(3))
    with runs(native, queue_name, tmp_path, "--reload") as crew:
        crew.hears("waiting for the next change")
        assert crew.said.count("starting again") == HOPELESS - 1
        (tmp_path / "app.py").write_text(WORKS)
        crew.begins().add("say")
        until(lambda: len(crew.ended) == 1)
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(ENDS.format(3), id="ends", marks=pytest.mark.slow),
        pytest.param("raise ValueError(7)\n", id="fails"),
    ],
)
def test_what_worked_before_and_breaks_waits_for_the_next_change(
    native: Chasqui, queue_name: str, tmp_path: Path, broken: str
) -> None:
    """Its name allows no two of it at a time: the old one must go before the new one is ready."""
    (tmp_path / "app.py").write_text(NAMED)
    with runs(native, queue_name, tmp_path, "--reload") as crew:
        [first] = crew.begins().children()
        (tmp_path / "app.py").write_text(broken)
        crew.hears("goes on with the code that it has")
        crew.add("say")
        until(lambda: len(crew.ended) == 1)
        os.kill(first, signal.SIGKILL)  # and there is no code to start it with
        crew.hears("waiting for the next change")
        (tmp_path / "app.py").write_text(NAMED)
        crew.add("say")
        until(lambda: len(crew.ended) == 2)
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0


# -- what an error says --------------------------------------------------------------------------

URL = "redis://app:hunter22@there/0"  # not a secret
LOUD = f'''
def connect(url):
    raise ValueError("no \\x1b[31mway\\x07 to {URL}\\n2026-11-16T09:00:00Z ERROR forged \\u202e")

connect("{URL}")
'''
IN_A_FACTORY = f"""
def worker():
    raise ValueError("no \\x1b[31mway\\x07 to {URL}\\n2026-11-16T09:00:00Z ERROR forged \\u202e")
"""
ENDED = f'raise SystemExit("no \\x1b[31mway\\x07 to {URL}\\n2026 ERROR forged \\u202e")\n'
IN_A_FACTORY_ENDED = f"def worker():\n    {ENDED}"
AT_A_LOOK = f"def __getattr__(name):\n    raise OSError('\\x1b[31mway to {URL}')\n"
NO_WORDS = """
class Mute(Exception):
    def __str__(self): raise KeyError
raise Mute
"""
LONG = f"raise ValueError('{URL} ' + '\\x1bx' + 'x ' * 35_000_000)\n"


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize(
    "code",
    [LOUD, IN_A_FACTORY, ENDED, IN_A_FACTORY_ENDED, AT_A_LOOK, NO_WORDS, LONG],
    ids=["import", "factory", "exit", "factory exit", "look", "no words", "long"],
)
def test_an_error_of_an_import_is_shown_safely(
    native: Chasqui, tmp_path: Path, code: str, format: str
) -> None:
    (tmp_path / "app.py").write_text(code)
    ended = native.run("worker", "app:worker", "--log-format", format, cwd=tmp_path)
    assert ended.code == 2, ended.err
    said = ended.out + ended.err
    assert "hunter22" not in said
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", said)
    assert not re.search(r"^2026-11-16", said, re.MULTILINE)
    assert len(said) < 100_000
    if format == "text":
        *_, last = said.splitlines()
        assert last.startswith("chasqui: CMQ-004: ")
        assert "app" in last and len(last) < 10_000
        if "way" in code:
            assert "\\x1b[31mway" in last and "app:***@there" in last


def test_an_error_of_a_reload_is_shown_safely(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(WORKS)
    with runs(native, queue_name, tmp_path, "--reload") as crew:
        crew.begins()
        (tmp_path / "app.py").write_text(LOUD)
        crew.hears("goes on with the code that it has")
        assert "in connect" in crew.said
        assert "hunter22" not in crew.said
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", crew.said)
        assert "\n2026-11-16" not in crew.said
