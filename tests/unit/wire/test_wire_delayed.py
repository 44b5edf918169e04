from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.errors import EncodeError, WireError
from chasquimq.job import Envelope, RetryOverride

VECTORS = [  # (name, envelope, member)
    (b"", b"\x94\xa0", "00 00 00 00 94 a0"),
    (b"send", b"\x94\xa0", "04 00 00 00 73 65 6e 64 94 a0"),
    (b"n" * 255, b"\x94", "ff 00 00 00" + "6e" * 255 + "94"),
    (b"n" * 256, b"\x94", "00 01 00 00" + "6e" * 256 + "94"),
]


@pytest.mark.parametrize(("name", "envelope", "member"), VECTORS)
def test_a_member_packs_to_the_documented_bytes(name: bytes, envelope: bytes, member: str) -> None:
    assert wire.join_member(name, envelope) == bytes.fromhex(member)
    assert wire.split_member(bytes.fromhex(member)) == (name, envelope)


# What an envelope can begin with: an array or a map of 3, 4 or 5, with a header of 1 or 3
# bytes, then the head of an id (text or bin of any length), or of a field's name.
HEADS = [
    header + id_head
    for count in (3, 4, 5)
    for header in (
        bytes((0x90 + count,)),
        bytes((0x80 + count,)),
        bytes((0xDC, 0, count)),
        bytes((0xDE, 0, count)),
    )
    for id_head in (
        *(bytes((head,)) + b"i" * 8 for head in range(0xA0, 0xC0)),
        *(b"\xd9%c" % size + b"i" * 8 for size in (0, 1, 32, 255)),
        *(b"\xc4%c" % size + b"i" * 8 for size in (0, 1, 32, 255)),
        b"\xda\x01\x00iiiiiiii",
        b"\xda\x00\x00\xc4\x00\x00\x00",
        b"\xdb\x00\x00\x00\x01iiii",
        b"\xc5\x00\x00\xc4\x00\x00\x00",
        b"\xc6\x00\x00\x00\x01iiii",
    )
]


@pytest.mark.parametrize("fill", [b"n", b"\x01", b"\xff"])
def test_both_forms_are_told_apart_for_every_name_and_head(fill: bytes) -> None:
    for size in range(301):
        name = fill * size
        for envelope in HEADS:
            assert wire.split_member(wire.join_member(name, envelope)) == (name, envelope)
            if size < 256:
                assert wire.split_member(b"%c" % size + name + envelope) == (name, envelope)


@pytest.mark.parametrize(
    "member",
    [
        "",
        "00",
        "01",
        "01 6e",
        "00 00 00 00",
        "01 00 00 00 6e",
        "05 00 00 00 6e 94",
        "ff ff 00 00 6e 94",
        "09 6e 6e 94",
    ],
)
def test_a_member_too_short_for_what_it_declares_is_a_wire_error(member: str) -> None:
    with pytest.raises(WireError, match="not a delayed member"):
        wire.split_member(bytes.fromhex(member))


def test_a_name_whose_length_would_not_be_read_back_is_refused() -> None:
    assert wire.split_member(wire.join_member(b"n" * 65535, b"E"))[1] == b"E"
    with pytest.raises(EncodeError):
        wire.join_member(b"n" * 65536, b"E")


@given(name=st.binary(max_size=300), envelope=st.binary(min_size=1))
def test_a_member_survives_the_round_trip(name: bytes, envelope: bytes) -> None:
    assert wire.split_member(wire.join_member(name, envelope)) == (name, envelope)


@given(member=st.binary(max_size=300))
def test_any_member_is_split_or_a_wire_error(member: bytes) -> None:
    try:
        name, envelope = wire.split_member(member)
    except WireError:
        return
    assert member.endswith(name + envelope)


@given(name=st.binary(max_size=300), job_id=st.text(min_size=1, max_size=1_024))
def test_what_stands_before_the_id_ends_where_the_id_begins(name: bytes, job_id: str) -> None:
    for retry in (None, RetryOverride(3, None)):
        member = wire.join_member(name, wire.pack_envelope(Envelope(job_id, b"", 1, 0, retry)))
        raw_id = job_id.encode()
        at = wire.before_id(member, raw_id)
        # Id, empty payload, created_at_ms, attempt; then the override.
        assert member[at:].startswith(raw_id + b"\xc4\x00\x01\x00")
