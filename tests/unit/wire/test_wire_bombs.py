"""Bytes made to hurt: few that claim to be many, deep ones, broken ones. None may cost much."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.wire.scan import MAX_NODES, scan
from tests.bombs import BOMBS, KIB, colliding, declared

READERS: dict[str, Callable[[bytes], Any]] = {
    "payload": wire.decode,
    "envelope": wire.unpack_envelope,
    "spec": wire.unpack_spec,
    "retry": wire.unpack_retry,
}


def peak(read: Callable[[bytes], Any], data: bytes) -> tuple[int, Exception | None]:
    """Bytes taken at the peak to read `data`, and why it was refused, if it was."""
    tracemalloc.start()
    try:
        read(data)
    except Exception as error:
        return tracemalloc.get_traced_memory()[1], error
    else:
        return tracemalloc.get_traced_memory()[1], None
    finally:
        tracemalloc.stop()


def cost(read: Callable[[bytes], Any], data: bytes) -> tuple[int, float]:
    """Bytes taken at the peak, and seconds, to refuse `data`."""
    started = time.monotonic()
    taken, error = peak(read, data)
    assert isinstance(error, WireError), error
    return taken, time.monotonic() - started


def test_the_corpus_is_large_enough() -> None:
    assert len(BOMBS) >= 60


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_little_cost(name: str, reader: str) -> None:
    data = BOMBS[name]
    taken, seconds = cost(READERS[reader], data)
    # Copies of the input are fine; anything built out of what it only claims is not.
    assert taken < 2 * len(data) + 512 * KIB
    assert seconds < 20  # a guard against hanging, not a measurement


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_inside_an_envelope_is_refused_at_little_cost(name: str) -> None:
    for shape in (b"\x94\xa1i%b\x02\x00", b"\x94\xa1i\xc4\x00\x02%b", b"\x85\xa1x%b\xa2id"):
        taken, _ = cost(wire.unpack_envelope, shape % BOMBS[name])
        assert taken < 3 * len(BOMBS[name]) + 512 * KIB


def test_depth_is_refused_before_the_decoder_runs_into_a_small_stack() -> None:
    refused: list[WireError] = []

    def read() -> None:
        for opening in (b"\x91", b"\x81\xa1a", b"\x92\x01", b"\xdc\x00\x01"):
            try:
                wire.decode(opening * 9_000 + b"\xc0")
            except WireError as error:
                refused.append(error)
        data: list[Any] = []
        data += [data, data]
        try:
            wire.encode(data)
        except WireError as error:
            refused.append(error)

    before = threading.stack_size(256 * KIB)
    try:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert ["nested deeper than 512" in str(error) for error in refused] == [True] * 5


def test_what_is_allowed_grows_by_a_bounded_factor() -> None:
    # The worst there is: two bytes of MessagePack that become a dict and a list each.
    data = declared(0xDD, 4, 20_000) + b"\x91\x80" * 20_000
    tracemalloc.start()
    try:
        wire.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 150 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        declared(0xDD, 4, 60_000) + b"\x91\x90" * 60_000,
        declared(0xDD, 4, 60_000) + b"\x92\x90\xc4\x00" * 60_000,
        declared(0xDD, 4, 400) + (b"\x91" * 300 + b"\x90") * 400,
    ],
    ids=["flat", "with bytes", "deep"],
)
def test_nobody_looks_through_the_process_while_a_large_value_is_built(data: bytes) -> None:
    """In 1 MB of small containers the garbage collector took five sixths of the time, and the
    decoder held the interpreter's lock for it."""
    begun: list[str] = []

    def hear(phase: str, info: dict[str, int]) -> None:
        begun.append(phase)

    gc.callbacks.append(hear)
    try:
        value = wire.decode(data)
    finally:
        gc.callbacks.remove(hear)
    assert len(begun) <= 2 and len(value) >= 400  # once behind it, at the most
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off_and_one_that_is_on_stays_on() -> None:
    fine = declared(0xDD, 4, 40_000) + b"\x91\x90" * 40_000
    for data in (fine, fine[:-1], b"\x81" + fine + b"\x01"):
        for turn, is_on in ((gc.disable, False), (gc.enable, True)):
            turn()
            try:
                with suppress(WireError):
                    wire.decode(data)
                assert gc.isenabled() is is_on
            finally:
                gc.enable()


def test_a_million_values_are_counted_before_they_are_built() -> None:
    at_limit = declared(0xDD, 4, MAX_NODES - 1) + b"\xc0" * (MAX_NODES - 1)
    assert scan(at_limit) == len(at_limit)
    with pytest.raises(WireError, match="more than 1000000 values"):
        scan(declared(0xDD, 4, MAX_NODES) + b"\xc0" * MAX_NODES)
    # ... also when no single container holds too many
    full = declared(0xDC, 2, 65_535) + b"\x90" * 65_535
    with pytest.raises(WireError, match="more than 1000000 values"):
        wire.decode(declared(0xDD, 4, 20) + full * 20)


def test_keys_that_share_one_hash_are_refused_before_a_dict_is_built() -> None:
    """65,000 of them took 35 seconds, in which no other thread ran."""
    data = colliding(65_000)
    for read in (wire.decode, wire.unpack_spec, wire.unpack_retry, wire.unpack_envelope):
        started = time.process_time()
        with pytest.raises(WireError, match="array as the key of a map"):
            read(data)
        assert time.process_time() - started < 5  # a guard against hanging, not a measurement


def test_the_end_of_a_row_is_found_whatever_its_keys_are() -> None:
    """Rows that older versions exported may hold such data; importing them builds none of it."""
    for data in (b"\x81\x91\x01\xc0", b"\x82\x80\x90\xa1a\x81\x90\x01"):
        assert wire.row_end(data) == len(data)
        assert wire.row_end(data + b"\x01") == len(data)


VALUES = [
    *(None, True, -1, -200, 2**64 - 1, -(2**63), 1.5),
    *("a", "a" * 40, "a" * 300, "a" * 70_000, b"a", b"a" * 300, b"a" * 70_000),
    *([], [1] * 20, [1] * 70_000, {}, {"a": [{"b": 1}]}),
    *({number: str(number) for number in range(300)}, dict.fromkeys(map(str, range(70_000)))),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_a_scan_finds_the_end_of_every_kind_of_value(value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    assert scan(data) == len(data)
    assert scan(data + b"\xc1") == len(data)
    for short in {0, len(data) // 2, len(data) - 1}:
        with pytest.raises(WireError):
            scan(data[:short])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("c1", "never uses"),
        ("91 d4 01 00", "extension type"),
        ("c7 0c ff", "extension type"),
        ("dc ff ff c0", "truncated"),
        ("a5 61", "truncated"),
        ("81 91 01 c0", "array as the key of a map"),
        ("92 01 82 a1 61 90 91 01 c0", "array as the key of a map"),
        ("82 80 01 01 01", "map as the key of a map"),
    ],
)
def test_a_scan_says_what_is_wrong(data: str, why: str) -> None:
    with pytest.raises(WireError, match=why):
        scan(bytes.fromhex(data))


def test_a_half_width_float_is_scanned() -> None:
    assert scan(b"\xca\x00\x00\x00\x00") == 5
