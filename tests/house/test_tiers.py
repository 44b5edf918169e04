"""Which tests run when: the table is in order, and pytest does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

from tests.house.tree import ROOT
from tests.mutants.table import MUTANTS
from tests.servers import DIALECTS
from tests.tiers import EACH, TABLE, TEST, Tier, row_of

MUTANTS_OF_MAKE_TEST = 110
MARKED = re.compile(r"@pytest\.mark\.slow\n(?:@.*\n)*(?:async )?def (\w+)")


@cache
def collected(*arguments: str) -> frozenset[str]:
    """The ids of the tests that pytest would run."""
    words = ("--collect-only", "-q", "-p", "no:cacheprovider", *arguments)
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return frozenset(line for line in done.stdout.splitlines() if "::" in line)


def dialects(ids: frozenset[str], file: str = "") -> set[str]:
    """Those of a file's tests."""
    names = [one.name for one in DIALECTS]
    return {name for one in ids if one.startswith(file) for name in names if name in one}


def test_rows_name_what_there_is_and_say_something() -> None:
    assert len({row.where for row in TABLE}) == len(TABLE)
    for row in TABLE:
        assert (ROOT / row.where).exists(), row.where
        above = row_of(row.where.rpartition("/")[0]) if "/" in row.where else None
        assert row[1:] != (above and above[1:]), f"{row.where} says what its folder says"


def test_the_longest_row_decides() -> None:
    assert row_of("tests/unit/test_text.py").tier is Tier.CHECK
    assert row_of("tests/store/test_add.py") == ("tests/store/test_add.py", TEST, EACH)
    assert row_of("tests/store/test_add_more.py").where == "tests"


def test_each_tier_runs_all_of_the_one_before() -> None:
    check, test, everything = collected("--tier", "check"), collected(), collected("--tier", "all")
    assert check < test < everything
    assert DIALECTS[0].name not in dialects(check)  # no test of it asks for a server
    one = {DIALECTS[0].name}
    assert dialects(test, "tests/engine/test_janitor.py") == one
    assert dialects(test, "tests/store/test_add.py") == {one.name for one in DIALECTS}
    assert dialects(everything, "tests/engine/test_janitor.py") == {one.name for one in DIALECTS}


def test_what_is_named_runs_whole() -> None:
    file = "tests/engine/test_janitor.py"
    assert dialects(collected(file)) == {one.name for one in DIALECTS}
    slow = "tests/spark/test_connect.py"
    assert row_of(slow).tier is Tier.ALL
    assert collected(slow)
    marked = "tests/cli/test_stillborn.py"
    assert collected(marked) > {one for one in collected() if one.startswith(marked)}


def test_slow_tests_wait_for_make_test_all() -> None:
    marked = [
        f"{path.relative_to(ROOT)}::{name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(
            r"@pytest\.mark\.slow\n(?:@.*\n)*(?:async )?def (\w+)", path.read_text()
        )
    ]
    assert marked
    for test in marked:
        assert not [one for one in collected() if one.partition("[")[0] == test], test
        assert [one for one in collected("--tier", "all") if one.partition("[")[0] == test], test


def test_make_test_notices_most_mutants() -> None:
    """A mutant counts for the tier that runs the test its row names."""
    files = {one.partition("::")[0] for one in collected()}
    counted = [mutant for mutant in MUTANTS if mutant.tests[0].partition("::")[0] in files]
    assert len(counted) >= MUTANTS_OF_MAKE_TEST
