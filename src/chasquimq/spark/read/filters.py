"""Filters of a query -> what to ask Redis for. Pure.

    queue = / IN                      other queues are not looked at
    entry_id = / IN                   those entries alone                 jobs dlq events
    enqueued_at = < <= > >=           a range of entry ids                jobs pending
    run_at = < <= > >=                a range of scores                   delayed

A filter that is answered to the letter is Spark's no more. A range of scores is a bit too wide, so
Spark filters what comes once more, as it does with every other filter.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from chasquimq.errors import ConfigError
from chasquimq.spark.decode.column import LAST_US
from chasquimq.spark.options import IN_STREAMS, View
from chasquimq.spark.place import LAST_SEQ, Place, Range, read_place

EVERYTHING = Range(Place(0, 0), Place(LAST_SEQ, LAST_SEQ))
LAST_MS = LAST_US // 1000  # later ones are no timestamps: their rows are malformed, and null there
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(NamedTuple):
    """Milliseconds; None: no limit."""

    low: int | None = None
    high: int | None = None


class Wanted(NamedTuple):
    """What is left to be read."""

    queues: tuple[str, ...]
    stretch: Range = EVERYTHING
    ids: frozenset[Place] | None = None
    due: Span = Span()


def narrow(wanted: Wanted, view: View, filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """What to read, and the filters that Spark has to apply to it."""
    left: list[Filter] = []
    for one in filters:
        wanted, exact = _narrow(wanted, view, one)
        if not exact:
            left.append(one)
    return wanted, left


def _narrow(wanted: Wanted, view: View, one: Filter) -> tuple[Wanted, bool]:
    column = getattr(one, "attribute", ())
    if column == ("queue",):
        return _queues(wanted, one)
    if column == ("entry_id",) and view in IN_STREAMS:
        return _entries(wanted, one)
    if column == ("enqueued_at",) and view in ("jobs", "pending"):
        return _entered(wanted, one)
    if column == ("run_at",) and view == "delayed":
        return _due(wanted, one)
    return wanted, False


def _queues(wanted: Wanted, one: Filter) -> tuple[Wanted, bool]:
    if isinstance(one, IsNotNull):
        return wanted, True  # it never is
    values = _values(one)
    if values is None:
        return wanted, False
    return wanted._replace(queues=tuple(name for name in wanted.queues if name in values)), True


def _entries(wanted: Wanted, one: Filter) -> tuple[Wanted, bool]:
    if isinstance(one, IsNotNull):
        return wanted, True
    values = _values(one)
    if values is None:
        return wanted, False
    ids = frozenset(place for place in map(_place, values) if place is not None)
    return wanted._replace(ids=ids if wanted.ids is None else ids & wanted.ids), True


def _entered(wanted: Wanted, one: Filter) -> tuple[Wanted, bool]:
    span = Span() if isinstance(one, IsNotNull) else _span(one)
    if span is None:
        return wanted, False
    low = 0 if span.low is None else max(span.low, 0)
    high = LAST_MS if span.high is None else min(span.high, LAST_MS)
    upto = Place(high + 1, 0).before if high >= 0 else EVERYTHING.after
    old = wanted.stretch
    narrower = Range(max(old.after, Place(low, 0).before), min(old.upto, upto))
    return wanted._replace(stretch=narrower), True


def _due(wanted: Wanted, one: Filter) -> tuple[Wanted, bool]:
    span = _span(one)
    if span is None:
        return wanted, False
    old = wanted.due
    # A millisecond more at both sides: scores may have fractions.
    lows = [low for low in (old.low, None if span.low is None else span.low - 1) if low is not None]
    highs = [
        high
        for high in (old.high, None if span.high is None else span.high + 1)
        if high is not None
    ]
    due = Span(max(lows, default=None), min(highs, default=None))
    return wanted._replace(due=due), False


def _values(one: Filter) -> frozenset[Any] | None:
    """What a column may be; None where the filter does not say it."""
    if isinstance(one, EqualTo | EqualNullSafe):
        return None if one.value is None else frozenset((one.value,))
    if isinstance(one, In):
        return frozenset(one.value) - {None}
    return None


def _place(entry_id: Any) -> Place | None:
    """The entry whose id is that text: ids are compared as texts, and `7-0` is not `07-0`."""
    try:
        place = read_place(entry_id)
    except (ConfigError, TypeError):
        return None
    return place if str(place) == entry_id else None


def _span(one: Filter) -> Span | None:
    """The milliseconds that a filter lets through: from, and up to."""
    moment = getattr(one, "value", None)
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        return None
    micros = (moment - _EPOCH) // timedelta(microseconds=1)
    below, above = micros // 1000, -(-micros // 1000)
    match one:
        case EqualTo() | EqualNullSafe():
            return Span(above, below)  # none, if it has a part of a millisecond
        case GreaterThanOrEqual():
            return Span(low=above)
        case GreaterThan():
            return Span(low=below + 1)
        case LessThanOrEqual():
            return Span(high=below)
        case LessThan():
            return Span(high=above - 1)
    return None
