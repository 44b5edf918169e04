"""The README's figures are those of the newest full report."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


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
