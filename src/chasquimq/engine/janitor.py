"""Sweep up behind dead consumers, on one process at a time: the one whose promoter leads.

1. one script call looks at a page of long pending entries and at the group's names, removes
   what nobody can use any more, and says where to go on;
2. again at once while there is more, else after the interval, from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from chasquimq.config import JanitorOptions
from chasquimq.flow.leader import lead
from chasquimq.happening import Announce, Swept
from chasquimq.store import Jobs
from chasquimq.store.jobs import FIRST

log = logging.getLogger("chasquimq.worker")


class Janitor:
    def __init__(
        self,
        jobs: Jobs,
        announce: Announce,
        options: JanitorOptions,
        lease_ms: int,
        leads: Callable[[], bool],
    ) -> None:
        self._jobs = jobs
        self._announce = announce
        self._leads = leads
        self._every_s = options.every_ms / 1000
        ghost_idle_ms, consumer_idle_ms = options.ghost_idle_ms, options.consumer_idle_ms
        self._ghost_idle_ms = long_ms(lease_ms) if ghost_idle_ms is None else ghost_idle_ms
        self._consumer_idle_ms = long_ms(lease_ms) if consumer_idle_ms is None else consumer_idle_ms
        self._after = FIRST
        self._nudge = asyncio.Event()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        await lead(self.tick, self._every_s, self._nudge, self._stop, log)

    def stop(self) -> None:
        self._stop.set()
        self._nudge.set()

    async def tick(self) -> float:
        """Sweep a page, if we lead; answers how many seconds to wait."""
        if not self._leads():
            self._after = FIRST
            return self._every_s
        done = await self._jobs.sweep(self._ghost_idle_ms, self._consumer_idle_ms, self._after)
        self._after = done.after
        if done.ghosts or done.consumers:
            what = "swept %d pending entries without a body, %d names of silent consumers"
            log.info(what, done.ghosts, done.consumers)
            self._announce(Swept(done.ghosts, done.consumers))
        return 0.0 if done.more else self._every_s


def long_ms(lease_ms: int) -> int:
    """A silence after which nobody is expected back. Whoever was cut off may come back, and to
    leave everything lying for a while costs little."""
    return max(3_600_000, 10 * lease_ms)
