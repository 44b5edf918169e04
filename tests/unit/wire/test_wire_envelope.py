from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.errors import EncodeError, WireError
from chasquimq.job import BackoffSpec, Envelope, RetryOverride

U32 = 2**32 - 1
U64 = 2**64 - 1

VECTORS = [  # (envelope, its bytes)
    (Envelope("a", b"\x01", 2), "94 a1 61 c4 01 01 02 00"),
    (Envelope("a", b"", 128, 255), "94 a1 61 c4 00 cc 80 cc ff"),
    (Envelope("a", b"", 65536, U32), "94 a1 61 c4 00 ce 00 01 00 00 ce ff ff ff ff"),
    (Envelope("", b"", U64), "94 a0 c4 00 cf ff ff ff ff ff ff ff ff 00"),
    (Envelope("a", b"\x01", 2, 3, RetryOverride(5)), "95 a1 61 c4 01 01 02 03 92 05 c0"),
    (Envelope("a", b"", 2, 0, RetryOverride()), "95 a1 61 c4 00 02 00 92 c0 c0"),
    (
        Envelope("a", b"", 2, 0, RetryOverride(None, BackoffSpec("fixed", 7))),
        "95 a1 61 c4 00 02 00 92 c0 95 a5 66 69 78 65 64 07 c0 c0 c0",
    ),
    (
        Envelope("a", b"", 2, 0, RetryOverride(1, BackoffSpec("exponential", 0, 9, 2.0, 3))),
        "95 a1 61 c4 00 02 00 92 01 95 ab 65 78 70 6f 6e 65 6e 74 69 61 6c 00 09"
        " cb 40 00 00 00 00 00 00 00 03",
    ),
]


@pytest.mark.parametrize(("envelope", "expected"), VECTORS)
def test_an_envelope_packs_to_the_documented_bytes(envelope: Envelope, expected: str) -> None:
    assert wire.pack_envelope(envelope) == bytes.fromhex(expected)
    assert wire.unpack_envelope(bytes.fromhex(expected)) == envelope


PLAIN = Envelope("id", b"\x01\x02", 5, 1)
FORMS = [  # other ways to write PLAIN, which a consumer takes
    ("array16", "dc 00 04 a2 69 64 c4 02 01 02 05 01"),
    ("array32", "dd 00 00 00 04 a2 69 64 c4 02 01 02 05 01"),
    ("trailing bytes", "94 a2 69 64 c4 02 01 02 05 01 c1 ff"),
    ("id as bin", "94 c4 02 69 64 c4 02 01 02 05 01"),
    ("id as str8", "94 d9 02 69 64 c4 02 01 02 05 01"),
    ("payload as bin32", "94 a2 69 64 c6 00 00 00 02 01 02 05 01"),
    ("payload as numbers", "94 a2 69 64 92 01 cd 00 02 05 01"),
    ("wide and signed numbers", "94 a2 69 64 c4 02 01 02 d3 00 00 00 00 00 00 00 05 d0 01"),
    ("retry nil", "95 a2 69 64 c4 02 01 02 05 01 c0"),
    (
        "a map by name",
        "84 a2 69 64 a2 69 64 a7 70 61 79 6c 6f 61 64 c4 02 01 02"
        " ad 63 72 65 61 74 65 64 5f 61 74 5f 6d 73 05 a7 61 74 74 65 6d 70 74 01",
    ),
    (
        "a map with an unknown key",
        "85 a1 78 93 c0 80 a0 a2 69 64 a2 69 64 a7 70 61 79 6c 6f 61 64 c4 02 01 02"
        " ad 63 72 65 61 74 65 64 5f 61 74 5f 6d 73 05 a7 61 74 74 65 6d 70 74 01",
    ),
    ("a map by position", "84 00 a2 69 64 01 c4 02 01 02 02 05 03 01"),
]


@pytest.mark.parametrize("form", [form for _, form in FORMS], ids=[name for name, _ in FORMS])
def test_an_envelope_is_read_in_every_form(form: str) -> None:
    assert wire.unpack_envelope(bytes.fromhex(form)) == PLAIN


