"""Rows as Redis holds them -> Arrow batches, by the columns that were asked for.

A column that the schema leaves out is not decoded, so nothing in it can be malformed. In mode
PERMISSIVE a batch has a row for each row it was given, in order; a row that could not be read has
what could, and tells why in `_corrupt_record`, with its bytes:

    jobs pending dlq events    the entry's fields and values, a flat MessagePack array of bins
    delayed                    the member
    results                    the value
    repeatables                the spec
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from chasquimq.errors import ConfigError, MalformedError
from chasquimq.spark.decode.column import constant
from chasquimq.spark.decode.dead import dead_rows
from chasquimq.spark.decode.delayed import delayed_rows
from chasquimq.spark.decode.entry import job_rows, pending_rows
from chasquimq.spark.decode.event import event_rows
from chasquimq.spark.decode.page import Columns, Page, TooMuchError, array
from chasquimq.spark.decode.payload import BINARY, Form, form_of
from chasquimq.spark.decode.repeatable import packed_spec, repeatable_rows
from chasquimq.spark.decode.result import result_rows
from chasquimq.spark.options import CORRUPT, SourceOptions
from chasquimq.spark.options import View as ViewName
from chasquimq.text import shown

PAYLOADS = ("payload", "value")


class Decoder(Protocol):
    def batch(self, rows: Sequence[Any]) -> pa.RecordBatch: ...


class View(NamedTuple):
    columns: Callable[[Page, Form], Columns]
    record: Callable[[Any], bytes | None]  # the bytes of a row
    place: Callable[[Any], str]  # what to call it


def _fields(row: Any) -> bytes | None:
    return None if row[-1] is None else msgspec.msgpack.encode(row[-1])


def _named(what: str) -> Callable[[Any], str]:
    return lambda row: f"{what} {shown(row[0].decode(errors='replace'), 200)!r}"


VIEWS: dict[ViewName, View] = {
    "jobs": View(job_rows, _fields, _named("entry")),
    "pending": View(pending_rows, _fields, _named("entry")),
    "delayed": View(delayed_rows, lambda row: row[0], lambda row: f"member {row[0][:40].hex()}"),
    "dlq": View(dead_rows, _fields, _named("dead entry")),
    "events": View(event_rows, _fields, _named("event")),
    "results": View(result_rows, lambda row: row[1], _named("result of job")),
    "repeatables": View(repeatable_rows, packed_spec, _named("repeatable")),
}


def decoder(queue: str, schema: StructType, options: SourceOptions) -> Decoder:
    """Who reads the rows of a view. Made on the executor, once per partition."""
    return _ViewDecoder(queue, schema, options)


class _ViewDecoder:
    def __init__(self, queue: str, schema: StructType, options: SourceOptions) -> None:
        self._queue = queue
        self._mode = options.mode
        self._view = VIEWS[options.view]
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._form = BINARY
        for field in schema.fields:
            if field.name in PAYLOADS:
                self._form = form_of(field.dataType, field.name) or BINARY

    def batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        try:
            return self._batch(rows)
        except TooMuchError:
            raise ConfigError(
                f"queue {self._queue!r}: {len(rows)} rows are more than the 2 GiB that a column of "
                "a batch holds; set a smaller fetchSize"
            ) from None

    def _batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        page = Page(rows)
        known = self._view.columns(page, self._form)
        arrays = {"queue": constant(self._queue, len(rows))}
        for name in self._schema.names:
            if name in known:
                build, values = known[name]
                arrays[name] = page.column(name, build, values())
        if page.faults and self._mode == "FAILFAST":
            raise self._refusal(page)
        if CORRUPT in self._schema.names:
            arrays[CORRUPT] = self._corrupt(page)
        found = [arrays[name] for name in self._schema.names]
        made = pa.RecordBatch.from_arrays(found, schema=self._schema)
        if page.faults and self._mode == "DROPMALFORMED":
            return made.filter(pa.array([at not in page.faults for at in range(len(rows))]))
        return made

    def _corrupt(self, page: Page) -> pa.Array:
        kind = self._schema.field(CORRUPT).type
        if not page.faults:
            return pa.nulls(len(page.rows), kind)
        told: list[Any] = [None] * len(page.rows)
        for at, why in page.faults.items():
            told[at] = {"reason": why, "record": self._view.record(page.rows[at])}
        return array(told, kind)

    def _refusal(self, page: Page) -> MalformedError:
        at = min(page.faults)
        return MalformedError(
            f"queue {self._queue!r}, {self._view.place(page.rows[at])}: {page.faults[at]}; "
            "mode PERMISSIVE would keep such rows and tell why, DROPMALFORMED leave them out"
        )
