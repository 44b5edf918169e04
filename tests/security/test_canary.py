"""A password put in wherever one may be given comes out nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from chasquimq.server import Server
from tests.cli.crew import ROOT, Crew, page
from tests.cli.kit import Chasqui
from tests.servers import DIALECTS, DialectServer, binary_for

PASSWORD = "c4nary p@ss/w"  # not a secret
SECRETS = (PASSWORD, quote(PASSWORD, safe=""), "c4nary", "wr0ng-canary")


@pytest.fixture
def guarded() -> Iterator[DialectServer]:
    """A server that asks for a password; which one it is makes no difference to our side."""
    with Server(binary_for(DIALECTS[0]), password=PASSWORD) as server:
        dialect_server = DialectServer(DIALECTS[0].name, server, None)
        yield dialect_server
        dialect_server.close()


def wrong_at(server: DialectServer) -> str:
    return f"redis://:wr0ng-canary@127.0.0.1:{server.server.port}"  # not a secret


def lone_at(server: DialectServer) -> str:
    return f"redis://wr0ng-canary@127.0.0.1:{server.server.port}"


LONE = [
    ("inspect",),
    ("doctor", "q"),
    ("worker", "tests.security.app_hostile:worker"),
    ("spark", "triage", "q"),
]


def leaks(texts: dict[str, str]) -> list[str]:
    return [
        f"{name}: {line}"
        for name, text in texts.items()
        for line in text.splitlines()
        if any(secret in line for secret in SECRETS)
    ]


def test_a_program_shows_its_password_to_nobody(
    guarded: DialectServer, queue_name: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(f"{PASSWORD}\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.security.app_canary", queue_name, str(tmp_path / "secret")],
        env={
            **os.environ,
            "PLACE": f"redis://127.0.0.1:{guarded.server.port}",
            "URL": guarded.url,
            "WRONG": wrong_at(guarded),
        },
        cwd=ROOT,
        capture_output=True,
        timeout=100,
        check=False,
    )
    told = [json.loads(line) for line in done.stdout.decode().splitlines()]
    what = [one["what"] for one in told]
    assert done.returncode == 0, done.stderr.decode()
    assert [one["text"] for one in told if one["what"] == "result"] == ["done"] * 3
    assert what.count("AccessError") >= 6 and "accepted" not in what and "metrics" in what
    assert "Thread 0x" in done.stderr.decode() and "DEBUG" in done.stderr.decode()
    texts = {f"{number} {one['what']}": one["text"] for number, one in enumerate(told)}
    assert leaks({**texts, "stderr": done.stderr.decode()}) == []


def command_lines(pids: list[int]) -> str:
    return "\n".join(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids)


def test_no_command_shows_the_password_of_its_environment(
    guarded: DialectServer, queue_name: str, tmp_path: Path
) -> None:
    chasqui = Chasqui(guarded)
    texts: dict[str, str] = {}
    logs = ("--log-level", "debug", "--processes", "2", "--metrics", "127.0.0.1:0")
    with Crew(chasqui, queue_name, *logs, out=tmp_path) as crew:
        crew.begins()
        port = crew.port()
        crew.add("nap", 3)
        for words in (
            ("doctor", queue_name, "--json"),
            ("doctor", queue_name),
            ("inspect", queue_name),
            ("jobs", "list", queue_name),
            ("inspect", "--redis-url", guarded.url),
        ):
            texts[" ".join(words[:1])] = "".join(map(str, chasqui.call(*words)))
        for path in ("/metrics", "/health", "/livez", "/readyz"):
            texts[path] = page(port, path)[1]
        texts["command lines"] = command_lines([crew.process.pid, *crew.children()])
        assert len(crew.children()) == 2
    texts["log"] = crew.said
    for url in (wrong_at(guarded), lone_at(guarded)):
        chasqui.env["CHASQUI_REDIS_URL"] = url
        for words in (
            ("doctor", "--json"),
            ("inspect",),
            ("add", "q", "n", "1"),
            ("dlq", "peek", "q"),
        ):
            ended = chasqui.run(*words)
            assert ended.code != 0
            texts[f"wrong {words[0]} {ended.code}"] = ended.out + ended.err
    assert leaks(texts) == []


@pytest.mark.parametrize("words", LONE, ids=" ".join)
def test_a_password_that_lacks_its_colon_is_refused_and_not_shown(
    guarded: DialectServer, words: tuple[str, ...]
) -> None:
    chasqui = Chasqui(guarded)
    for scheme in ("redis", "rediss", "redis+cluster", "redis+sentinel"):
        place = f"{scheme}://wr0ng-canary@127.0.0.1:{guarded.server.port}/main"
        given = [*words, "--redis-url", place]
        chasqui.env["CHASQUI_REDIS_URL"] = guarded.url
        by_option = chasqui.run(*given)
        chasqui.env["CHASQUI_REDIS_URL"] = place
        for ended in (by_option, chasqui.run(*words)):
            assert ended.code == 2
            # Where a target is imported, whatever looks like a password is hidden.
            words_said = " ".join(ended.err.split()).replace(":***@host", ":password@host")
            assert f"write {scheme}://:password@host" in words_said
            assert leaks({"out": ended.out, "err": ended.err}) == []


def test_a_url_on_the_command_line_goes_no_further(
    guarded: DialectServer, queue_name: str, tmp_path: Path
) -> None:
    """The command's own line is the caller's doing, and its page warns of it. The processes that it
    starts are ours."""
    url = guarded.url
    chasqui = Chasqui(guarded)
    with Crew(chasqui, queue_name, "--redis-url", url, out=tmp_path) as crew:
        crew.begins()
        children = crew.children()
        assert children and leaks({"children": command_lines(children)}) == []
    assert leaks({"log": crew.said}) == []
    assert "shows a password to nobody" in (ROOT / "docs/reference/cli.md").read_text()
    assert "can be read by every user" in (ROOT / "docs/how-to/connect.md").read_text()
