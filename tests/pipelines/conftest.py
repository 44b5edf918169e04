"""What tests of the pipelines use."""

from __future__ import annotations

import pytest

from tests.spark.session import give_time, server, spark

__all__ = ["server", "spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    give_time(items, "tests/pipelines")
