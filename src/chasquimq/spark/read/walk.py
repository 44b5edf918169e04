"""A stream as it is at one moment, and the way along it, without its bodies.

The count of a mark never drifts. Where nothing in front of an entry is left, the server's own
count holds: `entries-added - length` have gone. Elsewhere entries are counted from a mark to the
next. So a mark's `n` is never more than what was added up to it, and what is missing behind a
mark is missing once: whoever comes to the tip, whose `n` is the server's, finds all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from chasquimq import lua
from chasquimq.spark.client import Client
from chasquimq.spark.place import END, START, Place, read_place
from chasquimq.spark.read.mark import Mark
from chasquimq.wire.fault import as_error

SCRIPT = "spark_skip"
STEP = 500  # entries, or
STEP_BYTES = 1 << 20  # ... in one call: the server serves nobody meanwhile


class Stream(NamedTuple):
    """What a stream tells of itself."""

    last: Place
    added: int
    length: int
    first: Place  # of an empty one: behind everything
    deleted: Place  # the last one that did not leave at the head
    now_ms: int

    @property
    def tip(self) -> Mark:
        return Mark(self.last, self.added)

    @property
    def head(self) -> Mark:
        """In front of the first entry that is still there."""
        return Mark(self.first.before, self.added - self.length) if self.length else self.tip

    def gone(self, mark: Mark) -> int:
        """How many behind the mark have left at the head. Less than none: see `knows`."""
        return self.added - self.length - mark.n if self.first > mark.place else 0

    def knows(self, mark: Mark) -> bool:
        """False where the mark is of a stream that was deleted since, or has gone back."""
        return self.last >= mark.place and self.added >= mark.n and self.gone(mark) >= 0


class Walked(NamedTuple):
    mark: Mark
    rows: int
    over: bool  # nothing is left up to where it should go


def look(client: Client, keys: Sequence[bytes]) -> list[Stream]:
    """Asked for in one write."""
    args = (START, START, 0, 0)
    replies = client.ask_each([lua.call(SCRIPT, (key,), args) for key in keys])
    for reply in replies:
        if isinstance(reply, Exception):
            raise as_error(reply, SCRIPT)
    return [_read(reply) for reply in replies]


def walk(client: Client, key: bytes, begin: Mark, upto: Place, most: int | None = None) -> Walked:
    """Past so many entries, or all, of those behind `begin` up to a place."""
    place, n = begin
    rows, over = 0, False
    while not over and rows != most:
        step = STEP if most is None else min(STEP, most - rows)
        reply = client.run(SCRIPT, (key,), (str(place), str(upto), step, STEP_BYTES))
        walked, last, ended = reply[:3]
        stream = _read(reply)
        # Never back: to take over the count of a stream made anew would hide that it is.
        n = max(n, n + stream.gone(Mark(place, n))) + walked
        rows += walked
        over = bool(ended)
        if walked:
            place = read_place(last)
    return Walked(Mark(place, n), rows, over)


def locate(client: Client, key: bytes, stream: Stream, place: Place) -> Mark:
    """The mark at a place in the middle: its `n` has to be counted."""
    if place >= stream.last:
        return stream.tip
    if place <= stream.head.place:
        return stream.head
    return Mark(place, walk(client, key, stream.head, place).mark.n)


def _read(reply: list[Any]) -> Stream:
    last, added, length, first, deleted, now_ms = reply[3:]
    places = read_place(first or END), read_place(deleted)
    return Stream(read_place(last), added, length, *places, now_ms)
