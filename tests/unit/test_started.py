"""What consumers write down of what they have started."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire

ids = st.builds(lambda ms, seq: b"%d-%d" % (ms, seq), *[st.integers(0, 2**64 - 1)] * 2)
runs = st.dictionaries(ids, st.integers(0, 10**15))


@given(st.integers(1, 10**9), st.integers(0, 10**9), runs)
def test_a_record_comes_back_as_it_was_written(
    slots: int, acks: int, ran_ms: dict[bytes, int]
) -> None:
    started = wire.unpack_started(wire.pack_started(slots, acks, ran_ms.items()))
    assert started == wire.Started(slots, acks, None, ran_ms)


@given(ids, ids, runs)
def test_once_it_is_known_up_to_where_the_runs_are_the_same(
    likely: bytes, possible: bytes, ran_ms: dict[bytes, int]
) -> None:
    started = wire.unpack_started(wire.pack_started(7, 9, ran_ms.items()))
    assert started is not None
    found = wire.unpack_started(wire.UPTO + likely + b" " + possible + started.runs)
    assert found == wire.Started(0, 0, wire.Upto(likely, possible), ran_ms)


@given(st.binary())
def test_what_we_would_not_have_written_is_no_record(data: bytes) -> None:
    started = wire.unpack_started(data)
    assert started is None or data.startswith((b"first ", b"upto "))


@pytest.mark.parametrize(
    "data",
    [b"", b"first", b"first x", b"first 1", b"first 1+1 2-3", b"upto 1", b"upto 1-1", b"upto 1-1 "],
)
def test_half_a_record_is_none(data: bytes) -> None:
    assert wire.unpack_started(data) is None