def test_three_slots_mean_attempt_zero() -> None:
    read = wire.unpack_envelope(bytes.fromhex("93 a2 69 64 c4 00 05"))
    assert read == Envelope("id", b"", 5, 0)


HEAD = "95 a1 61 c4 00 02 00 "
RETRIES = [  # (fifth slot, what it says)
    ("82 ac 6d 61 78 5f 61 74 74 65 6d 70 74 73 03 a1 78 c0", RetryOverride(3)),
    ("80", RetryOverride()),
    ("92 d1 00 07 c0", RetryOverride(7)),
    # any kind decodes, by name, as bin, as a map with nil, by index
    ("92 c0 95 a3 6c 69 6e 01 c0 c0 c0", RetryOverride(None, BackoffSpec("lin", 1))),
    ("92 c0 95 c4 05 66 69 78 65 64 01 c0 c0 c0", RetryOverride(None, BackoffSpec("fixed", 1))),
    ("92 c0 95 81 a5 66 69 78 65 64 c0 01 c0 c0 c0", RetryOverride(None, BackoffSpec("fixed", 1))),
    ("92 c0 95 01 01 c0 c0 c0", RetryOverride(None, BackoffSpec("exponential", 1))),
    ("92 c0 95 09 01 c0 c0 c0", RetryOverride(None, BackoffSpec("unknown", 1))),
    # the multiplier may be a whole number, or half as wide
    (
        "92 c0 95 a5 66 69 78 65 64 01 c0 02 c0",
        RetryOverride(None, BackoffSpec("fixed", 1, None, 2.0)),
    ),
    (
        "92 c0 95 a5 66 69 78 65 64 01 c0 ca 3f c0 00 00 c0",
        RetryOverride(None, BackoffSpec("fixed", 1, None, 1.5)),
    ),
    # a backoff by name, with what it must have
    (
        "92 c0 82 a4 6b 69 6e 64 a5 66 69 78 65 64 a8 64 65 6c 61 79 5f 6d 73 04",
        RetryOverride(None, BackoffSpec("fixed", 4)),
    ),
]


@pytest.mark.parametrize(("slot", "expected"), RETRIES)
def test_an_override_is_read_in_every_form(slot: str, expected: RetryOverride) -> None:
    read = wire.unpack_envelope(bytes.fromhex(HEAD + slot))
    assert read.retry == expected
    assert wire.unpack_retry(bytes.fromhex(slot)) == expected
    if expected.backoff is not None and expected.backoff.multiplier is not None:
        assert type(read.retry.backoff.multiplier) is float  # type: ignore[union-attr]


