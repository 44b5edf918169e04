"""Rows as Redis holds them -> Arrow batches, by the columns that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from chasquimq.spark.decode.event import EventDecoder
from chasquimq.spark.decode.job import JobDecoder
from chasquimq.spark.options import SourceOptions


class Decoder(Protocol):
    def batch(self, rows: Sequence[Any]) -> pa.RecordBatch: ...


def decoder(queue: str, schema: StructType, options: SourceOptions) -> Decoder:
    """Who reads the rows of a view. Made on the executor, once per partition."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    if options.view == "events":
        return EventDecoder(queue, arrow)
    return JobDecoder(queue, arrow, options)
