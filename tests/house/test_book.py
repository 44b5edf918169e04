"""The book of scenarios names tests that exist, and the page that tells of it names them all."""

from __future__ import annotations

import ast

from tests.chaos.book import BOOK, Scenario
from tests.house.tree import ROOT, none_of, text_of, tree_of


def is_there(test: str) -> bool:
    path, _, function = test.partition("::")
    if not (ROOT / path).is_file():
        return False
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return function in {node.name for node in tree_of(ROOT / path).body if isinstance(node, kinds)}


def test_every_test_of_a_scenario_is_there() -> None:
    idle = [f"{one.name}: it names no test" for one in BOOK if not one.tests]
    gone = [f"{one.name}: {test}" for one in BOOK for test in one.tests if not is_there(test)]
    none_of(idle + gone, len(BOOK))


def test_a_scenario_has_a_name_of_its_own_and_checks_what_there_is() -> None:
    names = [scenario.name for scenario in BOOK]
    assert len(names) == len(set(names))
    assert {number for one in BOOK for number in one.invariants} == {*range(1, 18)}


def row(scenario: Scenario) -> str:
    told = ", ".join(f"I{number}" for number in scenario.invariants)
    return f"| `{scenario.name}` | {told} |"


def test_the_page_tells_of_a_scenario_and_its_invariants() -> None:
    page = "docs/explanation/what-was-tested.md"
    text = text_of(ROOT / page)
    none_of([f"{page}: no {row(one)}" for one in BOOK if row(one) not in text], len(BOOK))
