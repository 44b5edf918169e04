from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.errors import ConfigError, NameTooLongError

NO_BODY = "missing or non-bytes payload field"
NO_ARRAY = "fields not an array"

ENTRIES = [  # (fields, what they hold)
    ([b"d", b"E", b"n", b"N"], (b"E", b"N")),
    ([b"d", b"E"], (b"E", b"")),
    ([b"d", b""], (b"", b"")),
    ([b"d", b"E", b"n", b""], (b"E", b"")),
    ((b"d", b"E", b"n", b"N"), (b"E", b"N")),
    ([b"n", b"N", b"d", b"E"], (b"E", b"N")),
    ([b"x", b"1", b"d", b"E", b"y", b"2", b"n", b"N"], (b"E", b"N")),
    ([b"d", b"E", b"d", b"F"], (b"E", b"")),
    ([b"d", b"E", b"n", b"N", b"n", b"O", b"d", b"F"], (b"E", b"N")),
    ([b"d", b"E", b"n"], (b"E", b"")),
    ([b"d", b"E", b"n", None], (b"E", b"")),
    ([b"d", b"E", b"n", 7], (b"E", b"")),
    ([b"d", b"E", None, b"N"], (b"E", b"")),
    ([b"d", b"E", [b"n"], b"N"], (b"E", b"")),
    ([b"n", b"d"], NO_BODY),
    ([b"x", b"d", b"n", b"E"], NO_BODY),
    ([], NO_BODY),
    ([b"d"], NO_BODY),
    ([b"d", None], NO_BODY),
    ([b"d", 7, b"n", b"N"], NO_BODY),
    ([b"d", "E"], NO_BODY),
    ([b"d", None, b"d", b"E"], NO_BODY),
    ([b"D", b"E"], NO_BODY),
    (None, NO_ARRAY),
    (b"d", NO_ARRAY),
    (7, NO_ARRAY),
    ({b"d": b"E"}, NO_ARRAY),
]


@pytest.mark.parametrize(("fields", "expected"), ENTRIES)
def test_an_entry_is_read_by_the_names_of_its_fields(fields: Any, expected: Any) -> None:
    assert wire.split_entry(fields) == expected


@given(envelope=st.binary(), name=st.binary())
def test_an_entry_survives_the_round_trip(envelope: bytes, name: bytes) -> None:
    assert wire.split_entry(wire.join_entry(envelope, name)) == (envelope, name)


def test_an_empty_name_is_left_out() -> None:
    assert wire.join_entry(b"E", b"") == [b"d", b"E"]


def test_a_name_that_is_no_text_is_no_name() -> None:
    assert wire.decode_name("発送".encode()) == "発送"
    assert wire.decode_name(b"\xff") == ""
    assert wire.decode_name(b"") == ""


@pytest.mark.parametrize(
    "name", ["", "a", "発送", "a b", "a:b", "{a}", "🚀", "a\u3000b", "n" * 256]
)
def test_a_name_passes_the_door_as_bytes(name: str) -> None:
    assert wire.check_name(name) == name.encode()


@pytest.mark.parametrize(
    "name", ["a\0", "\n", "a\tb", "\x7f", "\x85", "\x1b[31m", "\ud800", b"a", 7]
)
def test_a_name_with_control_characters_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError):
        wire.check_name(name)


@pytest.mark.parametrize("name", ["n" * 257, "ñ" * 129, "🚀" * 65])
def test_a_name_is_measured_in_bytes(name: str) -> None:
    with pytest.raises(NameTooLongError) as refused:
        wire.check_name(name)
    assert refused.value.limit == 256
    assert wire.check_name("ñ" * 128) == ("ñ" * 128).encode()


@pytest.mark.parametrize("job_id", ["a", " a", "id-ñ", "a\nb", "i" * 1024, "ñ" * 512])
def test_a_job_id_passes_the_door_as_bytes(job_id: str) -> None:
    assert wire.check_job_id(job_id) == job_id.encode()


@pytest.mark.parametrize(
    "job_id", ["", " ", "\t\n", "i" * 1025, "ñ" * 513, "\udc80", b"a", 7, None]
)
def test_a_job_id_that_cannot_be_found_again_is_refused(job_id: Any) -> None:
    with pytest.raises(ConfigError, match="job id"):
        wire.check_job_id(job_id)
