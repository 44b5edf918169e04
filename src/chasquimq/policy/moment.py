"""A moment as callers give it, and as Redis counts it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)

LAST_MS = 253_402_214_400_000  # the last day that dates have; it is not the last in every zone


def epoch_ms(moment: datetime) -> int:
    """Whole ms since 1970; a moment without a zone is meant in UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MS
