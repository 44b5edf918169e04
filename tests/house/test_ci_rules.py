"""What a test run says at its end, in one process and in several.

With CI=true nothing is left out silently: a skip is a failure unless it was expected.
"""

from __future__ import annotations

import pytest

from tests.house.tree import ROOT

TESTS = {
    "plain": """
        import pytest

        def test_runs(): pass
        def test_is_left_out(): pytest.skip("no server today")
    """,
    "expected": """
        import pytest

        @pytest.mark.expected_skip("only on macOS", "no fork")
        def test_is_left_out(): pytest.skip("this is only on macOS")
    """,
    "expected_for_another_reason": """
        import pytest

        @pytest.mark.expected_skip("only on macOS")
        def test_is_left_out(): pytest.skip("no server today")
    """,
    "whole_file": """
        import pytest

        def test_runs(): pass
        pytest.importorskip("no_such_module_anywhere")
    """,
    "xfail": """
        import pytest

        @pytest.mark.xfail(reason="known")
        def test_fails(): assert False
    """,
}
FAILS_IN_CI = {"plain", "expected_for_another_reason", "whole_file"}


INI = f"""
    [pytest]
    pythonpath = {ROOT}
    markers = expected_skip(*reasons): fine
    asyncio_default_fixture_loop_scope = function
"""


def run(pytester: pytest.Pytester, *codes: str, processes: int = 0) -> pytest.RunResult:
    pytester.makeini(INI)
    pytester.makeconftest('pytest_plugins = ["tests.plugin", "tests.share"]')
    # A file of its own beside them, so that something runs whatever is skipped.
    files = {f"test_{number}": code for number, code in enumerate(codes)}
    pytester.makepyfile(test_beside="def test_runs(): pass", **files)
    options = ("-p", "no:valkey", "-p", "no:cacheprovider", "-n", str(processes))
    return pytester.runpytest_inprocess(*options)


@pytest.mark.parametrize("case", TESTS)
def test_an_unexpected_skip_fails_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(pytester, TESTS[case])
    assert (result.ret != 0) == (case in FAILS_IN_CI)
    assert ("nobody expected it" in result.stdout.str()) == (case in FAILS_IN_CI)


@pytest.mark.parametrize("case", TESTS)
def test_outside_ci_a_skip_is_a_skip(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert run(pytester, TESTS[case]).ret == 0


NEEDS_A_SERVER = """
    from tests.servers import DIALECTS, binary_for
    import tests.servers

    def test_on_the_native_server(monkeypatch):
        monkeypatch.setattr(tests.servers, "find", lambda dialect: "found none")
        binary_for(DIALECTS[0])
"""


def test_a_missing_server_is_a_failure_in_ci_and_a_skip_elsewhere(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    run(pytester, NEEDS_A_SERVER).assert_outcomes(passed=1, failed=1)
    monkeypatch.setenv("CI", "false")
    run(pytester, NEEDS_A_SERVER).assert_outcomes(passed=1, skipped=1)


def test_skips_in_other_processes_are_failures_too(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(pytester, *TESTS.values(), processes=2)
    result.assert_outcomes(passed=2, skipped=4, xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    _, _, told = result.stdout.str().partition("nobody expected it")
    for number, case in enumerate(TESTS):
        assert (f"test_{number}.py" in told.partition("===")[2]) == (case in FAILS_IN_CI)


ON_DIALECTS = """
    import pytest
    from tests.servers import DIALECTS

    @pytest.mark.parametrize("dialect", [*DIALECTS, DIALECTS[0]])
    def test_on_it(dialect): pass
"""
FINE = [code for case, code in TESTS.items() if case not in FAILS_IN_CI]


@pytest.mark.parametrize("processes", [0, 2])
def test_what_passed_is_told_for_each_dialect(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    # Found from another folder, and remembered, it would be none for the tests that follow here.
    monkeypatch.setattr("tests.plugin.find", lambda dialect: f"a {dialect.kind}")
    monkeypatch.setenv("CI", "true")
    result = run(pytester, ON_DIALECTS, *FINE, processes=processes)
    assert result.ret == 0
    result.stdout.re_match_lines(
        [
            *(r"=+ servers =+", r"redis-native +2 passed +on a redis"),
            *(r"redis-portable +1 passed +on a redis", r"valkey +1 passed +on a valkey"),
            r"=+ 5 passed, 1 skipped, 1 xfailed in .*",
        ]
    )
