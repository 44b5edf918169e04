"""The README's figures are those of the newest full report, and no measurement has lost a part."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from tests.house.tree import ROOT, Offence, files, look_at, tree_of

BENCH = ROOT / "bench"


def test_the_readme_tells_what_the_newest_report_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)
    readme = importlib.import_module("readme")
    assert readme.current(), "the README has lost its markers"
    page = readme.newest()
    if page is None:
        pytest.skip("there is no full report yet")
    assert readme.current() == readme.block(page), "run `make bench-plot`"
    for picture in readme.PICTURES:
        assert (readme.ROOT / picture).is_file(), "run `make bench-plot`"


def defined(path: Path) -> set[str]:
    """The names of a module."""
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {one.asname or one.name for one in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_what_a_measurement_takes_from_another_is_there() -> None:
    """They are no package, and those of Spark run seldom: nobody else would notice."""
    paths = files(BENCH, ".py")
    modules = {path.stem: path for path in paths}

    def missing(path: Path) -> list[Offence]:
        return [
            (node.lineno, f"{node.module} has no {one.name}")
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.ImportFrom) and node.module in modules
            for one in node.names
            if one.name not in defined(modules[node.module])
        ]

    look_at(paths, missing)
