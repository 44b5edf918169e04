"""With CI=true nothing is left out silently: a skip is a failure unless it was expected."""

from __future__ import annotations

import pytest

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


def run(pytester: pytest.Pytester, code: str) -> pytest.RunResult:
    pytester.makeini(
        "[pytest]\nmarkers = expected_skip(*reasons): fine\n"
        "asyncio_default_fixture_loop_scope = function"
    )
    # A file of its own beside it, so that something runs whatever is skipped.
    pytester.makepyfile(test_beside="def test_runs(): pass", test_it=code)
    return pytester.runpytest_inprocess(
        "-p", "tests.plugin", "-p", "no:valkey", "-p", "no:cacheprovider"
    )


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
