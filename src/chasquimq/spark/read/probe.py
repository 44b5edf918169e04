"""Looks at a stream on Redis, for `cut.py`: ids only, bodies stay there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from chasquimq import lua
from chasquimq.spark.client import Arg, Client
from chasquimq.spark.place import START, read_place
from chasquimq.spark.read.piece import LATELY, End, Look
from chasquimq.wire.fault import as_error

LOOK_BYTES = 262_144  # of bodies, which the script copies
AT_ONCE = 2_048  # entries in one write: the server serves nobody in between
_NOWHERE = read_place(START)
NOTHING = End(0, _NOWHERE, _NOWHERE, _NOWHERE, whole=True)


class Prober:
    """A `Probe` of one stream."""

    def __init__(self, client: Client, key: bytes) -> None:
        self._client = client
        self._key = key

    def __call__(self, looks: Sequence[Look]) -> list[End]:
        return [
            end
            for some in _in_writes(looks)
            for end in map(_end, self._client.ask_each([self._command(look) for look in some]))
        ]

    def _command(self, look: Look) -> tuple[Arg, ...]:
        after, upto = f"({look.range.after}", str(look.range.upto)
        ends = ("XREVRANGE", upto, after) if look.back else ("XRANGE", after, upto)
        return lua.call("spark_probe", (self._key,), (*ends, look.most, LOOK_BYTES, LATELY))


def _in_writes(looks: Sequence[Look]) -> Iterator[list[Look]]:
    some: list[Look] = []
    for look in looks:
        if some and sum(one.most for one in some) + look.most > AT_ONCE:
            yield some
            some = []
        some.append(look)
    if some:
        yield some


def _end(reply: Any) -> End:
    if isinstance(reply, Exception):
        raise as_error(reply, "spark_probe")
    if reply == [0]:
        return NOTHING
    seen, whole, first, late, last, *beyond = reply
    near, far = read_place(first), read_place(last)
    # Ids that Redis made count up from 0 in every millisecond, so they tell how many it has.
    if beyond and abs(far.seq - near.seq) == seen - 1:
        far = read_place(beyond[0])
        seen = abs(far.seq - near.seq) + 1
    return End(seen, near, read_place(late), far, bool(whole))
