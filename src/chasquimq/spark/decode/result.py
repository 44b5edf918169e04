"""View results: `(job id, value, ttl in ms or -1)`. A value is MessagePack, as a payload is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chasquimq.errors import WireError
from chasquimq.spark.decode.column import numbers, texts
from chasquimq.spark.decode.page import Columns, Page
from chasquimq.spark.decode.payload import Form


def result_rows(page: Page, form: Form) -> Columns:
    def values() -> Sequence[Any]:
        return form.values(page, "value", page.each("value", _stored, page.rows))

    return {
        "job_id": (texts, lambda: [row[0] for row in page.rows]),
        "value": (form.build, values),
        "ttl_ms": (numbers, lambda: [None if row[2] < 0 else row[2] for row in page.rows]),
    }


def _stored(row: Any) -> bytes:
    value = row[1]
    if type(value) is not bytes:
        raise WireError("there is no string under its key")
    return value
