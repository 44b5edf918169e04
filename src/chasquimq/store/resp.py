"""Commands as bytes: what goes over a connection, written once and sent as it is; and how the
parts of replies are read.

*<number of arguments>\\r\\n  then for each  $<length>\\r\\n<bytes>\\r\\n
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import hiredis

Arg = bytes | str | int
Command = tuple[Arg, ...]


_HEADS = [b"$%d\r\n" % size for size in range(64)]


def _head(size: int) -> bytes:
    return _HEADS[size] if size < 64 else b"$%d\r\n" % size


def raw(arg: Arg) -> bytes:
    if isinstance(arg, bytes):
        return arg
    return arg.encode() if isinstance(arg, str) else b"%d" % arg


def bulk(arg: Arg) -> bytes:
    data = raw(arg)
    return b"$%d\r\n%b\r\n" % (len(data), data)


def bulks(args: Iterable[bytes]) -> bytes:
    return b"".join([part for arg in args for part in (_head(len(arg)), arg, b"\r\n")])


def pack(*args: Arg) -> bytes:
    return b"*%d\r\n" % len(args) + bulks([raw(arg) for arg in args])


def unpack(command: bytes) -> list[bytes]:
    """The words of a command that `pack` wrote."""
    reader = hiredis.Reader()
    reader.feed(command)
    words: list[bytes] = reader.gets()
    return words


# -- replies -----------------------------------------------------------------------------------


def pairs(flat: Sequence[Any]) -> dict[bytes, Any]:
    """A reply of names and values in turn, as XINFO and CONFIG give them."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def text(word: bytes) -> str:
    """A stranger's bytes as text; what is none stays legible."""
    return word.decode(errors="backslashreplace")
