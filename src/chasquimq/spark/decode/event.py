"""Rows of the events stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from chasquimq.spark.decode.column import batch, constant, moments, texts
from chasquimq.wire import unpack_event


class EventDecoder:
    def __init__(self, queue: str, schema: pa.Schema) -> None:
        self._queue = queue
        self._schema = schema

    def batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        events = [unpack_event(fields) for _, fields in rows]

        def numbers(name: str) -> list[int | None]:
            found = [event.fields.get(name) for event in events]
            return [value if isinstance(value, int) else None for value in found]

        columns = {
            "queue": constant(self._queue, len(rows)),
            "entry_id": texts([entry_id for entry_id, _ in rows]),
            "event": pa.array([event.name for event in events], pa.string()),
            "job_id": pa.array([event.job_id for event in events], pa.string()),
            "name": pa.array([event.job_name or None for event in events], pa.string()),
            "attempt": pa.array(numbers("attempt"), pa.int64()),
            "created_at": moments(numbers("created_ms")),
            "backoff_ms": pa.array(numbers("backoff_ms"), pa.int64()),
            "delay_ms": pa.array(numbers("delay_ms"), pa.int64()),
            "duration_us": pa.array(numbers("duration_us"), pa.int64()),
            "reason": pa.array([event.fields.get("reason") for event in events], pa.string()),
            "ts": moments(numbers("ts")),
            "_corrupt_record": pa.nulls(len(rows), self._type("_corrupt_record")),
        }
        return batch(columns, self._schema)

    def _type(self, name: str) -> Any:
        at = self._schema.get_field_index(name)
        return pa.null() if at < 0 else self._schema.field(at).type
