"""What `package.module:name` may be, and what is said where it is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chasquimq.cli.crew.target import TargetError, check_target, folder_of, load

CODE = """
import functools
from types import SimpleNamespace
from chasquimq import Router, Worker

async def handle(job): ...

worker = Worker("mail", handle)
pair = (worker, Worker("orders", handle, consumer_id="x"))
space = SimpleNamespace(inner=SimpleNamespace(worker=worker))
router = Router({"a": handle})
empty = []
mixed = [worker, 7]
twice = [worker, worker]
namesakes = [Worker("mail", handle, consumer_id="x"), Worker("mail", handle, consumer_id="x")]
neighbours = [Worker("mail", handle, consumer_id="x"), Worker("orders", handle, consumer_id="x")]

def make(): return worker
async def make_all(): return [worker]
def needs(queue): return worker
def fails(): raise KeyError("MAIL_URL")
made_by_part = functools.partial(needs, "mail")
"""

RUNS = """
import asyncio

async def main(): ...

running = main()
try:
    asyncio.run(running)
finally:
    running.close()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with a package in it, forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text(CODE)
    (package / "broken.py").write_text("def f():\n    return 1 / 0\n\nf()\n")
    (package / "needy.py").write_text("import not_installed_anywhere\n")
    (package / "ends.py").write_text("raise SystemExit(4)\n")
    (package / "bare.py").write_text("other = 1\n")
    (package / "runs.py").write_text(RUNS)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "shop":
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "queues"),
    [
        ("worker", ["mail"]),
        ("pair", ["mail", "orders"]),
        ("space.inner.worker", ["mail"]),
        ("make", ["mail"]),
        ("make_all", ["mail"]),
        ("made_by_part", ["mail"]),
        ("neighbours", ["mail", "orders"]),
    ],
)
async def test_a_target_is_a_worker_several_or_a_factory(
    folder: Path, name: str, queues: list[str]
) -> None:
    workers = await load(f"shop.tasks:{name}")
    assert [worker.name for worker in workers] == queues
    assert folder_of("shop.tasks:worker") == str(folder)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("shop.task:worker", "there is no module 'shop.task' in shop; did you mean 'tasks'?"),
        ("shop.tasks.py:worker", "no module 'shop.tasks.py'; write 'shop.tasks', without .py"),
        ("sho.tasks:worker", "there is no module 'sho' in this folder; did you mean 'shop'?"),
        ("shop.tasks:wroker", "module shop.tasks has no 'wroker'; its Workers: worker, pair"),
        ("shop.bare:worker", "module shop.bare has no 'worker', and no Worker"),
        ("shop.bare:othr", "did you mean 'other'?"),
        ("shop.tasks:space.outer", "SimpleNamespace has no 'outer'; its Workers: worker, pair"),
        ("shop.tasks:router", "is of type Router; a Worker is needed"),
        ("shop.tasks:Worker", "is a class; a Worker is needed"),
        ("shop.tasks:empty", "is empty"),
        ("shop.tasks:mixed", "is of type int (in a list)"),
        ("shop.tasks:twice", "the same Worker of 'mail' twice"),
        ("shop.tasks:namesakes", "two Workers of queue 'mail' have the consumer_id 'x'"),
        ("shop.tasks:needs", "is called without arguments, but: missing a required argument"),
        (
            "shop.tasks:handle",
            "argument: 'job'. Is it a handler? A target is the Worker that has it",
        ),
        ("shop.tasks:fails", "calling shop.tasks:fails failed: KeyError: 'MAIL_URL'"),
        ("shop.broken:worker", "importing shop.broken failed: ZeroDivisionError"),
        ("shop.needy:worker", "failed: ModuleNotFoundError: No module named 'not_installed"),
        ("shop.ends:worker", "ended the program (exit code 4): guard"),
        ("shop.runs:worker", "asyncio.run() cannot be called from a running event loop"),
    ],
)
async def test_what_is_wrong_is_said(folder: Path, target: str, words: str) -> None:
    with pytest.raises(TargetError) as caught:
        await load(target)
    assert words in str(caught.value)


async def test_a_traceback_begins_with_the_users_code(folder: Path) -> None:
    with pytest.raises(TargetError) as caught:
        await load("shop.broken:worker")
    first, second, *_ = [line for line in caught.value.trace.splitlines() if "File " in line]
    assert f'"{folder}/shop/broken.py", line 4' in first
    assert f'"{folder}/shop/broken.py", line 2' in second
    assert "target.py" not in caught.value.trace


@pytest.mark.parametrize(
    ("target", "better"),
    [
        ("shop", "shop:worker"),
        ("shop/tasks.py:worker", "shop.tasks:worker"),
        ("./shop/tasks.py", "shop.tasks:worker"),
        ("shop.tasks:", "shop.tasks:worker"),
    ],
)
def test_a_path_is_answered_with_the_target_it_means(target: str, better: str) -> None:
    with pytest.raises(TargetError, match=f"did you mean {better}"):
        check_target(target)


@pytest.mark.parametrize("target", ["", ":", "a b:c", "1a:b", "a:b()", "a:b:c", "a..b:c"])
def test_what_has_no_form_is_no_target(target: str) -> None:
    with pytest.raises(TargetError, match=r"write it as package\.module:name"):
        check_target(target)
