"""The quick measurement runs, with a few jobs. How fast anything is is not asked here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Bench = Callable[[str], ModuleType]
COMMIT = "0123456789" * 4


@pytest.fixture
def quick(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Our own Python stands for the old commit's: what is installed here is old enough."""
    module = bench("quick")
    monkeypatch.setattr(module.old, "state", lambda: {"commit": "now", "dirty": True})
    monkeypatch.setattr(module.old, "commit_of", lambda name: COMMIT)
    monkeypatch.setattr(module.old, "title", lambda commit: f"{commit[:7]} (before)")
    monkeypatch.setattr(module.old, "interpreter", lambda commit: Path(sys.executable))
    return module


def measure(quick: ModuleType, reports: Path, *words: str) -> tuple[dict[str, Any], str]:
    always = ["--scale", "0.01", "--patience", "0", "--reports", str(reports), "--name", "tried"]
    quick.main([*always, *words])
    (page,) = reports.glob("*-tried.md")
    return json.loads(page.with_suffix(".json").read_text()), page.read_text()


@pytest.mark.timeout(120)
def test_new_old_and_reference_run_in_each_round(
    quick: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, page = measure(quick, tmp_path, "--old", "before", "--rounds", "2", "--only", "worker, 1 ")
    printed = capsys.readouterr().out
    (outcome,), (change,) = raw["outcomes"], raw["changes"]
    assert outcome["scenario"] == change["scenario"] == "worker, 1 at a time, events on"
    assert len(outcome["ratio"]["all"]) == 2
    assert raw["old"] == COMMIT
    assert (raw["facts"]["commit"], raw["facts"]["dirty"]) == ("now", True)
    for figure in ("rate", "cpu_per_100k"):
        assert len(change[figure]["first"]) == 2
        assert change[figure]["verdict"] == "too few rounds"
    assert {"ours", "old", "reference"} <= raw["facts"].keys()
    for told in (printed, page):
        assert "0123456 (before)" in told
        assert "- nothing moved by more than noise" in told


@pytest.mark.timeout(120)
def test_what_is_suspected_runs_again_without_the_reference(
    quick: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick.verdict, "side_of", lambda ratios, confidence: "below")
    words = ("--old", "before", "--rounds", "1", "--only", "add, one", "--fail")
    with pytest.raises(SystemExit) as ended:
        measure(quick, tmp_path, *words)
    assert ended.value.code == 1
    (page,) = tmp_path.glob("*-tried.json")
    raw = json.loads(page.read_text())
    (outcome,), (change,) = raw["outcomes"], raw["changes"]
    assert len(change["rate"]["first"]) == len(outcome["ratio"]["all"]) == 1
    assert len(change["rate"]["again"]) == 2


@pytest.mark.timeout(120)
def test_an_old_commit_that_fails_ends_nothing(
    quick: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick.old, "interpreter", lambda commit: Path("/bin/false"))
    words = ("--old", "before", "--rounds", "2", "--only", "add, one", "--fail")
    raw, page = measure(quick, tmp_path, *words)
    (change,) = raw["changes"]
    assert "old did not finish" in change["cannot"]
    assert "the old one fails" in page


@pytest.mark.timeout(120)
def test_it_can_be_left_out(quick: ModuleType, tmp_path: Path) -> None:
    raw, page = measure(quick, tmp_path, "--no-old", "--rounds", "1", "--only", "add, one")
    assert raw["changes"] == []
    assert "old" not in raw["facts"]
    assert "New / old" not in page


def test_in_four_rounds_every_order_of_new_and_old_comes_up(quick: ModuleType) -> None:
    side = quick.Side
    sides = quick.Sides(side("ours"), side("reference", ours=False), side("old"), COMMIT)
    rounds = quick.Rounds(None, sides, quick.Progress(), quick.arguments(["--rounds", "4"]))
    scenario = quick.SCENARIOS[0]
    rounds.changes = {scenario.name: quick.Change(scenario.name)}
    orders = [" ".join(one.name for one in rounds._turns(number, scenario)) for number in range(4)]
    assert orders == [
        "ours old reference",
        "reference old ours",
        "old ours reference",
        "reference ours old",
    ]
