"""Jobs' data as text that can be shown: MessagePack in the manner of JSON. Pure.

    {"user": 42, "ids": [1, 2]}         maps, lists, text and numbers as in JSON
    {1: NaN, h'00ff': null}             keys of any kind; NaN, Infinity and -Infinity
    h'00ff'                             bytes
    timestamp("2026-11-16T09:00:00Z")   the one extension type that has a meaning
    ext(5, h'00ff')                     all others
    text(h'ff')                         text that is no UTF-8

The bytes are walked through, not built: a payload that declares four billion items costs as much
as is shown of it. What is not one MessagePack value is shown as a dump of its bytes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.text import shown

MOST = 2_000  # characters of a payload that are shown unless somebody asks for more
MAX_JSON_BYTES = 256 * 1024  # as in an export: what is larger is left out of `--json`
_NO_LIMIT = 2**62
_DEEPEST = 40  # levels that are indented; hostile data nests further
_PER_LINE = 16


class Shown(NamedTuple):
    """`trouble` says why it is a dump; `cut`: there is more than is shown."""

    text: str  # safe to show; several lines where it was asked for
    size: int  # of the bytes, whole
    cut: bool = False
    trouble: str | None = None

    def note(self, option: str = "--payload-limit") -> str | None:
        """What to say below it; None where everything is there."""
        if not self.cut:
            return None
        return f"shown in part: it has {self.size:,} bytes; {option} 0 shows all"


def show_payload(data: bytes, most: int = MOST, *, lines: bool = False) -> Shown:
    """A payload, at most so many characters of it (0: all), on one line or indented on several."""
    page = _Page(most or _NO_LIMIT, lines)
    try:
        end = page.write(data)
        if end < len(data):
            raise WireError(f"{len(data) - end} bytes follow the first value")
    except _Full:
        return Shown(page.text + "…", len(data), cut=True)
    except WireError as error:
        return _dump(data, most or _NO_LIMIT, lines, str(error.args[0]))
    return Shown(page.text, len(data))


def show_job(envelope: bytes, most: int = MOST, *, lines: bool = False) -> Shown:
    """The data in a job's envelope; where there is none to be found, the bytes as they are."""
    try:
        return show_payload(wire.unpack_envelope(envelope).payload, most, lines=lines)
    except WireError as error:
        raw = show_payload(envelope, most, lines=lines)
        return raw._replace(trouble=str(error.args[0]))


def json_job(envelope: bytes) -> dict[str, Any]:
    """{"data": ...} for `--json`, with bytes as {"base64": ...}; empty where it cannot be read or
    is large."""
    try:
        return json_payload(wire.unpack_envelope(envelope).payload)
    except WireError:
        return {}


def json_payload(payload: bytes) -> dict[str, Any]:
    if len(payload) > MAX_JSON_BYTES:
        return {}
    try:
        return {"data": _json_able(wire.decode(payload))}
    except (WireError, RecursionError):
        return {}


