"""View events: `[entry id, fields]`, all of them text. Fields that nobody knows are no fault."""

from __future__ import annotations

from typing import Any

from chasquimq.errors import WireError
from chasquimq.spark.decode.column import digit_moments, digits, texts
from chasquimq.spark.decode.field import Fields
from chasquimq.spark.decode.page import Columns, Page, Values


def event_rows(page: Page, _: Any = None) -> Columns:
    fields = Fields(page)

    def text(field: bytes) -> Values:
        return lambda: fields.values(field)

    def name(field: bytes) -> Values:
        """An event of no job has an empty `id`."""
        return lambda: [one or None for one in fields.values(field)]

    return {
        "entry_id": (texts, lambda: [row[0] for row in page.rows]),
        "event": (texts, lambda: page.each("", _kind, fields.values(b"e", b""))),
        "job_id": (texts, name(b"id")),
        "name": (texts, name(b"n")),
        "attempt": (digits, text(b"attempt")),
        "created_at": (digit_moments, text(b"created_ms")),
        "backoff_ms": (digits, text(b"backoff_ms")),
        "delay_ms": (digits, text(b"delay_ms")),
        "duration_us": (digits, text(b"duration_us")),
        "reason": (texts, text(b"reason")),
        "ts": (digit_moments, text(b"ts")),
    }


def _kind(kind: bytes) -> bytes:
    if not kind:
        raise WireError("not an event: it has no kind")
    return kind
