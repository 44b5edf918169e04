"""The loggers that users filter by: five, documented, and none named after a file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT, SOURCE, Offence, files, look_at, text_of, tree_of

PARENT = "chasquimq"
FIVE = {f"{PARENT}.{name}" for name in ("worker", "queue", "schedule", "redis", "cli")}
OTHERS = {"watchfiles"}  # of libraries, which the command line quietens
DOCUMENTED = re.compile(r"^\| `(chasquimq\.\w+)` \|", re.MULTILINE)

IMPORT_ALL = """
import importlib, logging, pkgutil
import chasquimq
for module in pkgutil.walk_packages(chasquimq.__path__, "chasquimq."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(*(name for name in logging.root.manager.loggerDict if name.split(".")[0] == "chasquimq"))
"""


def strange_loggers(tree: ast.Module) -> Iterator[Offence]:
    """Where a logger is asked for by anything but one of the names, spelled out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
            match node.args:
                case []:
                    continue  # the root
                case [ast.Constant(value=str(name))] if name in FIVE | OTHERS | {PARENT}:
                    continue
            yield node.lineno, f"{ast.unparse(node)}: choose one of {', '.join(sorted(FIVE))}"


def test_a_logger_is_one_of_the_five() -> None:
    look_at(files(SOURCE, ".py"), lambda path: strange_loggers(tree_of(path)))


@pytest.mark.parametrize(
    "code",
    [
        "log = logging.getLogger(__name__)",
        'log = logging.getLogger("chasquimq.engine.reader")',
        "def f(part):\n    logging.getLogger(part)",
        'from logging import getLogger\ngetLogger(f"chasquimq.{name}")',
    ],
)
def test_another_name_is_seen(code: str) -> None:
    assert list(strange_loggers(ast.parse(code)))


def test_whatever_is_imported_there_are_no_others() -> None:
    pytest.importorskip("pyspark")
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        env={"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) - {PARENT} == FIVE


def test_the_five_are_documented() -> None:
    page = ROOT / "docs" / "how-to" / "logs.md"
    assert set(DOCUMENTED.findall(text_of(page))) == FIVE


def test_docs_name_no_other_logger() -> None:
    """Lines of a log in docs, of either format."""
    line = re.compile(
        rf"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) ({PARENT}\.[\w.]+)"
        rf'|"logger": "({PARENT}\.[\w.]+)"'
    )

    def offences(path: Path) -> Iterator[Offence]:
        text = text_of(path)
        for found in line.finditer(text):
            name = found[1] or found[2]
            if name not in FIVE:
                yield text.count("\n", 0, found.start()) + 1, name

    look_at(files(ROOT / "docs", ".md"), offences)
