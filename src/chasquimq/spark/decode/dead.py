"""View dlq: `[entry id, fields]`. What a row does not tell of its job, the envelope in it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chasquimq.spark.decode.column import digit_moments, digits, texts
from chasquimq.spark.decode.envelope import ABSENT, read_envelopes
from chasquimq.spark.decode.field import Fields
from chasquimq.spark.decode.page import Columns, Page, Values
from chasquimq.spark.decode.payload import Form


def dead_rows(page: Page, form: Form) -> Columns:
    fields = Fields(page)

    def text(field: bytes) -> Values:
        return lambda: fields.values(field)

    def name(field: bytes) -> Values:
        """An empty one is none."""
        return lambda: [one or None for one in fields.values(field)]

    def else_of_envelope(field: str, told: Sequence[bytes | None]) -> list[Any]:
        if None not in told:
            return list(told)
        bodies = fields.values(b"d", ABSENT)
        # Row by row: an envelope that nobody needs cannot make its row malformed.
        needed = [body if one is None else None for one, body in zip(told, bodies, strict=True)]
        jobs = read_envelopes(page, needed)
        return [
            getattr(job, field) if one is None else one for one, job in zip(told, jobs, strict=True)
        ]

    def attempts() -> list[bytes | None]:
        found = else_of_envelope("attempt", fields.values(b"attempt"))
        return [b"%d" % one if type(one) is int else one for one in found]

    def failed() -> list[bytes]:
        """Rows of the reference have no such field, but their ids tell."""
        return [
            row[0].partition(b"-")[0] if one is None else one
            for one, row in zip(fields.values(b"failed_at_ms"), page.rows, strict=True)
        ]

    def payloads() -> Sequence[Any]:
        jobs = read_envelopes(page, fields.values(b"d", ABSENT))
        return form.values(page, "payload", [job.payload for job in jobs])

    return {
        "entry_id": (texts, lambda: [row[0] for row in page.rows]),
        "failed_at": (digit_moments, failed),
        "id": (texts, lambda: else_of_envelope("id", name(b"job_id")())),
        "name": (texts, name(b"n")),
        "attempt": (digits, attempts),
        "reason": (texts, text(b"reason")),
        "detail": (texts, text(b"detail")),
        "source_id": (texts, name(b"source_id")),
        "error_type": (texts, text(b"error_type")),
        "error": (texts, text(b"error")),
        "payload": (form.build, payloads),
    }
