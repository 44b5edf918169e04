"""The gate can tell a defect that is noticed from one that is not."""

from __future__ import annotations

import pytest

from tests.mutants.run import kill, kill_by_model
from tests.mutants.table import MUTANTS


def test_a_known_defect_is_noticed() -> None:
    (mutant,) = [one for one in MUTANTS if one.name == "budget off by one"]
    assert kill(mutant) is not None


@pytest.mark.slow
def test_random_programs_notice_a_known_defect() -> None:
    (mutant,) = [one for one in MUTANTS if one.name == "claim counts one crash too many"]
    assert kill_by_model(mutant) is not None


def test_what_breaks_nothing_survives() -> None:
    harmless = MUTANTS[-1]._replace(
        file="policy/verdict.py", old="Pure.", new="Pure!", tests=("tests/unit/test_policy.py",)
    )
    assert kill(harmless) is None
