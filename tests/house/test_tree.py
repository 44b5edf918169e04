"""A rule that looks at many files tells everything that it found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.tree import ROOT, Offence, look_at, none_of

HERE = Path(__file__)
OTHER = ROOT / "README.md"


def test_every_offence_is_told_with_its_file_and_line() -> None:
    def offences(path: Path) -> list[Offence]:
        if path == OTHER:
            raise UnicodeError("no text")
        return [(7, "one"), (3, "another")]

    with pytest.raises(pytest.fail.Exception) as failed:
        look_at([HERE, OTHER, HERE], offences)
    here = "tests/house/test_tree.py"
    two = [f"{here}:3: another", f"{here}:7: one"]
    told = str(failed.value).splitlines()
    assert told == ["found 5:", *two, "README.md: UnicodeError: no text", *two]


def test_a_rule_that_looks_at_nothing_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="nothing to look at"):
        look_at([], lambda path: [])
    with pytest.raises(pytest.fail.Exception, match="nothing to look at"):
        none_of([], 0)


def test_where_nothing_is_found_a_rule_passes() -> None:
    look_at([HERE], lambda path: [])
