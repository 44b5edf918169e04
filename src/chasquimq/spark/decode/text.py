"""Payloads as JSON, as Spark's own `to_json` writes what JSON has no form for, so that `from_json`
reads it back:

    bytes                     base64
    NaN, the infinities       "NaN" "Infinity" "-Infinity"
    keys that are no text     "1" "1.5" "true" "null"; bytes as base64
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any

import msgspec

from chasquimq import wire
from chasquimq.errors import WireError

_to_json = msgspec.json.Encoder().encode
# The heads of floats that may be no number: ca 7f.., ca ff.., cb 7f.. and cb ff..
_ENDLESS = re.compile(rb"[\xca\xcb][\x7f\xff]")


def to_json(payload: bytes) -> bytes:
    value = wire.decode(payload)
    # The encoder would write null for NaN. Looking for one byte is cheap, and it is rarely there.
    if (0x7F in payload or 0xFF in payload) and _ENDLESS.search(payload):
        value = _sayable(value)
    try:
        return _to_json(value)
    except TypeError:  # of keys
        return _to_json(_sayable(value))


def key_text(key: Any) -> str:
    """The key of a map as text."""
    if type(key) is str:
        return key
    if type(key) is bytes:
        return base64.b64encode(key).decode()
    told = _finite(key) if type(key) is float else key
    return told if type(told) is str else _to_json(told).decode()


def _sayable(value: Any) -> Any:
    # Loops and no comprehensions: a level takes one frame of the stack, and there may be 512.
    if type(value) is dict:
        told: dict[str, Any] = {}
        for key, item in value.items():
            told[key_text(key)] = _sayable(item)
        if len(told) < len(value):
            raise WireError("a map has two keys that are the same text")
        return told
    if type(value) is list:
        items: list[Any] = []
        for item in value:
            items.append(_sayable(item))  # noqa: PERF401
        return items
    return _finite(value) if type(value) is float else value


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
