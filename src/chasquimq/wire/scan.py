"""Look through MessagePack without building anything, so that hostile bytes stay cheap.

    0x00-0x7f  0xe0-0xff   small int        0xc0 nil   0xc2 0xc3 bool   0xc1 never used
    0x80-0x8f  map, n pairs                 0xde 0xdf  map with a 16/32-bit count
    0x90-0x9f  array, n items               0xdc 0xdd  array with a 16/32-bit count
    0xa0-0xbf  str, n bytes                 0xd9 0xda 0xdb  str with an 8/16/32-bit length
    0xc4 0xc5 0xc6  bin, 8/16/32-bit        0xca 0xcb  float 4/8 bytes
    0xcc-0xcf  unsigned 1/2/4/8 bytes       0xd0-0xd3  signed 1/2/4/8 bytes
    0xc7-0xc9  0xd4-0xd8  ext: refused, also as a timestamp

A few bytes can declare four billion items, nest without end, or grow a hundredfold when built.
So a value may have at most `MAX_DEPTH` containers inside each other and `MAX_NODES` values, and
a count or a length that the bytes do not bear out shows when their end is passed: nothing is
set aside for it. `payload.encode` refuses what is deeper, so what we write, we can read.

An array or a map as the key of a map is refused: Python gives a tuple of numbers the same hash in
every process, so keys can be made to collide, and 65,000 of them keep a process busy for 35 s.
Numbers can be chosen to collide as well, though not as badly, so a value may have at most
`MAX_NUMBER_KEYS` of them as keys in maps of more than `LARGE_MAP` pairs. Text and bytes cannot:
their hashes differ from process to process.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import msgspec

from chasquimq.errors import WireError

MAX_DEPTH = 512
MAX_NODES = 1_000_000
MAX_NUMBER_KEYS = 4_096  # chosen to collide, they take about 50 ms
LARGE_MAP = 64  # a map of fewer pairs costs little, however its keys collide
LARGE_BYTES = 64 * 1024  # what is smaller is read before it matters to anybody else
TRUNCATED = "truncated"  # what the error says where more bytes could still help

# What goes wrong inside the decoder, whatever the bytes: all of it means "not readable".
UNREADABLE = (
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)

_EXT = (0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8)


def _steps() -> list[int]:
    """Per head byte: the whole size of a value of fixed size, or 0 where more must be read."""
    steps = [1] * 256
    for head in (*range(0x80, 0xA0), 0xC1, *_EXT, *range(0xD9, 0xE0), 0xC4, 0xC5, 0xC6):
        steps[head] = 0
    for length in range(32):
        steps[0xA0 + length] = 1 + length
    for head, width in ((0xCA, 4), (0xCB, 8)):
        steps[head] = 1 + width
    for power in range(4):
        steps[0xCC + power] = steps[0xD0 + power] = 1 + 2**power
    return steps


_STEP = _steps()
_IS_NUMBER = [head <= 0x7F or head >= 0xE0 or 0xCA <= head <= 0xD3 for head in range(256)]
_LENGTH_WIDTH = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_COUNT_WIDTH = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_MAP16 = 0xDE


def scan(data: bytes | memoryview, *, any_key: bool = False) -> int:
    """Where the first value of `data` ends; WireError when it is broken or out of bounds.

    `any_key` lets arrays, maps and any number of numbers be keys: for values that nobody builds.
    """
    at = 0
    nodes = left = 1
    numbers = 0  # that are keys of large maps
    in_map = is_large = False  # in a map, the values alternate: a key, its value, a key ...
    # What is left to read in each open container, whether it is a map, and a large one; outermost
    # first.
    unfinished: list[tuple[int, bool, bool]] = []
    try:
        while True:
            for done in range(1, left + 1):
                head = data[at]
                if is_large and (left - done) % 2 and _IS_NUMBER[head]:
                    numbers += 1
                    if numbers > MAX_NUMBER_KEYS and not any_key:
                        raise WireError(f"has more than {MAX_NUMBER_KEYS} numbers as keys of maps")
                step = _STEP[head]
                if step:
                    at += step
                elif head in _LENGTH_WIDTH:
                    body = at + 1 + _LENGTH_WIDTH[head]
                    at = body + int.from_bytes(data[at + 1 : body], "big")
                else:
                    count, at = _count(data, at, head)
                    is_map = 0x80 <= head <= 0x8F or head >= _MAP16
                    if in_map and (left - done) % 2 and not any_key:
                        kind = "a map" if is_map else "an array"
                        raise WireError(f"has {kind} as the key of a map; a key must be a scalar")
                    nodes += count
                    if nodes > MAX_NODES:
                        raise WireError(f"holds more than {MAX_NODES} values")
                    if len(unfinished) >= MAX_DEPTH:
                        raise WireError(f"nested deeper than {MAX_DEPTH}")
                    unfinished.append((left - done, in_map, is_large))
                    left, in_map, is_large = count, is_map, is_map and count > 2 * LARGE_MAP
                    break
            else:
                if not unfinished:
                    break
                left, in_map, is_large = unfinished.pop()
    except IndexError:
        raise WireError(TRUNCATED) from None
    if at > len(data):
        raise WireError(TRUNCATED)
    return at


def _count(data: bytes | memoryview, at: int, head: int) -> tuple[int, int]:
    """How many values a container holds, and where the first begins."""
    if 0x80 <= head <= 0x9F:
        return (head & 15) * (2 if head < 0x90 else 1), at + 1
    if head in _EXT:
        raise WireError("holds an extension type, which jobs do not use")
    if head not in _COUNT_WIDTH:
        raise WireError("holds the byte 0xc1, which MessagePack never uses")
    first = at + 1 + _COUNT_WIDTH[head]
    return int.from_bytes(data[at + 1 : first], "big") * (2 if head >= _MAP16 else 1), first


def undisturbed(decode: Callable[[bytes], Any], data: bytes) -> Any:
    """What `decode` makes of `data`. Until Python 3.12 the garbage collector runs inside of the
    decoder, and looks through all objects of the process again and again while a large value of
    small containers is built: 300 ms instead of 50 for 1 MB, in which no other thread runs."""
    if len(data) < LARGE_BYTES or not gc.isenabled():
        return decode(data)
    gc.disable()
    try:
        return decode(data)
    finally:
        gc.enable()


_decode = msgspec.msgpack.Decoder().decode


def read_value(data: bytes) -> Any:
    """The first value of `data`, whatever follows it, built after it was found harmless."""
    end = scan(data)
    try:
        return undisturbed(_decode, data[:end])
    except UNREADABLE as error:
        raise WireError(str(error)) from error
