"""Bytes taken apart into choices, the same way by a fuzzer, the corpus and Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

One = TypeVar("One")


class Draw:
    """Takes from the front; what is used up gives zeros and nothing, and never an error."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Whether there is anything left."""
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return taken

    def number(self, width: int = 1) -> int:
        return int.from_bytes(self.take(width), "big")

    def one_of(self, choices: Sequence[One]) -> One:
        return choices[self.number() % len(choices)]

    def blob(self) -> bytes:
        """One byte says how long; 255 stands for two more that say it."""
        size = self.number()
        return self.take(self.number(2) if size == 255 else size)

    def rest(self) -> bytes:
        return self.take(len(self._data))


def put(blob: bytes) -> bytes:
    """What `Draw.blob` takes, for seeds."""
    size = len(blob)
    head = bytes([size]) if size < 255 else b"\xff" + size.to_bytes(2, "big")
    return head + blob
