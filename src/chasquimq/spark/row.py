"""Rows that were collected, as plain values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row


def plain(row: Row) -> dict[str, Any]:
    """Moments in UTC, and saying so: Spark gives them in this machine's zone, without a word."""
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) else value
        for name, value in row.asDict().items()
    }
