"""What a test run tells at its end, and what it does not let pass with CI=true.

- `servers`: which programs ran, and how many tests passed on each dialect;
- with CI=true a skip is a failure, unless the test says that it expects it:
  `@pytest.mark.expected_skip("part of the reason")`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

from tests.servers import DIALECTS, Dialect, find

DIALECT = "dialect"
SURPRISES = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SURPRISES] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    callspec = getattr(item, "callspec", None)
    for value in callspec.params.values() if callspec else ():
        if isinstance(value, Dialect):
            report.user_properties.append((DIALECT, value.name))
    if report.skipped and not hasattr(report, "wasxfail"):
        expected = [str(r) for mark in item.iter_markers("expected_skip") for r in mark.args]
        reason = _reason(report)
        if not any(part in reason for part in expected):
            item.config.stash[SURPRISES].append(f"{item.nodeid}: {reason}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:  # a whole file: `importorskip`, `skip(allow_module_level=True)`
        collector.config.stash[SURPRISES].append(f"{collector.nodeid}: {_reason(report)}")
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _is_strict(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = Counter(
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == DIALECT and report.when == "call"
    )
    if passed:
        terminalreporter.section("servers")
        for dialect in DIALECTS:
            terminalreporter.line(
                f"{dialect.name:<15} {passed[dialect.name]:>5} passed   on {find(dialect)}"
            )
    if _is_strict(terminalreporter.config):
        terminalreporter.section("skipped, and nobody expected it: a failure with CI=true")
        for surprise in terminalreporter.config.stash[SURPRISES]:
            terminalreporter.line(surprise)


def _is_strict(config: pytest.Config) -> bool:
    return os.environ.get("CI") == "true" and bool(config.stash[SURPRISES])


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
