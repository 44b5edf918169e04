"""`tools/trace.py` counts what a call enters: here with a program whose counts are known."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from tools.trace import Step, Walk, as_table, as_tree

SHOP = """
    import asyncio
    import threading

    import stock

    def buy():
        stock.take()
        pay()
        return [number for number in range(3)]

    def pay(): ...

    async def order():
        await stock.wait()
        pay()

    def in_a_thread():
        thread = threading.Thread(target=stock.take)
        thread.start()
        thread.join()

    async def at_once():
        await asyncio.gather(order(), order())
"""
STOCK = """
    import asyncio
    import json

    class Shelf:
        def get(self):
            return json.loads("1")

    def take():
        shelf = Shelf()
        shelf.get()
        shelf.get()

    async def wait():
        await asyncio.sleep(0)
        await asyncio.sleep(0)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name, source in (("stock", STOCK), ("shop", SHOP)):
        file = tmp_path / "shop" / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(dedent(source))
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    return Walk(tmp_path / "shop")


def test_a_call_is_followed_through_our_files_only(shop: ModuleType, walk: Walk) -> None:
    with walk:
        shop.buy()
    shop.buy()  # not recorded any more
    assert walk.steps == [
        Step("shop.py", "buy", 0),
        Step("stock.py", "take", 1),
        Step("stock.py", "Shelf.get", 2),
        Step("stock.py", "Shelf.get", 2),
        Step("shop.py", "pay", 1),
    ]
    assert walk.figures() == {"files": 2, "functions": 4, "calls": 5, "changes": 2}


async def test_a_coroutine_that_waited_is_not_entered_again(shop: ModuleType, walk: Walk) -> None:
    with walk:
        await shop.order()
    assert walk.steps == [
        Step("shop.py", "order", 0),
        Step("stock.py", "wait", 1),
        Step("shop.py", "pay", 1),
    ]
    assert walk.figures() == {"files": 2, "functions": 3, "calls": 3, "changes": 2}


async def test_tasks_belong_to_the_walk(shop: ModuleType, walk: Walk) -> None:
    with walk:
        await shop.at_once()
    entered = [step.function for step in walk.steps]
    assert entered == ["at_once", "order", "wait", "order", "wait", "pay", "pay"]
    assert walk.figures() == {"files": 2, "functions": 4, "calls": 7, "changes": 4}


def test_threads_that_are_started_meanwhile_belong_to_the_walk(
    shop: ModuleType, walk: Walk
) -> None:
    with walk:
        shop.in_a_thread()
    assert walk.figures() == {"files": 2, "functions": 3, "calls": 4, "changes": 1}


def test_a_thread_that_ran_before_does_not(shop: ModuleType, walk: Walk) -> None:
    start = threading.Event()
    thread = threading.Thread(target=lambda: start.wait(60) and shop.buy())
    thread.start()
    with walk:
        start.set()
        thread.join()
    assert walk.figures() == {"files": 0, "functions": 0, "calls": 0, "changes": 0}


def test_what_is_printed(shop: ModuleType, walk: Walk) -> None:
    with walk:
        shop.buy()
    assert list(as_tree(walk)) == [
        "shop.py  buy",
        "  stock.py  take",
        "    stock.py  Shelf.get  x2",
        "  shop.py  pay",
    ]
    assert list(as_table(walk)) == [
        "file      functions  calls",
        "shop.py           2      2",
        "stock.py          2      3",
    ]


def test_nothing_of_it_stays_behind(walk: Walk) -> None:
    before = sys.getprofile()
    with pytest.raises(ValueError, match="in the block"), walk:
        raise ValueError("in the block")
    assert sys.getprofile() is before
    assert asyncio.run(asyncio.sleep(0, "still works")) == "still works"
