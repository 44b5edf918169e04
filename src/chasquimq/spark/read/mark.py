"""How far a streaming query has read each queue, as Spark keeps it. Pure.

    {"<queue>": {"id": "17..-0", "n": 4711}, ...}

`n` is how many entries the stream had ever got when `id` was its last; of dead jobs, which leave
from anywhere, only the id is kept. A batch reads behind its start offset, up to its end offset.
Where the start does not say it, the end does:

    {"<queue>": {"id": "17..-9", "n": 4720, "from": {"id": "17..-0", "n": 4711}}}

That is so in the first batch of a query, of a queue that was added to it, and of a stream that was
made anew. Spark writes an offset down before its batch runs, so a batch that is run again after a
crash begins where it began, though the stream has gone on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from chasquimq.errors import ConfigError
from chasquimq.spark.place import Place, read_place

Offset = dict[str, dict[str, Any]]


class Mark(NamedTuple):
    place: Place
    n: int = 0


class Span(NamedTuple):
    """What a batch takes of one queue: behind `begin`, up to `end`."""

    begin: Mark
    end: Mark
    told: dict[str, Any] | None = None  # the start offset, if it is `begin`

    def entry(self, counted: bool) -> dict[str, Any]:
        """The queue's part of the end offset."""
        if self.told is None:
            return {**write_mark(self.end, counted), "from": write_mark(self.begin, counted)}
        moves = self.end != self.begin if counted else self.end.place != self.begin.place
        # To the letter: Spark runs a batch for whatever looks different.
        return write_mark(self.end, counted) if moves else self.told


def read_spans(start: Offset, end: Offset, counted: bool) -> dict[str, Span]:
    """What is to be read of each queue that goes on."""
    return {
        queue: Span(
            read_mark(queue, told.get("from") or start.get(queue), counted),
            read_mark(queue, told, counted),
        )
        for queue, told in end.items()
        if told != start.get(queue)
    }


def read_mark(queue: str, told: Any, counted: bool) -> Mark:
    try:
        return Mark(read_place(told["id"]), int(told["n"]) if counted else 0)
    except (ConfigError, KeyError, TypeError, ValueError):
        raise ConfigError(
            f"the checkpoint says {told!r:.80} of queue {queue!r:.80}, which is of another view or "
            "source; give this query a checkpointLocation of its own"
        ) from None


def write_mark(mark: Mark, counted: bool) -> dict[str, Any]:
    place = {"id": str(mark.place)}
    return {**place, "n": mark.n} if counted else place


def share(limit: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """`limit` rows, or all if there are fewer, shared in proportion to sizes. Nobody who has some
    goes without; if that is too many, those in front get one each."""
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    some = [name for name, size in sizes.items() if size > 0]
    shares = dict.fromkeys(sizes, 0) | dict.fromkeys(some[:limit], 1)
    left = limit - len(some)
    if left <= 0:
        return shares
    parts = {name: divmod(left * (sizes[name] - 1), total - len(some)) for name in some}
    for name, (whole, _) in parts.items():
        shares[name] += whole
        left -= whole
    for name in sorted(parts, key=lambda name: parts[name][1], reverse=True)[:left]:
        shares[name] += 1
    return shares
