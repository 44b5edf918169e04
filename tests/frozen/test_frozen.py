"""Each committed list of what users rely on is what the code says now."""

from __future__ import annotations

import re

import pytest

from tests.frozen.lists import HERE, SUBJECTS, compare, lines_of


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_list_is_what_the_code_says(subject: str) -> None:
    compare(subject, lines_of(subject))


def test_every_list_is_compared() -> None:
    """By its subject, or by a test that names it."""
    folders = (HERE, HERE.parent / "spark", HERE.parent / "pipelines")
    tests = [path.read_text() for folder in folders for path in folder.glob("test_*.py")]
    named = set(re.findall(r'\bcompare\(\s*"([^"]+)"', "\n".join(tests)))
    assert {path.stem for path in HERE.glob("*.txt")} == named | set(SUBJECTS)
    assert not named & set(SUBJECTS)
