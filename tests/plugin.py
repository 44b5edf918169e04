"""What a test run tells at its end, and what it does not let pass with CI=true.

- `servers`: which programs ran, and how many tests passed on each dialect;
- with CI=true a skip is a failure, unless the test says that it expects it:
  `@pytest.mark.expected_skip("part of the reason")`.

With several processes (`-n 3`) a test's report is made in one of them and told by the one that
started them. So what is only known beside the test travels in the report, as its properties, and
everything is counted where reports arrive.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

from tests.servers import DIALECTS, dialects_of, find

DIALECT = "dialect"
SURPRISE = "skipped, and nobody expected it"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # which only those have that were started by another
        config.pluginmanager.register(Account(), "account")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.user_properties += [(DIALECT, dialect.name) for dialect in dialects_of(item)]
    if report.skipped and not hasattr(report, "wasxfail"):
        expected = [str(r) for mark in item.iter_markers("expected_skip") for r in mark.args]
        reason = _reason(report)
        if not any(part in reason for part in expected):
            report.user_properties.append((SURPRISE, reason))
    return report


class Account:
    """What came of the tests, in the one process that tells it."""

    def __init__(self) -> None:
        self._passed: Counter[object] = Counter()
        self._surprises: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == DIALECT and report.passed and report.when == "call":
                self._passed[value] += 1
            elif name == SURPRISE:
                self._surprises.append(f"{report.nodeid}: {value}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:  # a whole file: `importorskip`, `skip(allow_module_level=True)`
            self._surprises.append(f"{report.nodeid}: {_reason(report)}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._must_fail and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._passed:
            terminalreporter.section("servers")
            for dialect in DIALECTS:
                terminalreporter.line(
                    f"{dialect.name:<15} {self._passed[dialect.name]:>5} passed"
                    f"   on {find(dialect)}"
                )
        if self._must_fail:
            terminalreporter.section(f"{SURPRISE}: a failure with CI=true")
            for surprise in self._surprises:
                terminalreporter.line(surprise)

    @property
    def _must_fail(self) -> bool:
        return os.environ.get("CI") == "true" and bool(self._surprises)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
