"""Where to cut a stretch of a stream, so that every part has about as many entries. Pure.

Redis cannot count between two ids, but it finds the entries at the ends of any stretch at once.

1. Look at both ends of each piece: how close entries lie there is a guess at what lies between.
2. Where most seems to be, cut into smaller pieces and look again, until each is a small share.
3. If the stream has more entries than all guesses together, a burst hides between two ends: walk
   through the pieces, those of the most time first, until it shows or enough was looked at.
4. Cut where the weights add up to equal parts.

Cuts lie at millisecond borders. The parts cover the stretch whatever the guesses were.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from math import ceil

from chasquimq.spark.place import Place, Range
from chasquimq.spark.read.piece import LATELY, End, Look, Piece

FEW, MANY = LATELY, 512  # entries of a look: to guess, to walk
COARSE = 8  # parts, at first
FINE = 4  # pieces of a part, at least
SMALL = 10_000  # entries: nobody needs to know better
POINTS = 64  # new cuts at a time
QUIET_MS = 256  # shorter gaps are cut, not walked through
WALK = 16_384  # entries looked at at a time, at the most
LOOKED = 200_000  # entries to look at in search of what hides: about 0.3 s of the server's time
ROUNDS = 100  # of looks, at the most: twice what a stream needs that does not change meanwhile

Order = tuple[Piece, int, int]  # to cut at so many places, and look at so many entries there
Probe = Callable[[Sequence[Look]], Sequence[End]]


class Survey:
    """Of one stretch of a stream. `length`: of the stream; `whole`: the stretch is all of it."""

    def __init__(self, stretch: Range, length: int, whole: bool, probe: Probe) -> None:
        self._stretch = stretch
        self._length = length
        self._whole = whole
        self._probe = probe
        self._pieces: list[Piece] = []

    def size(self) -> int:
        """How many entries the stretch has; a guess where it is not all of the stream."""
        if self._whole or self._length <= SMALL:
            return self._length
        self._begin()
        self._divide([(piece, POINTS // 2, FEW) for piece in self._pieces if piece.divisible])
        return round(sum(self._weights()))

    def cut(self, parts: int) -> list[Range]:
        if parts <= 1 or self._stretch.after >= self._stretch.upto:
            return [self._stretch]
        self._begin()
        self._refine(parts)
        return list(self._parts(parts))

    def _begin(self) -> None:
        if not self._pieces:
            head, tail = self._probe([Look(self._stretch, back, FEW) for back in (False, True)])
            self._pieces = [Piece(self._stretch, head, tail)]

    # -- weights ---------------------------------------------------------------------------------

    def _hidden(self) -> float:
        """How many entries no guess accounts for."""
        if not self._whole:
            return 0
        return self._length - sum(piece.seen() + piece.least() for piece in self._pieces)

    def _weights(self) -> list[float]:
        """Of each piece. Guesses are stretched, or pressed, into what the stream really has."""
        seen = [min(piece.seen(), self._length) for piece in self._pieces]
        guesses = [piece.guess() for piece in self._pieces]
        room, wanted = max(0, self._length - sum(seen)), sum(guesses)
        scale = room / wanted if wanted and (self._whole or wanted > room) else 1.0
        return [known + guess * scale for known, guess in zip(seen, guesses, strict=True)]

    # -- looking closer --------------------------------------------------------------------------

    def _refine(self, parts: int) -> None:
        entries, rounds, usual = min(self._length, LOOKED), ROUNDS, 0.0
        # Coarsely first: while something hides, what is seen seems to be more than it is.
        for level in sorted({min(parts, COARSE), parts}):
            points = 2 * POINTS + 16 * level
            while rounds:
                orders = self._heavy(level, min(points, POINTS))
                points -= sum(cuts for _, cuts, _ in orders)
                if not orders and self._hidden() > self._length / (2 * level):
                    usual = usual or self._length / sum(piece.gap + 1 for piece in self._pieces)
                    orders = list(self._walk(min(WALK, entries), usual))
                if not orders:
                    break
                entries -= self._divide(orders)
                rounds -= 1

    def _heavy(self, parts: int, room: int) -> list[Order]:
        """The pieces that are too large a share."""
        weights = self._weights()
        share = max(1.0, sum(weights) / (FINE * parts))
        heavy = [
            (weight, piece)
            for weight, piece in zip(weights, self._pieces, strict=True)
            if weight > share and piece.divisible
        ]
        found: list[Order] = []
        for weight, piece in sorted(heavy, key=lambda one: -one[0]):
            cuts = min(room, POINTS // 2, ceil(weight / share) - 1)
            if cuts < 1:
                break
            found.append((piece, cuts, FEW))
            room -= cuts
        return found

    def _walk(self, room: int, usual: float) -> Iterator[Order]:
        """Look at everything in pieces that are not dense, the longest first, while there is room.
        What is dense is known to be."""
        for piece in sorted(self._pieces, key=lambda piece: -piece.gap):
            guess = piece.guess()
            if room > 0 and piece.gap > QUIET_MS and guess <= piece.gap * usual:
                cuts = max(1, ceil(guess / (2 * MANY)))
                most = min(MANY, FEW + ceil(guess / cuts * 0.6))  # over half, so that ends meet
                cuts = min(cuts, max(1, room // (2 * most)))
                room -= 2 * cuts * most
                yield piece, cuts, most

    def _divide(self, orders: Sequence[Order]) -> int:
        """Cut pieces into smaller ones, and look at the new ends. Returns at how many entries."""
        small = {piece: piece.divided(cuts) for piece, cuts, _ in orders}
        looks = [
            look for piece, _, most in orders for new in small[piece] for look in new.looks(most)
        ]
        found = self._probe(looks)
        ends = iter(found)
        fresh = {old: [piece.seen(ends) for piece in pieces] for old, pieces in small.items()}
        self._pieces = [
            piece for old in self._pieces for piece in fresh.get(old, [old]) if piece.exact != 0
        ]
        return sum(min(look.most, end.many) for look, end in zip(looks, found, strict=True))

    # -- the parts -------------------------------------------------------------------------------

    def _parts(self, parts: int) -> Iterator[Range]:
        weighed = list(zip(self._weights(), self._pieces, strict=True))
        # Where a millisecond is more than a part, cuts coincide: others make up for them.
        by_weight = [piece for _, piece in sorted(weighed, key=lambda one: -one[0])]
        spare = (ms for piece in by_weight for ms in (piece.first, piece.at(0.5)))
        cuts: set[int] = set()
        for ms in chain(_equal(weighed, parts), spare):
            if len(cuts) < parts - 1 and self._pieces[0].first < ms <= self._pieces[-1].last:
                cuts.add(self._moved(ms))
        after, upto = self._stretch
        borders = [place for ms in sorted(cuts) if after < (place := Place(ms, 0).before) < upto]
        yield from map(Range._make, pairwise([after, *borders, upto]))

    def _moved(self, ms: int) -> int:
        """A cut where nothing is belongs in front of what comes next."""
        at = bisect_left(self._pieces, ms, key=lambda piece: piece.last)
        return max(ms, self._pieces[min(at, len(self._pieces) - 1)].first)


def _equal(weighed: Sequence[tuple[float, Piece]], parts: int) -> Iterator[int]:
    """The milliseconds at which equal parts begin."""
    part, number, passed = sum(weight for weight, _ in weighed) / parts, 1, 0.0
    for weight, piece in weighed:
        while number < parts and part * number < passed + weight:
            yield piece.at((part * number - passed) / weight)
            number += 1
        passed += weight
