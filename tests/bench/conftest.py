"""Programmes of `bench/` import each other by their bare names: so do these tests."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.chdir(BENCH)  # some go elsewhere; this brings us back
    return importlib.import_module
