"""View repeatables: `[key, score, [spec, retry, fired, aside]]`; no third where there is no hash.

What the fields mean is drawn in `store/specs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.repeat import PAUSED_MS, RepeatPattern, StoredSpec
from chasquimq.spark.decode.column import digits, moments, numbers, texts
from chasquimq.spark.decode.page import Columns, Page, Values


def repeatable_rows(page: Page, _: Any = None) -> Columns:
    @cache
    def specs() -> list[StoredSpec | None]:
        return page.each("", _spec, page.rows)

    def tells(read: Callable[[StoredSpec], Any]) -> Values:
        return lambda: [spec and read(spec) for spec in specs()]

    return {
        "key": (texts, lambda: [row[0] for row in page.rows]),
        "job_name": (texts, tells(lambda spec: spec.job_name or None)),
        "pattern": (texts, tells(lambda spec: _pattern(spec.pattern))),
        "tz": (texts, tells(lambda spec: spec.pattern.tz)),
        "next_fire": (moments, lambda: page.each("next_fire", _next_fire, page.rows)),
        "limit": (numbers, tells(lambda spec: spec.limit)),
        "fired": (digits, lambda: [_hash(row)[2] or b"0" for row in page.rows]),
        "start_after": (moments, tells(lambda spec: spec.start_after_ms)),
        "end_before": (moments, tells(lambda spec: spec.end_before_ms)),
        "missed_fires": (texts, tells(lambda spec: spec.missed_fires.kind)),
    }


def packed_spec(row: Any) -> bytes | None:
    packed: bytes | None = _hash(row)[0]
    return packed


def _hash(row: Any) -> Any:
    return row[2] if len(row) > 2 and row[2] is not None else (None, None, None, None)


def _spec(row: Any) -> StoredSpec:
    packed, retry, _, _ = _hash(row)
    if packed is None:
        raise WireError("what lies under its key is not a hash with a spec")
    return wire.unpack_spec(packed, retry)


def _pattern(pattern: RepeatPattern) -> str | None:
    return pattern.expression if pattern.kind == "cron" else f"every:{pattern.interval_ms}"


def _next_fire(row: Any) -> int | None:
    """Null for one that does not fire. A score that is no moment means never to schedulers too."""
    try:
        ms = int(float(row[1]))
    except OverflowError:
        return None
    return ms if 0 <= ms < PAUSED_MS else None
