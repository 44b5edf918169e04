"""Rows of the main stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from chasquimq import wire
from chasquimq.spark.decode.column import batch, constant, moments, texts
from chasquimq.spark.options import SourceOptions

_to_json = msgspec.json.Encoder().encode


class JobDecoder:
    def __init__(self, queue: str, schema: pa.Schema, options: SourceOptions) -> None:
        self._queue = queue
        self._schema = schema
        self._options = options

    def batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        ids = [entry_id for entry_id, _ in rows]
        parts = [wire.split_entry(fields) for _, fields in rows]
        jobs = [wire.unpack_envelope(part[0]) for part in parts if not isinstance(part, str)]
        if self._options.payload_format == "binary":
            payload = pa.array([job.payload for job in jobs], pa.binary())
        else:
            payload = texts([_to_json(wire.decode(job.payload)) for job in jobs])
        nothing = len(rows)
        columns = {
            "queue": constant(self._queue, len(rows)),
            "entry_id": texts(ids),
            "enqueued_at": moments([int(one.partition(b"-")[0]) for one in ids]),
            "id": pa.array([job.id for job in jobs], pa.string()),
            "name": texts([part[1] or None for part in parts if not isinstance(part, str)]),
            "attempt": pa.array([job.attempt for job in jobs], pa.int64()),
            "created_at": moments([job.created_at_ms for job in jobs]),
            "payload": payload,
            "max_attempts": pa.nulls(nothing, pa.int64()),
            "backoff": pa.nulls(nothing, self._type("backoff")),
            "_corrupt_record": pa.nulls(nothing, self._type("_corrupt_record")),
        }
        return batch(columns, self._schema)

    def _type(self, name: str) -> Any:
        at = self._schema.get_field_index(name)
        return pa.null() if at < 0 else self._schema.field(at).type
