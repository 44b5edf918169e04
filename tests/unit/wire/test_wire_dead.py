from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.job import DeadEntry, Reason

FULL = [
    *(b"d", b"E", b"n", b"send", b"source_id", b"1-0", b"reason", b"malformed"),
    *(b"detail", b"why", b"job_id", b"j1", b"attempt", b"0", b"error_type", b"ValueError"),
    *(b"error", b"boom", b"failed_at_ms", b"17"),
]


def test_fields_come_in_the_reference_order_and_ours_behind() -> None:
    fields = wire.pack_dead(
        b"E",
        b"send",
        b"1-0",
        Reason.MALFORMED,
        detail="why",
        job_id="j1",
        attempt=0,
        error_type="ValueError",
        error="boom",
        failed_at_ms=17,
    )
    assert fields == FULL
    assert wire.unpack_dead(b"2-0", fields) == DeadEntry(
        dlq_id="2-0",
        payload=b"E",
        name="send",
        source_id="1-0",
        reason="malformed",
        detail="why",
        job_id="j1",
        attempt=0,
        error_type="ValueError",
        error="boom",
        failed_at_ms=17,
    )


def test_what_is_none_or_empty_is_left_out() -> None:
    fields = wire.pack_dead(b"", b"", b"1-0", "x", detail="", job_id="", error_type="", error="")
    assert fields == [b"d", b"", b"source_id", b"1-0", b"reason", b"x"]


def field(fields: list[bytes], name: bytes) -> bytes:
    return fields[fields.index(name) + 1]


@pytest.mark.parametrize("letter", ["e", "ñ", "発", "🚀"])
def test_texts_are_cut_at_a_border_between_characters(letter: str) -> None:
    for shift in range(4):
        text = "a" * shift + letter * 5000
        fields = wire.pack_dead(b"E", b"", b"1-0", "x", error_type=text, error=text)
        for name, limit in ((b"error_type", 256), (b"error", 4096)):
            value = field(fields, name)
            assert limit - 4 < len(value) <= limit
            assert text.startswith(value.decode())
    exact = wire.pack_dead(b"E", b"", b"1-0", "x", error="e" * 4096)
    assert field(exact, b"error") == b"e" * 4096


def test_texts_with_lone_surrogates_are_spelled_out() -> None:
    fields = wire.pack_dead(b"E", b"", b"1-0", "x", job_id="\udc80", error="a\ud800" * 3000)
    assert field(fields, b"job_id") == rb"\udc80"
    assert field(fields, b"error").startswith(rb"a\ud800")
    assert len(field(fields, b"error")) <= 4096


LENIENT = [  # (fields, what is told)
    ([], DeadEntry(dlq_id="2-0", payload=b"")),
    ([b"d"], DeadEntry(dlq_id="2-0", payload=b"")),
    ([b"d", b"E", b"d", b"F"], DeadEntry(dlq_id="2-0", payload=b"E")),
    ([b"n", b"\xff", b"d", b"E"], DeadEntry(dlq_id="2-0", payload=b"E", name="")),
    ([b"attempt", b"x", b"failed_at_ms", b"-1"], DeadEntry(dlq_id="2-0", payload=b"")),
    ([b"attempt", b" 1", b"failed_at_ms", b"1_0"], DeadEntry(dlq_id="2-0", payload=b"")),
    ([b"attempt", b"9" * 5000], DeadEntry(dlq_id="2-0", payload=b"")),
    ([b"reason", b"\xff", b"zz", b"1"], DeadEntry(dlq_id="2-0", payload=b"", reason="\ufffd")),
    ([b"d", None, b"reason", 7], DeadEntry(dlq_id="2-0", payload=b"")),
]


@pytest.mark.parametrize(("fields", "expected"), LENIENT)
def test_a_dead_entry_can_always_be_looked_at(fields: Any, expected: DeadEntry) -> None:
    assert wire.unpack_dead(b"2-0", fields) == expected


def test_no_fields_at_all_are_a_wire_error() -> None:
    with pytest.raises(WireError):
        wire.unpack_dead(b"2-0", None)


texts = st.none() | st.text(min_size=1, max_size=60)
numbers = st.none() | st.integers(0, 2**64 - 1)


@given(
    envelope=st.binary(),
    name=st.text(max_size=64),
    reason=st.sampled_from(Reason),
    detail=texts,
    job_id=texts,
    error_type=texts,
    error=texts,
    attempt=numbers,
    failed_at_ms=numbers,
)
def test_a_dead_entry_survives_the_round_trip(
    envelope: bytes, name: str, reason: Reason, **ours: Any
) -> None:
    fields = wire.pack_dead(envelope, name.encode(), b"1-0", reason, **ours)
    assert wire.unpack_dead(b"2-0", fields) == DeadEntry(
        dlq_id="2-0", payload=envelope, name=name, source_id="1-0", reason=reason.value, **ours
    )
