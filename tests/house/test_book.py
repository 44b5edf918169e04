"""The book of scenarios names tests that exist, and the page that tells of it names them all."""

from __future__ import annotations

import ast

import pytest

from tests.chaos.book import BOOK
from tests.chaos.scenario import Scenario
from tests.house.tree import ROOT, tree_of


@pytest.mark.parametrize("scenario", BOOK, ids=lambda scenario: scenario.name)
def test_every_test_of_a_scenario_is_there(scenario: Scenario) -> None:
    assert scenario.tests
    for test in scenario.tests:
        path, _, function = test.partition("::")
        kinds = ast.FunctionDef | ast.AsyncFunctionDef
        there = {node.name for node in tree_of(ROOT / path).body if isinstance(node, kinds)}
        assert function in there, test


def test_a_scenario_has_a_name_of_its_own_and_checks_what_there_is() -> None:
    names = [scenario.name for scenario in BOOK]
    assert len(names) == len(set(names))
    assert {number for one in BOOK for number in one.invariants} == set(range(1, 11))


@pytest.mark.parametrize("scenario", BOOK, ids=lambda scenario: scenario.name)
def test_the_page_tells_of_a_scenario_and_its_invariants(scenario: Scenario) -> None:
    page = (ROOT / "docs/explanation/what-was-tested.md").read_text()
    told = ", ".join(f"I{number}" for number in scenario.invariants)
    assert f"| `{scenario.name}` | {told} |" in page
