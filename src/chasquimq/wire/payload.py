"""User data as bytes: the MessagePack document inside an envelope, and a stored result.

    None bool int float str bytes list tuple dict    written as msgpack-python's packb() does:
    c0   c2.. 00..cf d3 cb   a0.. c4..  90..  90..  80..     smallest form, bin for bytes

Types derived from these are written as what they derive from. Everything else is refused:
the encoder knows many more (datetime, set, dataclass, UUID ...), but it writes them as
something else, and a worker on the other side would get a str or a list where a date went in.
Reading refuses extension types and whatever `scan` finds out of bounds; dict keys may be any
scalar, and NaN and the infinities pass.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import msgspec

from chasquimq.errors import EncodeError, WireError
from chasquimq.wire.scan import MAX_DEPTH, MAX_NODES, UNREADABLE, scan

_SCALARS = frozenset((str, int, float, bool, type(None), bytes, bytearray))
_CONTAINERS = frozenset((dict, list, tuple))
_TOO_DEEP = f"data is nested deeper than {MAX_DEPTH}, or contains itself"

_encode = msgspec.msgpack.Encoder().encode


def encode(data: Any) -> bytes:
    """`data` as bytes; EncodeError, naming the place, for what a worker could not read back."""
    try:
        # The walk comes first: data that contains itself must not reach the encoder, whose own
        # limit is as deep as the stack of a small thread is not.
        if type(data) in _SCALARS or (type(data) in _CONTAINERS and _is_plain(data)):
            encoded = _encode(data)
            return encoded if len(encoded) <= MAX_NODES else _counted(encoded)
    except (ValueError, OverflowError, RecursionError):
        pass  # rebuilding finds the place
    try:
        return _counted(_encode(_rebuild(data, "data", 1)))
    except RecursionError:
        raise EncodeError(_TOO_DEEP) from None


def _counted(encoded: bytes) -> bytes:
    """`encoded`, if a worker would not refuse it for the number of its values."""
    if len(encoded) > MAX_NODES:
        try:
            scan(encoded)
        except WireError as error:
            raise EncodeError(f"data {error.args[0]}; send less, or a reference to it") from None
    return encoded


def _is_plain(node: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether all in a container is exactly of a plain type, and not nested beyond `levels`."""
    # Every add pays for this walk: it asks for types by identity, and calls nothing per value.
    if not levels:
        return False
    if type(node) is dict:
        for key in node:
            if type(key) is not str and type(key) not in _SCALARS:
                return False
        node = node.values()
    for value in node:
        kind = type(value)
        if kind not in _SCALARS and (kind not in _CONTAINERS or not _is_plain(value, levels - 1)):
            return False
    return True


def _rebuild(value: Any, path: str, depth: int) -> Any:
    """`value` made of exactly the plain types; EncodeError where that is impossible."""
    if value is None or value is True or value is False:
        return value
    # The types' own methods: a subclass may print itself differently (an Enum member does).
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise EncodeError(f"{path} is an int beyond 64 bits; send it as a str")
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise EncodeError(f"{path} is no valid text: {error.reason}") from error
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return memoryview(value).tobytes()
    if not isinstance(value, (dict, list, tuple)) or _is_msgpack_type(type(value)):
        raise EncodeError(f"{path} is a {_full_name(type(value))}; {_advice(value)}")
    if depth > MAX_DEPTH:
        raise EncodeError(_TOO_DEEP)
    # Loops, not comprehensions: those would take a second frame per level of nesting.
    if isinstance(value, dict):
        plain = {}
        for key, item in value.items():
            plain_key = _rebuild(key, f"a key of {path}", depth + 1)
            plain[plain_key] = _rebuild(item, f"{path}[{key!r:.40}]", depth + 1)
        return plain
    items = []
    for at, item in enumerate(value):
        items.append(_rebuild(item, f"{path}[{at}]", depth + 1))
    return tuple(items) if isinstance(value, tuple) else items


def _is_msgpack_type(kind: type) -> bool:
    """msgpack's ExtType is a tuple by birth, but a tuple is not what it would be written as."""
    return kind.__module__.partition(".")[0] == "msgpack"


def _full_name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _advice(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return "send its isoformat() or a number"
    if isinstance(value, (set, frozenset)):
        return "send a list"
    if dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct):
        return "send it as a dict"
    if isinstance(value, enum.Enum):
        return "send its value"
    return "send None, bool, int, float, str, bytes, list, tuple or dict"


def _refuse_ext(code: int, data: memoryview) -> Any:
    raise WireError(f"holds extension type {code}")


_decode = msgspec.msgpack.Decoder(ext_hook=_refuse_ext).decode

# Timestamps are the one extension the decoder reads by itself: d6 ff, d7 ff and c7 0c ff.
_TIMESTAMPS = (b"\xd6\xff", b"\xd7\xff", b"\xc7\x0c\xff")
_CONTAINER_HEADS = bytes((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))


def decode(data: bytes) -> Any:
    """What `encode` was given; WireError for anything that is not exactly one harmless value."""
    try:
        # A scan costs more than the decoding, so bytes that cannot be harmful go without: too
        # few to nest too deep, or to hold a timestamp. The decoder itself counts and measures.
        if (len(data) > MAX_DEPTH and _may_be_large(data)) or (
            0xFF in data and _may_hold_timestamp(data)
        ):
            scan(data)
        return _decode(data)
    except WireError as error:
        raise WireError(f"not readable: {error.args[0]}") from None
    except UNREADABLE as error:
        raise WireError(f"not readable: {error}") from error


def _may_be_large(data: bytes) -> bool:
    """Whether there are enough heads of containers to nest too deep, or too many bytes."""
    if len(data) > MAX_NODES:
        return True
    return len(data) - len(data.translate(None, _CONTAINER_HEADS)) > MAX_DEPTH


def _may_hold_timestamp(data: bytes) -> bool:
    # Looking for a number is ten times faster than looking for bytes.
    if 0xD6 in data or 0xD7 in data or 0xC7 in data:
        return any(stamp in data for stamp in _TIMESTAMPS)
    return False
