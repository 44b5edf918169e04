"""What `make chaos` makes of reports and verdicts: rows, a sum that counts no test twice, JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.chaos.book import Scenario
from tests.chaos.full import account, table, to_json, total

SHARED, OWN = "tests/a.py::test_shared", "tests/a.py::test_own"
BOOK = [Scenario("one", "net", (1,), (SHARED,)), Scenario("two", "net", (4,), (SHARED, OWN))]


def write(folder: Path, kind: str, *rows: dict[str, Any]) -> None:
    (folder / f"{kind}-1").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def verdict(test: str, accepted: int, lost: int = 0) -> dict[str, Any]:
    return {"test": test, "accepted": accepted, "lost": lost, "duplicates": 0, "overlaps": 0}


def test_a_test_of_two_scenarios_is_in_both_rows_and_once_in_the_sum(tmp_path: Path) -> None:
    write(
        tmp_path,
        "reports",
        {"test": f"{SHARED}[valkey]", "outcome": "passed"},
        {"test": f"{SHARED}[redis-native]", "outcome": "passed"},
        {"test": OWN, "outcome": "failed"},
    )
    write(
        tmp_path,
        "verdicts",
        verdict(f"{SHARED}[valkey]", 5, lost=5),  # it looked before its end, too
        verdict(f"{SHARED}[valkey]", 10),
        verdict(f"{SHARED}[redis-native]", 20),
        verdict(OWN, 3, lost=1),
    )
    rows = account(BOOK, tmp_path, [1])
    assert [(row.runs, row.figures["accepted"], row.figures["lost"]) for row in rows] == [
        (2, 30, 0),
        (3, 33, 1),
    ]
    assert [row.verdict for row in rows] == ["good", "1 FAILED"]
    figures = total(rows)
    assert (figures["runs"], figures["accepted"], figures["lost"]) == (3, 33, 1)
    assert table(rows)[-1].split()[:4] == ["2", "scenarios", "3", "33"]
    told = json.loads(to_json(rows, [1], 2.0))
    assert told["failed"] == [f"seed 1: {OWN}"]
    assert told["total"]["lost"] == 1 and len(told["scenarios"]) == 2


def test_a_scenario_that_did_not_run_is_not_a_good_one(tmp_path: Path) -> None:
    write(tmp_path, "reports", {"test": OWN, "outcome": "skipped"})
    rows = account(BOOK, tmp_path, [1])
    assert [row.verdict for row in rows] == ["did not run"] * 2
    assert rows[1].skipped == [OWN]
