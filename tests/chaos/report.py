"""A pytest plugin: how each test ended, as JSON lines in the file that CHAOS_REPORTS names."""

from __future__ import annotations

import json
import os

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line per test: its last phase that went wrong, or how its call ended."""
    if report.when == "call" or report.outcome != "passed":
        ended = {"test": report.nodeid, "outcome": report.outcome, "seconds": report.duration}
        with open(os.environ["CHAOS_REPORTS"], "a") as out:
            out.write(json.dumps(ended) + "\n")
