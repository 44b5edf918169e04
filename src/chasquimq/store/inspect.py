"""A drawer to look into: how much a queue holds, and where. It changes nothing."""

from __future__ import annotations

from chasquimq.job import Counts
from chasquimq.store.link import Link
from chasquimq.wire import Keys


class Inspect:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    async def counts(self, group: str) -> Counts:
        """All of one moment, as the group sees the queue."""
        keys = (self._keys.stream, self._keys.delayed, self._keys.dlq, self._keys.repeat)
        found: list[int] = await self._link.run("counts", keys, (group,))
        waiting, running, delayed, dead, repeatables, oldest_ms = found
        age_ms = None if oldest_ms < 0 else oldest_ms
        return Counts(waiting, running, delayed, dead, repeatables, age_ms)
