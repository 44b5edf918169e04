"""Chunks: the same rows give the same ones, whatever batches they came in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from chasquimq.spark.write.chunk import NARROW, WIDE, Chunk, chunks, digest, most_rows, rate, sizes
from chasquimq.spark.write.rows import Rows
from tests.spark_redis.writing import sink

ROWS = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=5)), max_size=60)


def walked(rows: list[tuple[bytes, bytes]], most: int, size: int) -> list[list[bytes]]:
    """Row by row: what `chunks` does, said simply."""
    made: list[list[bytes]] = []
    held: list[bytes] = []
    for row in rows:
        full = len(held) == most * NARROW or sum(map(len, (*held, *row))) > size
        if held and full:
            made.append(held)
            held = []
        held = [*held, *row]
    return [*made, held] if held else made


def in_batches(rows: list[tuple[bytes, bytes]], cuts: list[int]) -> list[Rows]:
    borders = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    parts = [rows[a:b] for a, b in pairwise(borders)]
    return [Rows([row[0] for row in part], [row[1] for row in part]) for part in parts]


@given(ROWS, st.lists(st.integers(0, 60), max_size=6), st.integers(1, 12), st.integers(1, 90))
def test_chunks_are_as_if_rows_came_one_by_one(
    rows: list[tuple[bytes, bytes]], cuts: list[int], most: int, size: int
) -> None:
    made = list(chunks(in_batches(rows, cuts), most, size))
    assert [chunk.args for chunk in made] == walked(rows, most, size)
    assert [chunk.number for chunk in made] == list(range(len(made)))
    assert all(chunk.rows * chunk.width == len(chunk.args) for chunk in made)
    assert all(chunk.digest == digest(chunk.args, chunk.rows) for chunk in made)
    marker = b"".join(chunk.digest for chunk in made)
    assert sizes(marker) == [chunk.rows for chunk in made]
    again = chunks(in_batches(rows, [0]), 1, 1, known=sizes(marker))
    assert [chunk.args for chunk in again] == [chunk.args for chunk in made]


def test_a_large_row_is_a_chunk_of_its_own() -> None:
    bodies = [b"a", b"b" * 100, b"c", b"d"]
    made = list(chunks([Rows(bodies)], 10, 50))
    assert [chunk.args[::NARROW] for chunk in made] == [[b"a"], [b"b" * 100], [b"c", b"d"]]


def test_large_rows_do_not_pile_up() -> None:
    """What is full goes out before the next batch is asked for."""
    asked = []

    def batches() -> Iterator[Rows]:
        for number in range(5):
            asked.append(number)
            yield Rows([b"x" * 200])

    for chunk in chunks(batches(), 1_000, 150):
        assert len(asked) == chunk.number + 1


def test_a_chunk_is_wide_where_a_row_is_delayed() -> None:
    [narrow] = chunks([Rows([b"a", b"b"], [b"n", b""], [b"", b""], [b"x", b"y"])], 10, 100)
    assert narrow == Chunk(0, 2, NARROW, [b"a", b"n", b"b", b""], narrow.digest)
    [wide] = chunks([Rows([b"a", b"b"], None, [b"", b"+5"], [b"x", b""])], 10, 100)
    assert wide == Chunk(0, 2, WIDE, [b"a", b"", b"", b"x", b"b", b"", b"+5", b""], wide.digest)
    [asked] = chunks([Rows([b"a"], None, None, [b"x"])], 10, 100, wide=True)
    assert asked.args == [b"a", b"", b"", b"x"]


def test_no_two_chunks_have_one_digest() -> None:
    rows = [
        [b"ab", b"c"],
        [b"a", b"bc"],
        [b"abc", b""],
        [b"", b"abc"],
        [b"abc"],
        [b"ab", b"", b"c"],
    ]
    assert len({digest(row, 1) for row in rows}) == len(rows)


def test_another_order_is_another_digest() -> None:
    args = [b"%d" % number for number in range(100)]
    before = digest(args, 50)
    random.Random(7).shuffle(args)
    assert digest(args, 50) != before


def test_room_for_a_chunk_comes_before_the_queue_is_empty() -> None:
    assert most_rows(sink()) == 250
    assert most_rows(sink(maxStreamLen=400)) == 100
    assert most_rows(sink(maxStreamLen=3)) == 1


def test_a_rate_makes_small_chunks() -> None:
    """Half of what may come in at once, which is a quarter of a second's rows, at most 250."""
    rates = {"0.5": 1, "5": 1, "16": 2, "400": 50, "1000": 125, "1e9": 125}
    assert {text: most_rows(sink(rowsPerSecond=text)) for text in rates} == rates
    assert most_rows(sink(rowsPerSecond=1_000, chunkRows=10)) == 10
    assert (rate(sink(rowsPerSecond="2.5")), rate(sink())) == ("2.5", "0")
