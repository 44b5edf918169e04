"""Job ids: 26 characters that sort by the millisecond they were made in.

    01M7GBPA1H QZ55Y4TX1QDPF3ZJ
    ---------- ----------------
    time       randomness
    48 bits    80 bits, from the operating system      both in Crockford's base 32, upper case

Ids of one millisecond are in no order. `os.urandom` is the one source of chance in this room:
an id that a test could choose would be an id that two processes could share.
"""

from __future__ import annotations

import os
import struct
import weakref
from collections.abc import Iterator

_ALPHABET = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# 256 is a multiple of 32, so folding a random byte onto the alphabet stays uniform.
_FOLD = bytes(_ALPHABET[byte & 31] for byte in range(256))
_PAIRS = [bytes((_ALPHABET[pair >> 5], _ALPHABET[pair & 31])) for pair in range(1024)]
_TAIL = 16
_cut = struct.Struct(f"{_TAIL}s").iter_unpack  # quicker than slices
_SHIFTS = range(70, 9, -10)
_POOL = 256


def _stamp(now_ms: int) -> bytes:
    return b"".join([_PAIRS[now_ms >> shift & 1023] for shift in (40, 30, 20, 10, 0)])


def _tails(count: int) -> Iterator[tuple[bytes]]:
    return _cut(os.urandom(_TAIL * count).translate(_FOLD))


class Mint:
    """Makes ids. One call to the system serves many; several threads may share a mint."""

    __slots__ = ("__weakref__", "_head", "_pool")

    def __init__(self) -> None:
        self._pool: list[bytes] = []
        self._head = (0, _stamp(0))
        _mints.add(self)

    def one(self, now_ms: int) -> bytes:
        # A millisecond and its characters are one value, so another thread cannot part them.
        head_ms, head = self._head
        if head_ms != now_ms:
            head = _stamp(now_ms)
            self._head = (now_ms, head)
        try:
            return head + self._pool.pop()
        except IndexError:
            fresh = [tail for (tail,) in _tails(_POOL)]
            self._pool.extend(fresh[1:])
            return head + fresh[0]

    def many(self, now_ms: int, count: int) -> list[bytes]:
        head = _stamp(now_ms)
        return [head + tail for (tail,) in _tails(count)]


# Held weakly: a hook per mint, registered with the interpreter, would keep every mint for ever.
_mints: weakref.WeakSet[Mint] = weakref.WeakSet()


def _forget_after_fork() -> None:
    """A child starts with its parent's pool; using it would mint its parent's ids again."""
    for mint in _mints:
        mint._pool.clear()


if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(after_in_child=_forget_after_fork)


def derived(made_ms: int, seed: bytes, first: int, count: int) -> list[bytes]:
    """Ids that are the same each time they are made of the same: for work that may be done twice.

    The 80 bits of `seed` count up from number `first` on, so ids of one seed sort in their order.
    """
    head, start = _stamp(made_ms), int.from_bytes(seed[:10], "big") + first
    ids: list[bytes] = []
    while len(ids) < count:
        number = (start + len(ids)) % 2**80
        front = head + b"".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])
        last = number & 1023
        ids += [front + pair for pair in _PAIRS[last : last + count - len(ids)]]
    return ids
