"""Where streams are cut: everything is in one part, and no part has much more than its share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chasquimq.spark.place import LAST_SEQ, Place, Range
from chasquimq.spark.read.cut import LOOKED, ROUNDS, WALK, Survey
from chasquimq.spark.read.piece import End, Look
from tests.tiers import examples
from tests.unit.spark.model_stream import NOW, SHAPES, ModelStream, spread, stamped

numbers = st.one_of(st.integers(0, 50), st.integers(NOW, NOW + 10_000), st.integers(0, LAST_SEQ))
places = st.builds(Place, numbers, numbers).filter(lambda place: place > (0, 0))
streams = st.lists(places, min_size=1, max_size=60, unique=True).map(ModelStream)
seeds = st.integers(0, 2**32)


def covers(parts: list[Range], stretch: Range) -> bool:
    """Without gap or overlap, and cut between two milliseconds."""
    return (
        parts[0].after == stretch.after
        and parts[-1].upto == stretch.upto
        and all(one.upto == two.after for one, two in pairwise(parts))
        and all(part.after < part.upto for part in parts)
        and all(part.upto.seq == LAST_SEQ for part in parts[:-1])
    )


def stream_of(shape: str, seed: int) -> ModelStream:
    return ModelStream(SHAPES[shape](random.Random(seed)))


@given(streams, st.integers(2, 20))
def test_every_entry_is_in_one_part(stream: ModelStream, parts: int) -> None:
    found = Survey(stream.all_of_it, len(stream.places), True, stream.probe).cut(parts)
    assert covers(found, stream.all_of_it)
    assert [place for part in found for place in stream.inside(part)] == stream.places
    assert len(found) <= parts


@given(streams, st.integers(2, 20))
def test_as_many_parts_as_were_asked_for_if_there_are_so_many_moments(
    stream: ModelStream, parts: int
) -> None:
    moments = len({place.ms for place in stream.places})
    found = Survey(stream.all_of_it, len(stream.places), True, stream.probe).cut(parts)
    assert len(found) == min(parts, moments)


@given(streams, st.data(), st.integers(1, 20))
def test_a_stretch_of_a_stream(stream: ModelStream, data: st.DataObject, parts: int) -> None:
    after, upto = sorted(data.draw(st.lists(places, min_size=2, max_size=2, unique=True)))
    stretch = Range(after, upto)
    survey = Survey(stretch, data.draw(st.integers(0, 10**6)), False, stream.probe)
    assert survey.size() >= 0
    assert covers(survey.cut(parts), stretch)


@settings(max_examples=examples(30))
@given(st.data(), st.integers(0, 10**7), st.integers(2, 100), st.booleans())
def test_whatever_a_stream_that_changes_tells(
    data: st.DataObject, length: int, parts: int, whole: bool
) -> None:
    """Between two looks entries come and go: no answer fits another. It ends all the same."""
    dice, rounds = random.Random(data.draw(seeds)), 0

    def place() -> Place:
        return Place(
            dice.choice((dice.randrange(100), dice.randrange(LAST_SEQ))), dice.randrange(9)
        )

    def probe(looks: Sequence[Look]) -> list[End]:
        nonlocal rounds
        rounds += 1
        return [
            End(dice.randrange(9), place(), place(), place(), dice.random() < 0.3) for _ in looks
        ]

    stretch = Range(Place(0, 0), Place(LAST_SEQ, 7))
    assert covers(Survey(stretch, length, whole, probe).cut(parts), stretch)
    assert rounds <= ROUNDS + 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_no_part_has_much_more_than_its_share(shape: str, parts: int) -> None:
    stream = stream_of(shape, seed=parts)
    length = len(stream.places)
    found = Survey(stream.all_of_it, length, True, stream.probe).cut(parts)
    largest = max(len(stream.inside(part)) for part in found)
    assert len(found) == parts
    assert largest <= 2 * length / parts + stream.fullest_ms  # a millisecond is not cut
    assert stream.looks < 2_500
    assert stream.entries <= 2 * min(length, LOOKED) + 40 * stream.looks + 2 * WALK


def test_what_is_even_is_cheap() -> None:
    stream = ModelStream(stamped(spread(random.Random(7), 100_000)))
    found = Survey(stream.all_of_it, len(stream.places), True, stream.probe).cut(5)
    sizes = [len(stream.inside(part)) for part in found]
    assert min(sizes) > 16_000
    assert stream.looks < 150
    assert stream.entries < 3_000


def test_one_millisecond_is_one_part() -> None:
    stream = ModelStream(Place(NOW, seq) for seq in range(10_000))
    found = Survey(stream.all_of_it, 10_000, True, stream.probe).cut(8)
    assert found == [stream.all_of_it]
    assert stream.looks == 2


def test_a_millisecond_that_is_most_of_a_stream_takes_no_part_from_the_others() -> None:
    crowd = [Place(NOW + 500, seq) for seq in range(9_000)]
    stream = ModelStream([*crowd, *(Place(NOW + ms, 0) for ms in range(1_000) if ms != 500)])
    found = Survey(stream.all_of_it, len(stream.places), True, stream.probe).cut(4)
    assert len(found) == 4
    assert all(stream.inside(part) for part in found)


def test_how_much_a_stretch_holds_is_guessed() -> None:
    stream = ModelStream(stamped(spread(random.Random(7), 100_000)))
    begin, end = stream.places[20_000], stream.places[60_000]
    survey = Survey(Range(begin, end), 100_000, False, stream.probe)
    assert 30_000 < survey.size() < 50_000
    assert max(len(stream.inside(part)) for part in survey.cut(4)) < 20_000


@pytest.mark.parametrize("parts", [0, 1])
def test_one_part_needs_no_look(parts: int) -> None:
    stream = ModelStream([Place(1, 1), Place(9, 9)])
    survey = Survey(stream.all_of_it, 2, True, stream.probe)
    assert survey.cut(parts) == [stream.all_of_it]
    assert stream.looks == 0
