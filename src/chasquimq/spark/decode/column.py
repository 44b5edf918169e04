"""Lists of Python values -> Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")


def texts(values: Sequence[bytes | None]) -> pa.Array:
    """Bytes that are known to be UTF-8, without a str for each."""
    return pa.array(values, pa.binary()).cast(pa.string())


def moments(values: Sequence[int | None]) -> pa.Array:
    """Epoch milliseconds."""
    micros = [None if ms is None else ms * 1000 for ms in values]
    return pa.array(micros, pa.int64()).cast(TIMESTAMP)


def constant(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def batch(columns: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
