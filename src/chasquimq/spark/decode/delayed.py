"""View delayed: `(member, score)`. The score is when it is due, in ms."""

from __future__ import annotations

import math
from functools import cache

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.spark.decode.column import micro_moments, texts
from chasquimq.spark.decode.envelope import job_columns
from chasquimq.spark.decode.page import Columns, Page
from chasquimq.spark.decode.payload import Form


def delayed_rows(page: Page, form: Form) -> Columns:
    @cache
    def parts() -> list[tuple[bytes, bytes] | None]:
        return page.each("", wire.split_member, [row[0] for row in page.rows])

    def due() -> list[int | None]:
        return page.each("run_at", _micros, [row[1] for row in page.rows])

    return {
        "run_at": (micro_moments, due),
        "name": (texts, lambda: [part and (part[0] or None) for part in parts()]),
        **job_columns(page, lambda: [part and part[1] for part in parts()], form),
    }


def _micros(score: bytes) -> int:
    """A score may have a part of a millisecond, and Redis goes by it."""
    ms = float(score)
    if not math.isfinite(ms):
        raise WireError(f"score {ms} is no time")
    whole = math.floor(ms)
    return whole * 1000 + math.floor((ms - whole) * 1000)
