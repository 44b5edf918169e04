"""Values -> Spark's VARIANT: a value as bytes, and the names of its fields as bytes.

    value       00 null   04 true   08 false   0c 10 14 18  int of 1 2 4 8 bytes   1c double
                28 decimal of 16 bytes   3c binary   40 text   and of text below 64 bytes the size
                head | count | ids of names | offsets | values        object, by name
                head | count | offsets | values                       array
    metadata    head | count | offsets | names

Numbers are little-endian. Ids and offsets are as wide as the largest needs, and heads say how wide.
Unlike in JSON, floats stay what they are, and bytes are bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import VariantType

from chasquimq.errors import WireError
from chasquimq.spark.decode.page import array
from chasquimq.spark.decode.text import key_text

MAX_BYTES = 16 * 1024 * 1024  # Spark's own limit

_ARROW = to_arrow_type(VariantType())
_VERSION = 1
_SHORT = 64  # texts below have their size in the head
_ONE_BYTE, _TWO_BYTES, _FOUR_BYTES = 0, 1, 3  # how heads tell a width
_double = struct.Struct("<d").pack
_size = struct.Struct("<I").pack


class Variant(NamedTuple):
    value: bytes
    metadata: bytes


def pack_variant(value: Any) -> Variant:
    ids: dict[str, int] = {}
    packed = _pack(value, ids)
    return Variant(packed, _metadata(tuple(ids)))


def variants(values: Sequence[Variant | None]) -> pa.Array:
    parts = [
        array([b"" if one is None else one[at] for one in values], pa.binary()) for at in (0, 1)
    ]
    nulls = pa.array([one is None for one in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(_ARROW), mask=nulls)


def _pack(value: Any, ids: dict[str, int]) -> bytes:
    kind = type(value)
    if kind is str:
        raw = value.encode()
        if len(raw) < _SHORT:
            return b"%c%b" % (len(raw) << 2 | 1, raw)
        return b"\x40%b%b" % (_size(len(raw)), raw)
    if kind is int:
        return _integer(value)
    # Containers stay in this function: a level takes one frame of the stack, and there may be 512.
    if kind is dict:
        fields = _by_name(value)
        own: list[int] = []
        parts: list[bytes] = []
        for name in _sorted(fields):
            own.append(ids.setdefault(name, len(ids)))
            parts.append(_pack(fields[name], ids))
        return _object(own, parts)
    if kind is list:
        parts = []
        for item in value:
            parts.append(_pack(item, ids))
        return _array(parts)
    if kind is float:
        return b"\x1c" + _double(value)
    if kind is bytes:
        return b"\x3c%b%b" % (_size(len(value)), value)
    if value is None or kind is bool:
        return b"\x00" if value is None else b"\x04" if value else b"\x08"
    raise WireError(f"holds a {kind.__name__}, which variants do not")


def _integer(value: int) -> bytes:
    if -0x80 <= value < 0x80:
        return b"\x0c" + value.to_bytes(1, "little", signed=True)
    if -0x8000 <= value < 0x8000:
        return b"\x10" + value.to_bytes(2, "little", signed=True)
    if -0x80000000 <= value < 0x80000000:
        return b"\x14" + value.to_bytes(4, "little", signed=True)
    if value < 2**63:
        return b"\x18" + value.to_bytes(8, "little", signed=True)
    return b"\x28\x00" + value.to_bytes(16, "little", signed=True)  # a decimal of scale 0


def _by_name(fields: dict[Any, Any]) -> dict[str, Any]:
    if {*map(type, fields)} <= {str}:
        return fields
    named = {key_text(key): item for key, item in fields.items()}
    if len(named) < len(fields):
        raise WireError("a map has two keys that are the same text")
    return named


def _sorted(names: dict[str, Any]) -> list[str]:
    """In the order by which Spark searches: that of UTF-16."""
    found = sorted(names)
    if not "".join(found).isascii():
        found.sort(key=lambda name: name.encode("utf-16-be"))
    return found


def _array(parts: list[bytes]) -> bytes:
    offsets, wide = _offsets(parts)
    large, count = _count(parts)
    return b"%c%b%b%b" % (large << 4 | wide << 2 | 3, count, offsets, b"".join(parts))


def _object(ids: list[int], parts: list[bytes]) -> bytes:
    offsets, wide = _offsets(parts)
    names, names_wide = _numbers(ids, max(ids, default=0))
    large, count = _count(parts)
    head = large << 6 | names_wide << 4 | wide << 2 | 2
    return b"%c%b%b%b%b" % (head, count, names, offsets, b"".join(parts))


@lru_cache(128)
def _metadata(names: tuple[str, ...]) -> bytes:
    raw = [name.encode() for name in names]
    ends = list(accumulate(map(len, raw), initial=0))
    numbers, wide = _numbers([len(raw), *ends], max(len(raw), _bounded(ends[-1])))
    return b"%c%b%b" % (wide << 6 | _VERSION, numbers, b"".join(raw))


def _offsets(parts: list[bytes]) -> tuple[bytes, int]:
    """Where each begins and the last one ends."""
    ends = list(accumulate(map(len, parts), initial=0))
    return _numbers(ends, _bounded(ends[-1]))


def _bounded(size: int) -> int:
    if size > MAX_BYTES:
        raise WireError(f"is more than the {MAX_BYTES} bytes of a variant")
    return size


def _count(parts: list[bytes]) -> tuple[bool, bytes]:
    large = len(parts) > 0xFF
    return large, _size(len(parts)) if large else b"%c" % len(parts)


def _numbers(values: list[int], most: int) -> tuple[bytes, int]:
    """Side by side, and how wide they are."""
    if most <= 0xFF:
        return bytes(values), _ONE_BYTE
    if most <= 0xFFFF:
        return struct.pack(f"<{len(values)}H", *values), _TWO_BYTES
    return struct.pack(f"<{len(values)}I", *values), _FOUR_BYTES