REFUSED = [
    ("nothing", ""),
    ("never used", "c1"),
    ("a number", "05"),
    ("nil", "c0"),
    ("text", "a1 61"),
    ("two slots", "92 a1 61 c4 00"),
    ("six slots", "96 a1 61 c4 00 02 00 c0 c0"),
    ("truncated", "94 a1 61 c4 05 01"),
    ("a map without created_at_ms", "82 a2 69 64 a1 61 a7 70 61 79 6c 6f 61 64 c4 00"),
    ("id as a number", "94 07 c4 00 02 00"),
    ("id as nil", "94 c0 c4 00 02 00"),
    ("id that is no text", "94 a1 ff c4 00 02 00"),
    ("id as bin that is no text", "94 c4 01 ff c4 00 02 00"),
    ("payload as text", "94 a1 61 a1 61 02 00"),
    ("payload as nil", "94 a1 61 c0 02 00"),
    ("payload as a map", "94 a1 61 80 02 00"),
    ("payload with a big number", "94 a1 61 91 cd 01 00 02 00"),
    ("payload with a negative number", "94 a1 61 91 ff 02 00"),
    ("payload with a bool", "94 a1 61 91 c3 02 00"),
    ("payload with a float", "94 a1 61 91 cb 00 00 00 00 00 00 00 00 02 00"),
    ("payload as ext", "94 a1 61 d4 01 00 02 00"),
    ("created_at_ms negative", "94 a1 61 c4 00 ff 00"),
    ("created_at_ms as a float", "94 a1 61 c4 00 cb 3f f0 00 00 00 00 00 00 00"),
    ("created_at_ms as a bool", "94 a1 61 c4 00 c3 00"),
    ("created_at_ms as text", "94 a1 61 c4 00 a1 31 00"),
    ("attempt negative", "94 a1 61 c4 00 02 ff"),
    ("attempt nil", "94 a1 61 c4 00 02 c0"),
    ("attempt above u32", "94 a1 61 c4 00 02 cf 00 00 00 01 00 00 00 00"),
    ("attempt as a float", "94 a1 61 c4 00 02 ca 3f 80 00 00"),
    ("retry of one", HEAD + "91 03"),
    ("retry of three", HEAD + "93 03 c0 c0"),
    ("retry as a number", HEAD + "03"),
    ("retry as text", HEAD + "a1 61"),
    ("max_attempts negative", HEAD + "92 ff c0"),
    ("max_attempts above u32", HEAD + "92 cf 00 00 00 01 00 00 00 00 c0"),
    ("max_attempts as a bool", HEAD + "92 c3 c0"),
    ("backoff of four", HEAD + "92 c0 94 a5 66 69 78 65 64 01 c0 c0"),
    ("backoff of six", HEAD + "92 c0 96 a5 66 69 78 65 64 01 c0 c0 c0 c0"),
    ("backoff without delay_ms", HEAD + "92 c0 81 a4 6b 69 6e 64 a5 66 69 78 65 64"),
    ("kind as nil", HEAD + "92 c0 95 c0 01 c0 c0 c0"),
    ("kind with fields", HEAD + "92 c0 95 81 a5 66 69 78 65 64 01 01 c0 c0 c0"),
    ("delay negative", HEAD + "92 c0 95 a5 66 69 78 65 64 ff c0 c0 c0"),
    ("delay as a float", HEAD + "92 c0 95 a5 66 69 78 65 64 ca 3f 80 00 00 c0 c0 c0"),
    ("jitter negative", HEAD + "92 c0 95 a5 66 69 78 65 64 01 c0 c0 ff"),
    ("multiplier as a bool", HEAD + "92 c0 95 a5 66 69 78 65 64 01 c0 c3 c0"),
    ("a map with a list for a key", "81 90 c0"),
]


@pytest.mark.parametrize("data", [data for _, data in REFUSED], ids=[name for name, _ in REFUSED])
def test_bytes_that_are_no_envelope_are_a_wire_error(data: str) -> None:
    with pytest.raises(WireError, match="not a job envelope"):
        wire.unpack_envelope(bytes.fromhex(data))


def test_a_whole_multiplier_is_written_as_a_float() -> None:
    retry = RetryOverride(None, BackoffSpec("fixed", 1, None, 2))
    assert wire.pack_retry(retry) == bytes.fromhex(
        "92 c0 95 a5 66 69 78 65 64 01 c0 cb 40 00 00 00 00 00 00 00 c0"
    )


