"""Views jobs and pending: rows of the main stream.

[entry id, fields]                                             jobs
[entry id, consumer, idle ms, deliveries, fields or None]      pending
"""

from __future__ import annotations

from chasquimq.spark.decode.column import id_moments, numbers, texts
from chasquimq.spark.decode.envelope import ABSENT, job_columns
from chasquimq.spark.decode.field import Fields
from chasquimq.spark.decode.page import Columns, Page
from chasquimq.spark.decode.payload import Form


def job_rows(page: Page, form: Form) -> Columns:
    fields = Fields(page)

    def ids() -> list[bytes]:
        return [row[0] for row in page.rows]

    return {
        "entry_id": (texts, ids),
        "enqueued_at": (id_moments, ids),
        "name": (texts, lambda: [name or None for name in fields.values(b"n")]),
        **job_columns(page, lambda: fields.values(b"d", ABSENT), form),
    }


def pending_rows(page: Page, form: Form) -> Columns:
    return {
        **job_rows(page, form),
        "consumer": (texts, lambda: [row[1] for row in page.rows]),
        "idle_ms": (numbers, lambda: [row[2] for row in page.rows]),
        "delivery_count": (numbers, lambda: [row[3] for row in page.rows]),
    }
