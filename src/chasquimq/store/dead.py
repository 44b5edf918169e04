"""The DLQ's drawer: turn its pages, bring rows back to life, throw them away, put them back in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chasquimq import wire
from chasquimq.job import DeadEntry
from chasquimq.store.link import Link, reads_replies
from chasquimq.store.resp import Arg
from chasquimq.store.walk import LAST
from chasquimq.wire import Exported, Keys, Revival

PAGE = 100  # a page, and a script call, has at most so many rows
REMEMBER_S = 86_400  # how long a row that was put back is not put back again
END = "+"


class DeadRow(NamedTuple):
    """A row as it reads, and as it is."""

    entry: DeadEntry
    fields: list[bytes]


class Replay(NamedTuple):
    moved: int
    taken: int = 0  # they stay: a living job has their unique id


@reads_replies
class DeadLetters:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    async def page(self, after: str = "", until: str = END, count: int = PAGE) -> list[DeadRow]:
        """The oldest rows behind the entry `after`, up to the entry `until`."""
        if after == LAST:
            return []
        start = f"({after}" if after else "-"
        rows = await self._link.ask("XRANGE", self._keys.dlq, start, until, "COUNT", count)
        for _, fields in rows:
            if type(fields) is not list or not all(type(one) is bytes for one in fields):
                raise TypeError("something else is where the fields of a row belong")
        return [DeadRow(wire.unpack_dead(dlq_id, fields), fields) for dlq_id, fields in rows]

    async def newest(self) -> tuple[str, int] | None:
        """The id of the newest row, and how many bytes it has."""
        rows = await self._link.ask("XREVRANGE", self._keys.dlq, END, "-", "COUNT", 1)
        return (rows[0][0].decode(), sum(map(len, rows[0][1]))) if rows else None

    async def clock_ms(self) -> int:
        return await self._link.clock_ms()

    async def replay(self, revivals: Sequence[Revival]) -> Replay:
        """Bring jobs back to the stream, those that still lie here."""
        if not revivals:
            return Replay(0)
        flat: list[Arg] = []
        for one in revivals:
            flat += one.args(self._keys)
        keys = (self._keys.dlq, self._keys.stream)
        return Replay(*await self._link.run("replay", keys, flat))

    async def delete(self, rows: Sequence[DeadRow]) -> int:
        """Throw rows away; answers how many of them still lay here."""
        ids = [row.entry.dlq_id for row in rows]
        return int(await self._link.ask("XDEL", self._keys.dlq, *ids)) if ids else 0

    async def put_back(self, rows: Sequence[Exported], *, dry_run: bool = False) -> int:
        """Rows that were exported; answers how many of them were missing here."""
        if not rows:
            return 0
        lives_s = 0 if dry_run else REMEMBER_S
        keys = [(self._keys.dlq, self._keys.idmp("dlq", row.mark)) for row in rows]
        args: list[list[Arg]] = [[lives_s, row.dlq_id, *row.fields] for row in rows]
        return sum(await self._link.run_each("rebury", keys, args))


def revive(row: DeadRow) -> Revival:
    """The job in a row, with fresh attempts; WireError where there is none to be read."""
    return wire.revive(row.entry.dlq_id, row.fields)