UNWRITABLE = [
    Envelope("a", b"", -1),
    Envelope("a", b"", 2**64),
    Envelope("a", b"", 1, -1),
    Envelope("a", b"", 1, U32 + 1),
    Envelope("\ud800", b"", 1),
    Envelope("a", b"", 1, 0, RetryOverride(U32 + 1)),
    Envelope("a", b"", 1, 0, RetryOverride(-1)),
    Envelope("a", b"", 1, 0, RetryOverride(None, BackoffSpec("fixed", 2**64))),
    Envelope("a", b"", 1, 0, RetryOverride(None, BackoffSpec("fixed", 1.5))),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("envelope", UNWRITABLE)
def test_what_no_consumer_could_read_is_not_written(envelope: Envelope) -> None:
    with pytest.raises(EncodeError, match="no envelope holds"):
        wire.pack_envelope(envelope)


u32 = st.integers(0, U32)
u64 = st.integers(0, U64)
backoffs = st.builds(
    BackoffSpec,
    st.sampled_from(["fixed", "exponential"]),
    u64,
    st.none() | u64,
    st.none() | st.floats(allow_nan=False),
    st.none() | u64,
)
retries = st.builds(RetryOverride, st.none() | u32, st.none() | backoffs)
envelopes = st.builds(Envelope, st.text(), st.binary(), u64, u32, st.none() | retries)


@given(envelope=envelopes, rest=st.binary(min_size=1, max_size=3))
def test_an_envelope_survives_the_round_trip(envelope: Envelope, rest: bytes) -> None:
    packed = wire.pack_envelope(envelope)
    assert wire.unpack_envelope(packed) == envelope
    assert wire.unpack_envelope(packed + rest) == envelope  # the thorough reader agrees


@given(envelope=envelopes)
def test_a_map_says_the_same_as_an_array(envelope: Envelope) -> None:
    fields = {name: getattr(envelope, name) for name in Envelope.__struct_fields__}
    assert wire.unpack_envelope(msgspec.msgpack.encode(fields)) == envelope


@given(envelope=envelopes, data=st.data())
def test_a_broken_envelope_is_an_envelope_or_a_wire_error(
    envelope: Envelope, data: st.DataObject
) -> None:
    packed = bytearray(wire.pack_envelope(envelope))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(packed)))
    for broken in (bytes(packed), bytes(packed[:cut])):
        try:
            read = wire.unpack_envelope(broken)
        except WireError:
            continue
        wire.unpack_envelope(wire.pack_envelope(read))


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 65535, 65536, 70000])
def test_headers_are_the_smallest_there_are(size: int) -> None:
    assert wire.bin_header(size) + bytes(size) == msgspec.msgpack.encode(bytes(size))
    assert wire.str_header(size) + b"x" * size == msgspec.msgpack.encode("x" * size)


# -- a page of them --------------------------------------------------------------------------------

USUAL = [Envelope("a", b"\x01", 2), Envelope("", b"", U64, U32), Envelope("ü" * 40, b"x" * 300, 0)]


def test_a_page_of_the_usual_shape_is_read_at_once() -> None:
    assert wire.unpack_envelopes([wire.pack_envelope(one) for one in USUAL]) == USUAL


@pytest.mark.parametrize(
    "other",
    [
        None,
        b"",
        b"\xc1",
        b"\x94",
        bytes.fromhex("94 a1 61 c4 01 01 02 00 c0"),  # something behind it
        bytes.fromhex("95 a1 61 c4 01 01 02 03 92 05 c0"),  # an override
        bytes.fromhex("95 a1 61 c4 01 01 02 03 c0"),
        bytes.fromhex("93 a1 61 c4 01 01 02"),  # three slots
        bytes.fromhex("94 a1 61 c4 01 01 ff 00"),  # before 1970
        bytes.fromhex("94 a1 61 c4 01 01 02 ff"),  # attempt -1
        bytes.fromhex("94 a1 61 c4 01 01 02 cf 00 00 00 01 00 00 00 00"),  # beyond 32 bits
        bytes.fromhex("94 c4 01 61 c4 01 01 02 00"),  # its id as bin
    ],
)
def test_one_of_another_shape_makes_a_page_unusual(other: bytes | None) -> None:
    for place in range(3):
        page: list[bytes | None] = [wire.pack_envelope(one) for one in USUAL]
        page[place] = other
        assert wire.unpack_envelopes(page) is None
    assert wire.unpack_envelopes([]) is None


@given(st.lists(st.binary(max_size=30).map(lambda tail: b"\x94\xa1a" + tail) | st.binary()))
def test_a_page_has_what_each_of_it_has(page: list[bytes]) -> None:
    found = wire.unpack_envelopes(page)
    assert found is None or found == [wire.unpack_envelope(one) for one in page]
