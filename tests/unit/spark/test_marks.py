"""Offsets of streams: how they are written and read, how a limit is shared, what a stream knows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.errors import ConfigError
from chasquimq.spark.place import END, Place, read_place
from chasquimq.spark.read.mark import Mark, Span, read_mark, read_spans, share
from chasquimq.spark.read.walk import Stream

A, B, C = Mark(Place(10, 0), 3), Mark(Place(20, 1), 7), Mark(Place(30, 0), 9)
TOLD = {"id": "10-0", "n": 3}


def test_an_end_says_where_it_began_if_its_start_does_not() -> None:
    assert Span(A, B, TOLD).entry(counted=True) == {"id": "20-1", "n": 7}
    assert Span(A, B).entry(counted=True) == {"id": "20-1", "n": 7, "from": TOLD}
    assert Span(A, B).entry(counted=False) == {"id": "20-1", "from": {"id": "10-0"}}


def test_what_stands_still_stays_as_it_was_written() -> None:
    told = {"id": "10-0", "n": 3, "from": {"id": "1-0", "n": 0}}
    assert Span(A, A, told).entry(counted=True) is told
    dead = {"id": "10-0", "from": {"id": "1-0"}}
    assert Span(Mark(A.place), A, dead).entry(counted=False) is dead


def test_a_count_that_goes_on_is_written_though_its_place_stands_still() -> None:
    assert Span(A, A._replace(n=5), TOLD).entry(counted=True) == {"id": "10-0", "n": 5}


def test_spans_are_read_from_two_offsets() -> None:
    start: dict[str, Any] = {"still": {"id": "1-0", "n": 1, "from": TOLD}, "on": TOLD, "left": TOLD}
    end = {
        "still": start["still"],
        "on": {"id": "20-1", "n": 7},
        "new": {"id": "30-0", "n": 9, "from": {"id": "20-1", "n": 7}},
    }
    spans = read_spans(start, json.loads(json.dumps(end)), counted=True)
    assert spans == {"on": Span(A, B), "new": Span(B, C)}


@pytest.mark.parametrize(
    "told", [None, 5, "1-0", {}, {"id": 1, "n": 2}, {"id": "x", "n": 1}, {"id": "1-0"}, {"n": 1}]
)
def test_the_checkpoint_of_another_source_is_refused(told: Any) -> None:
    with pytest.raises(ConfigError, match="checkpointLocation of its own"):
        read_mark("q", told, counted=True)


SIZES = st.dictionaries(st.text("abcdefgh", max_size=2), st.integers(0, 10_000), max_size=8)


@given(SIZES, st.integers(1, 3_000))
def test_a_limit_is_shared_to_the_row(sizes: dict[str, int], limit: int) -> None:
    shares = share(limit, sizes)
    assert shares.keys() == sizes.keys()
    assert sum(shares.values()) == min(limit, sum(sizes.values()))
    assert all(0 <= shares[name] <= sizes[name] for name in sizes)
    if limit >= len(sizes):
        assert all(shares[name] for name in sizes if sizes[name]), "one goes without"


def test_a_limit_is_shared_in_proportion() -> None:
    assert share(100, {"a": 3_000, "b": 1_000, "c": 0}) == {"a": 75, "b": 25, "c": 0}
    assert share(10, {"small": 1, "large": 1_000_000}) == {"small": 1, "large": 9}


def test_where_there_is_less_than_one_for_each_those_in_front_get_it() -> None:
    assert share(2, {"a": 1, "none": 0, "b": 9, "c": 999}) == {"a": 1, "none": 0, "b": 1, "c": 0}


def stream(first: int, last: int, added: int, length: int) -> Stream:
    place = Place(first, 0) if length else read_place(END)
    return Stream(Place(last, 0), added, length, place, Place(0, 0), 99)


@pytest.mark.parametrize(
    ("now", "known"),
    [
        (stream(1, 50, 50, 50), True),  # nothing happened
        (stream(21, 50, 50, 30), True),  # trimmed up to the mark
        (stream(41, 50, 50, 10), True),  # ... beyond it
        (stream(0, 50, 50, 0), True),  # all of it
        (stream(0, 0, 0, 0), False),  # there is none
        (stream(60, 69, 10, 10), False),  # made anew, fewer than were read
        (stream(60, 99, 40, 40), False),  # ... more than were read, but none was trimmed
        (stream(1, 15, 15, 15), False),  # back in an older state
        (stream(1, 60, 19, 19), False),  # ... and gone on from there
    ],
)
def test_a_stream_knows_its_own_marks(now: Stream, known: bool) -> None:
    assert now.knows(Mark(Place(20, 0), 20)) == known
    assert now.knows(now.tip)
    assert now.knows(now.head)
    assert now.knows(Mark(Place(0, 0), 0))


def test_what_has_gone_at_the_head_is_known_to_the_entry() -> None:
    mark = Mark(Place(20, 0), 20)
    assert stream(1, 50, 50, 50).gone(mark) == 0
    assert stream(21, 50, 50, 30).gone(mark) == 0
    assert stream(41, 50, 50, 10).gone(mark) == 20
    assert stream(0, 50, 50, 0).gone(mark) == 30
