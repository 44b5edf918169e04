"""A stream in memory: what `read/probe.py` would tell of it, and streams of many shapes."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, groupby

from chasquimq.spark.place import LAST_SEQ, Place, Range
from chasquimq.spark.read.piece import LATELY, End, Look

DAY = 86_400_000
NOW = 1_700_000_000_000
LAST = Place(LAST_SEQ, LAST_SEQ)
NOTHING = End(0, *[Place(0, 0)] * 3, whole=True)


class ModelStream:
    def __init__(self, places: Iterable[Place]) -> None:
        self.places = sorted(set(places))
        self.looks = 0
        self.entries = 0  # that were looked at

    @property
    def all_of_it(self) -> Range:
        return Range(Place(0, 0), self.places[-1])

    @property
    def fullest_ms(self) -> int:
        return max(len(list(group)) for _, group in groupby(self.places, lambda place: place.ms))

    def probe(self, looks: Sequence[Look]) -> list[End]:
        return [self._look(look) for look in looks]

    def inside(self, stretch: Range) -> list[Place]:
        return self.places[slice(*self._span(stretch))]

    def _span(self, stretch: Range) -> tuple[int, int]:
        return bisect_right(self.places, stretch.after), bisect_right(self.places, stretch.upto)

    def _look(self, look: Look) -> End:
        low, high = self._span(look.range)
        if look.back:
            seen = self.places[max(low, high - look.most) : high][::-1]
        else:
            seen = self.places[low : min(high, low + look.most)]
        self.looks += 1
        self.entries += len(seen)
        if not seen:
            return NOTHING
        near, far = seen[0], seen[-1]
        # A server that has shown as many as it may does not know whether there are more.
        whole = len(seen) == high - low and (len(seen) < look.most or far == LAST)
        many, late = len(seen), seen[-LATELY:][0]
        if not whole and near.ms == far.ms and abs(near.seq - far.seq) + 1 == many:
            if look.back:
                far = self.places[bisect_left(self.places, Place(near.ms, 0))]
            else:
                far = self.places[bisect_right(self.places, Place(near.ms, LAST_SEQ)) - 1]
            many = abs(near.seq - far.seq) + 1
        return End(many, near, late, far, whole)


def stamped(times: Iterable[float]) -> list[Place]:
    """Ids as Redis makes them: numbers count up within a millisecond."""
    found: list[Place] = []
    for ms in sorted(map(int, times)):
        again = found and found[-1].ms >= ms
        found.append(Place(found[-1].ms, found[-1].seq + 1) if again else Place(ms, 0))
    return found


def spread(dice: random.Random, many: int, begin: float = 0, length: float = DAY) -> list[float]:
    return [NOW + begin + dice.random() * length for _ in range(many)]


def burst(dice: random.Random, many: int, length: float) -> list[float]:
    return spread(dice, many, dice.random() * (DAY - length), length)


def bursts(dice: random.Random, several: int, many: int, length: float) -> list[float]:
    return [moment for _ in range(several) for moment in burst(dice, many, length)]


def _many_bursts(dice: random.Random) -> list[Place]:
    several = [
        burst(dice, 1 + int(dice.expovariate(1 / 2_000)), dice.choice((5, 50, 500, 5_000)))
        for _ in range(50)
    ]
    return stamped([*spread(dice, 20_000), *chain.from_iterable(several)])


def _holes(dice: random.Random) -> list[Place]:
    places = stamped(spread(dice, 60_000))
    low, high = sorted(dice.sample(range(len(places)), 2))
    return [
        place for at, place in enumerate(places) if not low <= at <= high or dice.random() < 0.02
    ]


SHAPES: dict[str, Callable[[random.Random], list[Place]]] = {
    "uniform": lambda dice: stamped(spread(dice, 50_000)),
    "one burst in a day": lambda dice: stamped([*spread(dice, 5_000), *burst(dice, 100_000, 1000)]),
    "one burst in a busy day": lambda dice: stamped(
        [*spread(dice, 60_000), *burst(dice, 60_000, 1000)]
    ),
    "some bursts": lambda dice: stamped([*spread(dice, 10_000), *bursts(dice, 8, 10_000, 1000)]),
    "bursts and nothing else": lambda dice: stamped(bursts(dice, 8, 10_000, 40)),
    "many bursts": _many_bursts,
    "bulks": lambda dice: stamped(bursts(dice, 200, 500, 2)),
    "bulks of one ms": lambda dice: stamped(
        moment for moment in spread(dice, 40) for _ in range(2_000)
    ),
    "dying away": lambda dice: stamped(
        NOW + dice.expovariate(1 / 3_600_000) for _ in range(60_000)
    ),
    "growing": lambda dice: stamped(
        NOW + DAY - dice.expovariate(1 / 3_600_000) for _ in range(60_000)
    ),
    "at every scale": lambda dice: stamped(
        NOW + DAY * 2 ** (-25 * dice.random()) for _ in range(60_000)
    ),
    "holes": _holes,
    "by hand": lambda dice: [
        Place(5, 5),
        *stamped(spread(dice, 50_000)),
        Place(LAST_SEQ - 5, 7),
        Place(LAST_SEQ, LAST_SEQ),
    ],
}
