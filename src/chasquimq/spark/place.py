"""Places in a Redis stream, and the ranges between them. Pure.

An entry id is `<ms>-<seq>`. A range is open at the start and closed at the end, like Spark's:
`(after, upto]`. Ranges are cut at millisecond borders, so no entry falls between two tasks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from chasquimq.errors import ConfigError

LAST_SEQ = 2**64 - 1
START = "0-0"
END = f"{LAST_SEQ}-{LAST_SEQ}"
_ID = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?", re.ASCII)


class Place(NamedTuple):
    """An entry id as numbers, so that it can be compared."""

    ms: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    @property
    def before(self) -> Place:
        """The last place in front of this one."""
        if self.seq:
            return Place(self.ms, self.seq - 1)
        return Place(self.ms - 1, LAST_SEQ) if self.ms else self


class Range(NamedTuple):
    after: Place
    upto: Place


def read_place(entry_id: str | bytes) -> Place:
    text = entry_id.decode() if isinstance(entry_id, bytes) else entry_id
    found = _ID.fullmatch(text)
    if not found:
        raise ConfigError(f"{text!r:.80} is no entry id; it looks like 1700000000000-0")
    place = Place(int(found[1]), int(found[2] or 0))
    if max(place) > LAST_SEQ:
        raise ConfigError(f"{text!r:.80} is no entry id: its numbers have at most 64 bits")
    return place
