"""The table of mutants applies to today's sources, and the gate can tell dead from alive."""

from __future__ import annotations

import pytest

from tests.mutants.run import broken, kill, kill_by_model
from tests.mutants.table import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_still_applies(mutant: Mutant) -> None:
    broken(mutant)


def test_names_are_told_apart() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 35


def test_a_known_defect_is_noticed() -> None:
    (mutant,) = [one for one in MUTANTS if one.name == "budget off by one"]
    assert kill(mutant) is not None


def test_random_programs_notice_a_known_defect() -> None:
    (mutant,) = [one for one in MUTANTS if one.name == "claim counts one crash too many"]
    assert kill_by_model(mutant) is not None


def test_what_breaks_nothing_survives() -> None:
    harmless = MUTANTS[-1]._replace(
        file="policy/verdict.py", old="Pure.", new="Pure!", tests=("tests/unit/test_policy.py",)
    )
    assert kill(harmless) is None
