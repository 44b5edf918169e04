"""Read structs and enums of the reference in every form its decoder takes.

    struct    [a, b, c]                   by position: what is written
              {"a": .., "b": .., ...}     by name; unknown names are ignored
              {0: .., 1: ..}              by position, as a map
    enum      "Name" | 2                  a bare variant, by name or by index
              {"Name": fields}            a variant with fields, which are again a struct
    text      str, or bin holding UTF-8
    bytes     bin, or an array of 0..255
    number    any width, also the signed forms; never a float, a bool or below zero

Slow and thorough: the usual forms are read by typed decoders next to their writers.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from chasquimq.errors import WireError

U32 = 2**32 - 1
U64 = 2**64 - 1


def fields(value: Any, names: Sequence[str], sizes: Container[int]) -> dict[str, Any]:
    """The fields of a struct by name, only those present. `sizes`: how long its array may be."""
    if type(value) is list:
        if len(value) not in sizes:
            raise WireError(f"{len(value)} elements where {'/'.join(names)} belong")
        return dict(zip(names, value, strict=False))
    if type(value) is not dict:
        raise WireError(f"{_kind(value)} where {'/'.join(names)} belong")
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = _name(key, names)
        if name in names:
            found[name] = item
    return found


def variant(value: Any, names: Sequence[str]) -> tuple[str, Any]:
    """An enum's variant, by its name in `names` if it is known, and its fields (None: bare)."""
    content = None
    if type(value) is dict and len(value) == 1:
        [(value, content)] = value.items()
    return _name(value, names), content


def _name(key: Any, names: Sequence[str]) -> str:
    if type(key) is int and key >= 0:
        return names[key] if key < len(names) else "unknown"
    return text(key)


def uint(value: Any, limit: int = U64) -> int:
    if type(value) is not int or not 0 <= value <= limit:
        raise WireError(f"{_kind(value)} where an integer of 0..{limit} belongs")
    return value


def maybe_uint(value: Any, limit: int = U64) -> int | None:
    return None if value is None else uint(value, limit)


def maybe_float(value: Any) -> float | None:
    if value is None or type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise WireError(f"{_kind(value)} where a number belongs")


def text(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise WireError(f"text that is not UTF-8: {error}") from error
    raise WireError(f"{_kind(value)} where text belongs")


def blob(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    # The types are checked apart because bytes([True]) is legal Python.
    if type(value) is list and {*map(type, value)} <= {int}:
        try:
            return bytes(value)
        except ValueError:
            raise WireError("numbers above 255 where bytes belong") from None
    raise WireError(f"{_kind(value)} where bytes belong")


def _kind(value: Any) -> str:
    return repr(value) if type(value) in (int, float, bool) else type(value).__name__
