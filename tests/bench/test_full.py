"""The full benchmark runs, with a few jobs. How fast anything is is not asked here."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.interop.reference import interpreter
from tests.servers import DIALECTS, binary_for

BENCH = Path(__file__).parents[2] / "bench"
MODULES = ("arena", "contest", "entrants", "found", "full", "full_report", "readme")


class Bench:
    """Programmes of the folder import each other by their bare names: so do these tests."""

    arena: ModuleType
    contest: ModuleType
    entrants: ModuleType
    found: ModuleType
    full: ModuleType
    full_report: ModuleType
    readme: ModuleType


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.chdir(BENCH.parent)  # where the servers are
    loaded = Bench()
    for name in MODULES:
        setattr(loaded, name, importlib.import_module(name))
    return loaded


@pytest.fixture
def binaries() -> None:
    """Skips where a server is missing."""
    for dialect in DIALECTS:
        binary_for(dialect)


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("binaries")
def test_cases_of_every_kind_run_and_are_told(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interpreter()
    keys = ["worker-100", "add", "latency", "retry", "delayed", "idle", "backlog-1000", "queues-10"]
    bench.full.main(["--quick", "--only", ",".join(keys), "--reports", str(tmp_path)])

    (page,) = tmp_path.glob("*-full.md")
    raw = json.loads(page.with_suffix(".json").read_text())
    assert raw["failed"] == raw["cannot"] == {}
    assert set(keys) <= set(raw["runs"])
    for key in keys:
        assert {"ours", "reference"} <= set(raw["runs"][key])
    assert set(raw["runs"]["worker-100"]) >= {"limit", "ours on uvloop", "ours on Valkey"}
    assert {"machine", "servers", "command", "date"} <= set(raw["facts"])

    tables = bench.full_report.tables(bench.found.Found.read(raw))
    assert "## Share of the limit" in tables
    assert "\n".join(tables) in capsys.readouterr().out
    assert "\n".join(tables) in page.read_text()
    assert f"reports/{page.name}" in bench.readme.block(page.with_suffix(".json"))


@pytest.mark.usefixtures("binaries")
def test_who_fails_is_told_with_the_reason_and_the_others_go_on(
    bench: Bench,
) -> None:
    def entrant(name: str, programme: str, problem: str = "") -> Any:
        command = (sys.executable, "-c", programme)
        side = bench.arena.Side(name, command=command)
        return bench.entrants.Entrant(name, side, problem=problem)

    answer = 'print(\'{"rate": 5.0, "handled": 10}\')'
    entrants = [
        entrant("dies", "raise ValueError('no such thing')"),
        entrant("cannot", 'print(\'{"cannot": "it has none"}\')'),
        entrant("absent", "", problem="it is not there"),
        entrant("works", answer),
    ]
    jobs = {one.name: 10 for one in entrants}
    case = bench.contest.Case("some", "some", {"what": "latency"}, jobs)
    found = bench.found.Found([case], 2)
    with bench.arena.Arena("redis") as arena:
        bench.full.run(arena, bench.full.plan([case], entrants, 2), found, 0.0)

    assert list(found.runs["some"]) == ["works"]
    assert list(found.runs["some"]["works"]) == [0, 1]
    assert found.cannot["some"] == {"cannot": "it has none"}
    assert set(found.problems["some"]) == {"dies", "absent"}
    page = "\n".join(bench.full_report.tables(found))
    assert "ValueError: no such thing" in page
    assert "it is not there" in page


def test_who_goes_first_changes_and_some_have_fewer_rounds(bench: Bench) -> None:
    sides = [bench.entrants.Entrant(name, bench.arena.Side(name)) for name in "abc"]
    jobs = dict.fromkeys("abc", 1)
    usual = bench.contest.Case("usual", "", {}, jobs)
    grown = bench.contest.Case("grown", "", {}, jobs, group="size", step=1)
    turns = bench.full.plan([usual, grown], sides, 5)

    def order(number: int, case: str) -> str:
        return "".join(
            one.entrant.name for one in turns if one.number == number and one.case.key == case
        )

    assert [order(number, "usual") for number in range(5)] == ["abc", "bca", "cab", "abc", "bca"]
    assert [order(number, "grown") for number in range(5)] == ["abc", "", "cab", "", "bca"]


def test_only_rounds_in_which_both_ran_are_compared(bench: Bench) -> None:
    case = bench.contest.Case("worker-100", "w", {}, {})
    found = bench.found.Found([case], 3)
    for number, side, rate in ((0, "ours", 10.0), (1, "ours", 30.0), (1, "reference", 10.0)):
        found.add(number, case, side, {"rate": rate, "others": 0.0})
    assert found.ratios("worker-100", "ours", "reference") == [3.0]
    assert found.ratios("worker-100", "ours", "huey") == []


@pytest.mark.parametrize(
    ("figure", "bound", "ratio", "met"),
    [
        ("rate", 10, 10.0, True),
        ("rate", 10, 9.9, False),
        ("rate", None, 9.9, None),
        ("p99", 1, 0.9, True),
        ("cpu_per_100k", 0.125, 0.2, False),
    ],
)
def test_a_target_is_met_from_the_right_side(
    bench: Bench, figure: str, bound: float | None, ratio: float, met: bool | None
) -> None:
    assert bench.contest.Aim("some", "ours", "reference", figure, bound).met(ratio) is met


def test_percentiles_are_figures_that_were_seen(bench: Bench) -> None:
    values = [float(number) for number in range(200, 0, -1)]
    assert bench.entrants.percentiles(values) == {"p50": 101, "p95": 191, "p99": 199, "most": 200}
    assert set(bench.entrants.percentiles([7.0]).values()) == {7.0}


def test_every_target_names_a_case_and_sides_that_take_part(bench: Bench) -> None:
    contest = bench.contest
    sides = {case.key: set(case.jobs) for case in (*contest.CASES, *contest.IDLE)}
    limits = (*contest.OF_THE_LIMIT, *contest.OF_THE_LOOP)
    for aim in (*contest.INSTALLED, *contest.AGAINST_TUNED, *limits, *contest.ON_VALKEY):
        assert {aim.mine, aim.theirs} <= sides[aim.case], aim
    assert {bound.case for bound in contest.OWN} <= set(sides)
