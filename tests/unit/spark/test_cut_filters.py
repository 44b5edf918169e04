"""Filters become ranges, and none lets through more or less than Spark would."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from chasquimq.spark.options import View
from chasquimq.spark.place import LAST_SEQ, Place
from chasquimq.spark.read.filters import EVERYTHING, LAST_MS, Span, Wanted, narrow
from chasquimq.spark.schema import COLUMNS

ALL = Wanted(("a", "b", "c"))
QUEUE, ENTRY, ENTERED, RUN_AT = ("queue",), ("entry_id",), ("enqueued_at",), ("run_at",)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
NOON_MS = 1_794_830_400_000
COMPARE = {
    EqualTo: lambda one, two: one == two,
    GreaterThan: lambda one, two: one > two,
    GreaterThanOrEqual: lambda one, two: one >= two,
    LessThan: lambda one, two: one < two,
    LessThanOrEqual: lambda one, two: one <= two,
}


def push(view: View, *filters: Filter) -> tuple[Wanted, list[Filter]]:
    return narrow(ALL, view, filters)


@pytest.mark.parametrize("view", COLUMNS)
def test_queues(view: View) -> None:
    assert push(view, EqualTo(QUEUE, "b"), IsNotNull(QUEUE)) == (Wanted(("b",)), [])
    assert push(view, EqualNullSafe(QUEUE, "b")) == (Wanted(("b",)), [])
    assert push(view, In(QUEUE, ("c", "a", "x", None))) == (Wanted(("a", "c")), [])
    assert push(view, EqualTo(QUEUE, "x")) == (Wanted(()), [])
    assert push(view, EqualTo(QUEUE, "a"), EqualTo(QUEUE, "b")) == (Wanted(()), [])


@pytest.mark.parametrize("view", ["jobs", "dlq", "events"])
def test_entries(view: View) -> None:
    assert push(view, EqualTo(ENTRY, "7-1"), IsNotNull(ENTRY))[0].ids == {Place(7, 1)}
    assert push(view, In(ENTRY, ("7-1", "8-0", None)))[0].ids == {Place(7, 1), Place(8, 0)}
    both = push(view, In(ENTRY, ("7-1", "8-0")), In(ENTRY, ("8-0", "9-0")))
    assert both == (ALL._replace(ids=frozenset((Place(8, 0),))), [])


@pytest.mark.parametrize("text", ["7", "07-1", "7-01", "", "x", f"{LAST_SEQ + 1}-0", "7-1 ", "٧-1"])
def test_a_text_that_no_entry_has_as_its_id(text: str) -> None:
    assert push("jobs", EqualTo(ENTRY, text)) == (ALL._replace(ids=frozenset()), [])


@pytest.mark.parametrize("view", ["jobs", "pending"])
@pytest.mark.parametrize("kind", COMPARE)
@given(ms=st.integers(0, 10**13), micros=st.integers(-2_500, 2_500))
def test_times_of_entries(view: View, kind: Any, ms: int, micros: int) -> None:
    """For every entry near the moment: it is in the range if and only if the filter is true."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms, microseconds=micros)
    wanted, left = push(view, kind(ENTERED, moment))
    assert left == []
    for entry in range(max(ms - 4, 0), ms + 5):
        entered = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=entry)
        for place in (Place(entry, 0), Place(entry, LAST_SEQ)):
            inside = wanted.stretch.after < place <= wanted.stretch.upto
            # There is no entry 0-0.
            assert inside == COMPARE[kind](entered, moment) or place == (0, 0)


@pytest.mark.parametrize("one", [GreaterThan(ENTERED, NOON), IsNotNull(ENTERED)])
def test_an_entry_of_no_time_is_not_behind_any(one: Filter) -> None:
    """Its row is malformed, and null where its time would be."""
    wanted, left = push("jobs", one)
    assert left == []
    assert wanted.stretch.upto == Place(LAST_MS, LAST_SEQ)


def test_before_there_was_time() -> None:
    old = datetime(1900, 1, 1, tzinfo=UTC)
    assert push("jobs", GreaterThan(ENTERED, old))[0].stretch.after == EVERYTHING.after
    nothing = push("jobs", LessThan(ENTERED, old))[0].stretch
    assert nothing.after >= nothing.upto


def test_a_zone() -> None:
    berlin = NOON.astimezone(timezone(timedelta(hours=1)))
    assert push("jobs", LessThan(ENTERED, berlin))[0].stretch.upto == Place(NOON_MS, 0).before


@pytest.mark.parametrize(
    ("filters", "due"),
    [
        ([GreaterThan(RUN_AT, NOON)], Span(low=NOON_MS)),
        ([GreaterThanOrEqual(RUN_AT, NOON)], Span(low=NOON_MS - 1)),
        ([LessThan(RUN_AT, NOON)], Span(high=NOON_MS)),
        ([LessThanOrEqual(RUN_AT, NOON)], Span(high=NOON_MS + 1)),
        ([EqualTo(RUN_AT, NOON)], Span(NOON_MS - 1, NOON_MS + 1)),
        ([LessThan(RUN_AT, NOON), GreaterThan(RUN_AT, NOON)], Span(NOON_MS, NOON_MS)),
    ],
)
def test_due_times_are_left_to_spark_as_well(filters: list[Filter], due: Span) -> None:
    """Scores may have parts of a millisecond."""
    assert push("delayed", *filters) == (ALL._replace(due=due), filters)


@pytest.mark.parametrize(
    ("view", "one"),
    [
        ("jobs", EqualTo(("name",), "mail")),
        ("jobs", Not(EqualTo(QUEUE, "a"))),
        ("jobs", StringStartsWith(QUEUE, "a")),
        ("jobs", StringStartsWith(ENTRY, "17")),
        ("jobs", GreaterThan(ENTRY, "17-0")),  # texts are not ordered as entries are
        ("jobs", IsNull(ENTERED)),
        ("jobs", GreaterThan(("created_at",), NOON)),
        ("jobs", GreaterThan(ENTERED, NOON.replace(tzinfo=None))),
        ("jobs", EqualTo(("payload", "queue"), "a")),
        ("jobs", In(ENTERED, (NOON,))),
        ("pending", EqualTo(ENTRY, "7-1")),
        ("dlq", GreaterThan(("failed_at",), NOON)),
        ("events", GreaterThan(("ts",), NOON)),
        ("delayed", IsNotNull(RUN_AT)),
        ("results", EqualTo(("job_id",), "x")),
    ],
)
def test_what_is_left_to_spark_alone(view: View, one: Filter) -> None:
    assert push(view, one) == (ALL, [one])
