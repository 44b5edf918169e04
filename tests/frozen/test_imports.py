"""What users import, beyond the package itself, can be imported by itself and first."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import chasquimq
from tests.examples.page import PAGES, blocks
from tests.frozen.public import DEEP, OPAQUE
from tests.house.tree import ROOT, none_of

KNOWN = DEEP | OPAQUE
# What works with nothing but the package itself installed.
CORE = {
    "chasquimq": "*",
    "chasquimq.cli.log": "AsJson",
    "chasquimq.job": "Again, Dead",
    "chasquimq.native": "Consumer, Producer, Promoter, Scheduler",
    "chasquimq.observe.endpoint": "serve",
    "chasquimq.observe.metrics": "Names",
    "chasquimq.server": "Server, find_server",
    "chasquimq.sync": "Queue",
    "chasquimq.trace": "Tracing",
}
# Nothing but what the core needs may be imported: as if no extra were installed.
BARE = """
import sys
from importlib.metadata import packages_distributions

LEFT_OUT = set(packages_distributions()) - {"chasquimq", "hiredis", "msgspec", "tzdata"}

class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LEFT_OUT:
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, Bare())
"""


def imports_of(program: str) -> Iterator[tuple[str, str]]:
    """Each import of ours in a program, as (module, name); the name is empty for a module."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, one.name) for one in node.names)
        elif isinstance(node, ast.Import):
            yield from ((one.name, "") for one in node.names)


def programs() -> Iterator[tuple[str, str]]:
    """Every Python program that users are shown, and where it stands."""
    for page in PAGES:
        for block in blocks(page):
            if block.kind.split(" ")[0] == "python":
                yield f"{page.relative_to(ROOT)}:{block.line}", block.text
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text()


def is_known(module: str, name: str) -> bool:
    if module.partition(".")[0] not in ("chasquimq", "pyspark_chasqui"):
        return True
    below = f"{module}.{name}" if name else module
    is_package = any(f"{known}.".startswith(f"{below}.") for known in KNOWN)
    is_public = module == "chasquimq" and name in chasquimq.__all__
    return is_package or is_public or name in KNOWN.get(module, ())


def test_every_import_that_users_are_shown_is_frozen() -> None:
    shown = [(where, *one) for where, program in programs() for one in imports_of(program)]
    missing = [
        f"{where}: {module} {name}: add it to tests/frozen/public.py, or document another import"
        for where, module, name in shown
        if not is_known(module, name)
    ]
    none_of(missing, len(shown))


def test_a_module_with_a_list_of_public_names_is_frozen_as_a_whole() -> None:
    for module, names in DEEP.items():
        listed = getattr(import_module(module), "__all__", names)
        assert set(listed) <= set(names), module


def test_each_module_may_be_imported_first() -> None:
    lines = [f"from {module} import {', '.join(names)}" for module, names in KNOWN.items()]
    alone = [sys.executable, "-m", "tests.frozen.alone"]
    done = subprocess.run(alone, input="\n".join(lines), cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_the_core_needs_no_extra() -> None:
    """Above all a program's own logging may use `AsJson`, whatever is installed."""
    program = BARE + "\n".join(f"from {module} import {CORE[module]}" for module in CORE)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nothing_else_is_there_without_extras() -> None:
    """So that the test above means something."""
    program = (
        BARE
        + """
for name in ("typer", "rich", "redis", "pyspark", "uvloop", "prometheus_client"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    sys.exit(f"{name} can be imported")
"""
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
