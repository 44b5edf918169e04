"""No program outlives the test run that started it."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

import tests.orphan
from tests.chaos.kit.wait import eventually
from tests.house.tree import ROOT

INI = f"""
    [pytest]
    pythonpath = {ROOT}
    asyncio_default_fixture_loop_scope = function
"""
CRASHES = """
    import os, signal, subprocess, sys
    from pathlib import Path

    def test_that_crashes():
        program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        keeps = [sys.executable, "-c", "import time; time.sleep(100)"]
        Path("pid").write_text(str(subprocess.Popen(keeps).pid))
        os.kill(os.getpid(), signal.SIGKILL)

    def test_that_runs(): pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what a program inherited")
@pytest.mark.expected_skip("only Linux")
def test_what_a_crashed_process_left_is_ended(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tests.orphan.RUN, "restored after the test")
    monkeypatch.setattr(tests.orphan, "PATIENCE_S", 0.5)
    pytester.makeini(INI)
    pytester.makeconftest('pytest_plugins = ["tests.orphan"]')
    pytester.makepyfile(CRASHES)
    options = ("-p", "no:valkey", "-p", "no:cacheprovider", "-n", "1")
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(passed=1, failed=1)
    pid = (pytester.path / "pid").read_text()
    result.stdout.re_match_lines([".* crashed while running .*", f"{pid} .*time.sleep.*"])
    eventually(lambda: pid not in living())


def living() -> set[str]:
    """Processes that have not ended; those that nobody has asked how they ended have, too."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(stat.parent.name)
    return found
