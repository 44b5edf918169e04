"""Every environment variable that the product reads or sets.

Guards "environment variables" of what must not change. They are found in the source, so that a new
one is not forgotten; `test_environment.py` requires that each is documented.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.house.tree import ROOT, files, text_of, tree_of

SOURCE = ROOT / "src"
# What rich and Typer obey. We look at them only to step aside.
THEIRS = {
    *("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "TYPER_USE_RICH"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "_TYPER_FORCE_DISABLE_TERMINAL"),
}
# Where the name itself comes from the caller: of the option `urlEnv` of Spark, of a parameter of
# `redis+sentinel://` addresses.
CHOSEN_BY_CALLERS = {"name", "address.sentinel_password_env or ''"}
ENVIRONMENTS = {"os.environ", "environment"}


def lines() -> Iterator[str]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, use in _everywhere():
        if name not in THEIRS:
            found[name].add(use)
    for name, uses in found.items():
        yield f"{name} ({', '.join(sorted(uses))})"


def _everywhere() -> Iterator[tuple[str, str]]:
    for path in files(SOURCE, ".py"):
        yield from uses_in(tree_of(path))
    for path in files(SOURCE, ".properties"):
        yield from ((name, "read") for name in re.findall(r"\$\{env:(\w+)", text_of(path)))


def uses_in(program: ast.Module) -> Iterator[tuple[str, str]]:
    """The variables that a program uses, each "read" or "set"."""
    loops = {
        ast.unparse(loop.target): loop.iter
        for loop in ast.walk(program)
        if isinstance(loop, ast.comprehension)
    }
    for key, use in _keys(program):
        yield from ((name, use) for name in _names(loops.get(ast.unparse(key), key)))


def _keys(program: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """What is looked up in the environment, and whether it is read or set."""
    for node in ast.walk(program):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, method = ast.unparse(node.func.value), node.func.attr
            if owner in ENVIRONMENTS or (owner, method) == ("os", "getenv"):
                yield node.args[0], "set" if method == "setdefault" else "read"
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in ENVIRONMENTS:
            yield node.slice, "set" if isinstance(node.ctx, ast.Store) else "read"
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[-1]) in ENVIRONMENTS:
            yield node.left, "read"


def _names(key: ast.expr) -> list[str]:
    text = ast.unparse(key)
    if text in CHOSEN_BY_CALLERS:
        return []
    value = key if isinstance(key, ast.Constant | ast.Tuple) else _constant(text)
    return [one.value for one in ast.walk(value) if isinstance(one, ast.Constant)]


def _constant(name: str) -> ast.expr:
    """The value of a constant, wherever in the source it is defined."""
    for path in files(SOURCE, ".py"):
        for line in tree_of(path).body:
            if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == name:
                return line.value
    raise ValueError(f"what is {name}? Read an environment variable by its name or by a constant")
