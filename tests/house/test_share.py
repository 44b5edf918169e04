"""How a run with several processes shares out its tests."""

from __future__ import annotations

import os
import re

import pytest

from tests.house.tree import ROOT
from tests.share import LONG, NICE, ONE_BY_ONE, rank, share_of

INI = f"""
    [pytest]
    pythonpath = {ROOT}
    asyncio_default_fixture_loop_scope = function
"""
TESTS = """
import os, time, pytest

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    time.sleep(0.05)
    assert os.nice(0) == {nice}
"""


def test_a_file_stays_together_and_some_folders_do() -> None:
    assert share_of("tests/unit/test_a.py::test_x[a::b]") == "tests/unit/test_a.py"
    assert share_of("tests/unit/test_b.py::test_x") == "tests/unit/test_b.py"
    assert share_of("tests/chaos/test_a.py::test_x") == share_of("tests/soak/test_b.py::test_y")
    assert share_of("tests/spark/test_a.py::test_x") == share_of("tests/spark/test_b.py::test_y")
    assert share_of("tests/chaos_of_names.py::test_x") == "tests/chaos_of_names.py"


def test_what_takes_long_comes_first() -> None:
    folders = (*ONE_BY_ONE, *LONG, "tests/unit")
    ranks = [rank(f"{folder}/test_a.py::test_x") for folder in folders]
    assert ranks == sorted(set(ranks))
    assert all((ROOT / folder).is_dir() for folder in folders)


def test_two_processes_share_them_out_so(pytester: pytest.Pytester) -> None:
    before = os.nice(0)  # which all processes inherit
    pytester.makeini(INI)
    pytester.makeconftest('pytest_plugins = ["tests.share"]')
    for folder in ("chaos", "soak", "store", "unit"):
        file = pytester.path / "tests" / folder / f"test_{folder}.py"
        file.parent.mkdir(parents=True)
        file.write_text(TESTS.format(nice=before if folder == "chaos" else max(before, NICE)))
    options = ("-p", "no:valkey", "-p", "no:cacheprovider", "-n", "2", "-v")
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(passed=16)
    ran = re.findall(r"\[(gw\d)\].* PASSED tests/(\w+)/", result.stdout.str())
    where = {folder: {process for process, its in ran if its == folder} for _, folder in ran}
    assert [len(processes) for processes in where.values()] == [1] * 4
    assert where["chaos"] == where["soak"] != where["store"]
    assert _in(where["chaos"], ran)[:8] == [*["chaos"] * 4, *["soak"] * 4]
    assert _in(where["store"], ran)[0] == "store"


def _in(processes: set[str], ran: list[tuple[str, str]]) -> list[str]:
    return [folder for process, folder in ran if process in processes]
