"""Plan: "the mutants (each still noticed by the test its row names)": the rows and their tests.

That the tests exist, and that each defect still applies: tests/mutants/test_mutants.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.table import MUTANTS


def lines() -> Iterator[str]:
    for mutant in MUTANTS:
        by_model = "; random programs, too" if mutant.model else ""
        yield f"{mutant.name}: {' '.join(mutant.tests)}{by_model}"
