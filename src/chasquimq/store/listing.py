"""A drawer to look into: the jobs of a queue as lists, by where they are. It changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from chasquimq.store import sighting
from chasquimq.store.find import held_by, last_delivered
from chasquimq.store.link import Link
from chasquimq.store.sighting import Sighting, State
from chasquimq.store.walk import FIRST_PAGE, LAST, Progress, Walk, ask_all, next_count
from chasquimq.wire import Keys
from chasquimq.wire.fault import as_error


class Listed(NamedTuple):
    jobs: list[Sighting]
    rows: int  # that were looked at
    more: bool  # there may be more of them


class Listing:
    def __init__(
        self,
        keys: Keys,
        link: Link,
        group: str = "default",
        *,
        scan: int = 100_000,
        progress: Progress = lambda rows: None,
    ) -> None:
        self._keys = keys
        self._link = link
        self._group = group
        self._scan = scan
        self._progress = progress
        self._walk = Walk(link, progress)

    async def some(self, state: State, limit: int, name: str | None = None) -> Listed:
        """The first jobs of a state, those that come next first; `name`: only such."""
        walk = {
            "waiting": self._waiting,
            "running": self._running,
            "delayed": self._delayed,
            "dead": self._dead,
        }[state]
        found: list[Sighting] = []
        rows = 0
        # One more than wanted tells whether there is more.
        async for page in walk(limit + 1 if name is None else self._scan):
            rows += len(page)
            found += [one for one in page if name is None or one.name == name]
            if len(found) > limit:
                break
        more = len(found) > limit or (name is not None and rows >= self._scan)
        return Listed(found[:limit], rows, more)

    async def _waiting(self, most: int) -> AsyncIterator[list[Sighting]]:
        last = (await last_delivered(self._link, self._keys.stream, self._group)).decode()
        async for page in self._walk.entries(self._keys.stream, most, start=f"({last}"):
            yield [sighting.in_stream(row) for row in page]

    async def _running(self, most: int) -> AsyncIterator[list[Sighting]]:
        key, start, count = self._keys.stream, "-", FIRST_PAGE
        while most > 0 and start != f"({LAST}":
            count = min(count, most)
            [held] = await self._link.ask_each(("XPENDING", key, self._group, start, "+", count))
            if isinstance(held, Exception):
                if str(held).startswith("NOGROUP"):
                    return
                raise as_error(held, "XPENDING")
            if not held:
                return
            bodies = await ask_all(self._link, [("XRANGE", key, row[0], row[0]) for row in held])
            page = []
            for row, entries in zip(held, bodies, strict=True):
                entry = entries[0] if entries else (row[0], None)
                page.append(held_by(sighting.in_stream(entry), row))
            self._progress(len(page))
            yield page
            if len(held) < count:
                return
            start = f"({held[-1][0].decode()}"
            most -= count
            count = next_count(sum(len(one.envelope) for one in page), count)

    async def _delayed(self, most: int) -> AsyncIterator[list[Sighting]]:
        async for page in self._walk.members(self._keys.delayed, most):
            yield [sighting.in_delayed(member, score) for member, score in page]

    async def _dead(self, most: int) -> AsyncIterator[list[Sighting]]:
        async for page in self._walk.entries(self._keys.dlq, most):
            yield [sighting.in_dlq(row) for row in page]
