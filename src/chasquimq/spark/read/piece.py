"""A piece of a stream, as far as it was looked at: its ends, and a guess at the middle. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from chasquimq.spark.place import Place, Range

LATELY = 16  # entries that tell a rate
EVEN_MS = 64  # shorter gaps are cut evenly
STEEP = 8  # ends that differ by more are a burst and its surroundings


class Look(NamedTuple):
    """At the entries of one end of a range: the first so many, or (`back`) the last."""

    range: Range
    back: bool
    most: int


class End(NamedTuple):
    """What was seen: `many` entries from `near`, the outermost, to `far`. `whole`: no others.
    The last `LATELY` of them begin with `late`."""

    many: int
    near: Place
    late: Place
    far: Place
    whole: bool

    @property
    def rate(self) -> float:
        """Entries in a millisecond, where we stopped to look."""
        lately = self.many if self.near.ms == self.far.ms else min(self.many, LATELY)
        span = abs(self.far.ms - self.late.ms)
        # Corrected for what whole milliseconds and few entries do to a mean.
        return max(1, lately - 2) / (span + 0.5) if span else lately

    def turned(self) -> End:
        return self._replace(near=self.far, late=self.near, far=self.near)


class Piece(NamedTuple):
    range: Range
    head: End
    tail: End

    @property
    def exact(self) -> int | None:
        if self.head.whole:
            return self.head.many
        return self.tail.many if self.tail.whole else None

    @property
    def first(self) -> int:
        return self.head.near.ms

    @property
    def last(self) -> int:
        return self.tail.near.ms

    @property
    def divisible(self) -> bool:
        return self.exact != 0 and self.first < self.last

    @property
    def gap(self) -> int:
        """The milliseconds that nobody has looked at."""
        return max(0, self.tail.far.ms - self.head.far.ms) if self.exact is None else 0

    def seen(self) -> int:
        if self.exact is not None:
            return self.exact
        head, tail = self.head.many, self.tail.many
        return head + tail if self.divisible else max(head, tail)

    def guess(self) -> float:
        """... and how many may be in there."""
        return self.gap * (self.head.rate + self.tail.rate) / 2 if self.divisible else 0.0

    def least(self) -> float:
        """... are, if a burst ends where nobody looks any more."""
        return self.gap * min(self.head.rate, self.tail.rate) if self.steep else self.guess()

    @property
    def steep(self) -> bool:
        """One end is a burst, the other is not."""
        rates = self.head.rate, self.tail.rate
        return self.divisible and max(rates) > STEEP * min(rates)

    def at(self, share: float) -> int:
        """The millisecond in front of which about that share of the entries lies."""
        if self.first < self.last:
            return self.first + max(1, ceil((self.last - self.first) * share))
        return self.first if share < 0.5 else self.first + 1

    def divided(self, cuts: int) -> list[Unseen]:
        after, upto = self.range
        inside = (ms for ms in self._points(cuts) if self.first < ms <= self.last)
        places = [after, *(Place(ms, 0).before for ms in sorted(inside)), upto]
        return [Unseen.of(self, Range(*edges)) for edges in pairwise(places)]

    def _points(self, cuts: int) -> set[int]:
        """Milliseconds to cut at: evenly, or closer and closer to the end that is a burst."""
        low, high = self.head.far.ms, self.tail.far.ms
        if high - low < 2:
            low, high = self.first, self.last
        span = high - low
        if self.gap < EVEN_MS or not self.steep:
            return {low - (-span * at // (cuts + 1)) for at in range(1, cuts + 1)}
        cuts = max(cuts, STEEP)
        distances = {ceil(span ** (at / (cuts + 1))) for at in range(1, cuts + 1)}
        at_the_end = self.tail.rate > self.head.rate
        return {high - far if at_the_end else low + far for far in distances}


class Unseen(NamedTuple):
    """A piece to be, with those ends of the larger one that are still its own."""

    range: Range
    head: End | None
    tail: End | None

    @classmethod
    def of(cls, old: Piece, part: Range) -> Unseen:
        head, tail = old.head, old.tail
        keep_head = part.after == old.range.after and not head.whole and head.far <= part.upto
        keep_tail = part.upto == old.range.upto and not tail.whole and tail.far > part.after
        return cls(part, head if keep_head else None, tail if keep_tail else None)

    def looks(self, most: int) -> Iterator[Look]:
        if self.head is None:
            yield Look(self.range, False, most)
        if self.tail is None:
            yield Look(self.range, True, most)

    def seen(self, ends: Iterator[End]) -> Piece:
        head, tail = self.head or next(ends), self.tail or next(ends)
        if tail.whole:
            head = tail.turned()
        elif head.whole:
            tail = head.turned()
        return Piece(self.range, head, tail)
