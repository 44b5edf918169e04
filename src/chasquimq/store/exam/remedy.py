"""What is safe to repair. Each is one script that looks again before it acts, and counts what it
did: the queue may have changed since somebody looked. No job is touched.
"""

from __future__ import annotations

from collections.abc import Sequence

from chasquimq.config import MAX_MS
from chasquimq.store.jobs import FIRST
from chasquimq.store.link import Link
from chasquimq.store.resp import Arg
from chasquimq.store.survey import MANY
from chasquimq.wire import Keys

LOOK_AT = 1_000
NAMES = 500


class Remedy:
    def __init__(self, link: Link, queue: str, group: str) -> None:
        self._link = link
        self._keys = Keys(queue)
        self._group = group

    async def drop_ghosts(self, silent_ms: int) -> int:
        """Pending entries without a body, of consumers that have been silent for so long."""
        removed, after = 0, FIRST
        while True:
            ghosts, _, after = await self._sweep(silent_ms, MAX_MS, after, names=0)
            removed += ghosts
            if after == FIRST:
                return removed

    async def drop_consumers(self, silent_ms: int) -> int:
        """Names with nothing pending that have been silent for longer."""
        removed = 0
        while True:
            _, names, _ = await self._sweep(MAX_MS, silent_ms, FIRST, names=NAMES)
            removed += names
            if names < NAMES:
                return removed

    async def _sweep(
        self, ghost_ms: int, name_ms: int, after: bytes, *, names: int
    ) -> tuple[int, int, bytes]:
        which: tuple[Arg, ...] = (ghost_ms, name_ms, after, LOOK_AT, names)
        args: tuple[Arg, ...] = (self._group, "", *which, self._keys.started)
        ghosts, gone, then = await self._link.run("sweep", (self._keys.stream,), args)
        return int(ghosts), int(gone), bytes(then)

    async def drop_specs(self, spec_keys: Sequence[bytes]) -> int:
        """What is left of specs without a recipe."""
        places = [(self._keys.repeat, self._keys.spec(key)) for key in spec_keys]
        args = [(key,) for key in spec_keys]
        return sum(await self._link.run_each("drop_empty_spec", places, args))

    async def drop_indexes(self, names: Sequence[bytes]) -> int:
        """Side-indexes that lead to no job."""
        front = len(self._keys.didx(""))
        places = [(self._keys.delayed, name) for name in names]
        args = [(name[front:], MANY) for name in names]
        return sum(await self._link.run_each("drop_index", places, args))

    async def drop_lock(self, role: str, holder: str) -> int:
        """A lock that nobody will ever let go of."""
        key = self._keys.promoter_lock if role == "promoter" else self._keys.scheduler_lock
        return int(await self._link.run("drop_lock", (key,), (holder,)))
