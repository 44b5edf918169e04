"""The measurements of Spark run, with a few rows. How fast they are is not asked here."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.timeout(300)
def test_every_case_moves_its_rows(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.chdir(BENCH)  # it goes elsewhere; this brings us back
    bench = importlib.import_module("spark")
    bench.main(["--quick", "--reports", str(tmp_path), "--name", "tried"], spark)

    (page,) = tmp_path.glob("*-tried.md")
    raw = json.loads(page.with_suffix(".json").read_text())
    assert set(raw["runs"]) == {case.name for case in bench.CASES}
    assert all(run["rows"] == 2_000 for (run,) in raw["runs"].values())
    assert {cost["rows"] for cost in raw["tasks"]} == {1, 1_000}
    printed = capsys.readouterr().out
    assert all(f"| {case.name} " in printed for case in bench.CASES)
    assert "| direct " in page.read_text()