def _json_able(value: Any) -> Any:
    """JSON has no NaN, and no keys but text."""
    if isinstance(value, dict):
        return {_json_key(key): _json_able(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_able(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _number(value)
    return value


def _json_key(key: Any) -> str:
    return key if isinstance(key, str) else show_payload(wire.encode(key), 0).text


class _Full(Exception):
    """No more is wanted."""


class _Page:
    """What was written so far. `open` has, for each container that is not at its end, its closing
    bracket and how many values are to come."""

    def __init__(self, most: int, lines: bool) -> None:
        self._room = most
        self._lines = lines
        self._parts: list[str] = []
        self._open: list[tuple[str, int, int]] = []

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def put(self, text: str) -> None:
        if len(text) > self._room:
            self._parts.append(text[: self._room])
            raise _Full
        self._parts.append(text)
        self._room -= len(text)

    def write(self, data: bytes) -> int:
        """One value; answers where it ends."""
        at = self._value(data, 0)
        while self._open:
            close, count, done = self._open.pop()
            if done == count:
                if count:
                    self._break(len(self._open))
                self.put(close)
                continue
            is_value = close == "}" and done % 2 == 1
            if is_value:
                self.put(": ")
            else:
                if done:
                    self.put("," if self._lines else ", ")
                self._break(len(self._open) + 1)
            self._open.append((close, count, done + 1))
            at = self._value(data, at)
        return at

    def _break(self, level: int) -> None:
        if self._lines:
            self.put("\n" + "  " * min(level, _DEEPEST))

    def _value(self, data: bytes, at: int) -> int:
        head = _slice(data, at, 1)[0]
        at += 1
        if head <= 0x7F or head >= 0xE0:
            self.put(str(head if head <= 0x7F else head - 256))
        elif head in _WORDS:
            self.put(_WORDS[head])
        elif head in _NUMBERS:
            form, size = _NUMBERS[head]
            self.put(_number(struct.unpack(form, _slice(data, at, size))[0]))
            at += size
        elif (kind := _kind(head)) is None:
            raise WireError("holds the byte 0xc1, which MessagePack never uses")
        else:
            name, width, small = kind
            size = int.from_bytes(_slice(data, at, width), "big") if width else small
            at += width
            if name in ("map", "list"):
                self.put("{" if name == "map" else "[")
                # Each value has a byte at least: what cannot be there is not waited for.
                count = size * 2 if name == "map" else size
                self._open.append(("}" if name == "map" else "]", count, 0))
            elif name == "ext":
                code = int.from_bytes(_slice(data, at, 1), "big", signed=True)
                self._extension(code, data, at + 1, size)
                at += 1 + size
            else:
                self._bytes(name, data, at, size)
                at += size
        return at

    def _bytes(self, name: str, data: bytes, at: int, size: int) -> None:
        _check(data, at, size)
        # A character has four bytes at most, a byte of hex two characters.
        part = data[at : at + min(size, 4 * (self._room + 1))]
        if name == "str":
            text = _text(part, whole=len(part) == size)
            if text is not None:
                self.put(text)
                return
            part, name = part[: self._room + 1], "text"
        hexed = f"h'{part[: self._room + 1].hex()}'"
        self.put(f"text({hexed})" if name == "text" else hexed)

    def _extension(self, code: int, data: bytes, at: int, size: int) -> None:
        _check(data, at, size)
        stamp = _timestamp(data[at : at + size]) if code == -1 and size in (4, 8, 12) else None
        if stamp is not None:
            self.put(f'timestamp("{stamp}")')
        else:
            self.put(f"ext({code}, h'{data[at : at + min(size, self._room + 1)].hex()}')")


_WORDS = {0xC0: "null", 0xC2: "false", 0xC3: "true"}
_NUMBERS = {
    0xCA: (">f", 4),
    0xCB: (">d", 8),
    0xCC: (">B", 1),
    0xCD: (">H", 2),
    0xCE: (">I", 4),
    0xCF: (">Q", 8),
    0xD0: (">b", 1),
    0xD1: (">h", 2),
    0xD2: (">i", 4),
    0xD3: (">q", 8),
}
# (what it is, how many bytes its size has, its size where it has none)
_KINDS = {
    0xC4: ("bin", 1, 0),
    0xC5: ("bin", 2, 0),
    0xC6: ("bin", 4, 0),
    0xC7: ("ext", 1, 0),
    0xC8: ("ext", 2, 0),
    0xC9: ("ext", 4, 0),
    0xD4: ("ext", 0, 1),
    0xD5: ("ext", 0, 2),
    0xD6: ("ext", 0, 4),
    0xD7: ("ext", 0, 8),
    0xD8: ("ext", 0, 16),
    0xD9: ("str", 1, 0),
    0xDA: ("str", 2, 0),
    0xDB: ("str", 4, 0),
    0xDC: ("list", 2, 0),
    0xDD: ("list", 4, 0),
    0xDE: ("map", 2, 0),
    0xDF: ("map", 4, 0),
}


def _kind(head: int) -> tuple[str, int, int] | None:
    if head <= 0x8F:
        return "map", 0, head & 15
    if head <= 0x9F:
        return "list", 0, head & 15
    return ("str", 0, head & 31) if head <= 0xBF else _KINDS.get(head)


def _check(data: bytes, at: int, size: int) -> None:
    if at + size > len(data):
        raise WireError("it ends too early")


def _slice(data: bytes, at: int, size: int) -> bytes:
    _check(data, at, size)
    return data[at : at + size]


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _text(raw: bytes, whole: bool) -> str | None:
    """As JSON has it, and nothing in it that a terminal would obey; None: it is no UTF-8."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        if whole or error.start < len(raw) - 3:
            return None
        text = raw[: error.start].decode()  # cut in the middle of a character
    return shown(json.dumps(text, ensure_ascii=False))


def _timestamp(raw: bytes) -> str | None:
    if len(raw) == 4:
        nanos, seconds = 0, int.from_bytes(raw, "big")
    elif len(raw) == 8:
        both = int.from_bytes(raw, "big")
        nanos, seconds = both >> 34, both & (2**34 - 1)
    else:
        nanos, seconds = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:], "big", signed=True)
    try:
        when = datetime.fromtimestamp(0, UTC) + timedelta(
            seconds=seconds, microseconds=nanos // 1000
        )
    except OverflowError:
        return None
    return when.isoformat().replace("+00:00", "Z")


def _dump(data: bytes, most: int, lines: bool, trouble: str) -> Shown:
    if not data:
        return Shown("(no bytes)", 0, trouble=trouble)
    if not lines:
        part = data[: max(1, most // 2)]
        cut = len(part) < len(data)
        return Shown(f"h'{part.hex()}{'…' if cut else ''}'", len(data), cut, trouble)
    rows = list(_rows(data[: max(1, most // 80) * _PER_LINE]))
    cut = len(rows) * _PER_LINE < len(data)
    return Shown("\n".join((*rows, *(["…"] if cut else []))), len(data), cut, trouble)


def _rows(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), _PER_LINE):
        part = data[at : at + _PER_LINE]
        left, right = part[:8].hex(" "), part[8:].hex(" ")
        seen = "".join(chr(one) if 0x20 <= one < 0x7F else "." for one in part)
        yield f"{at:08x}  {left:<23}  {right:<23}  |{seen}|"
