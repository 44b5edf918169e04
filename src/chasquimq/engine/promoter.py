"""Move delayed jobs to the stream when they are due, on one process at a time.

One script call acquires or renews the lock and moves what is due.
"""

from __future__ import annotations

import logging

from chasquimq.config import PromoteOptions
from chasquimq.engine.ear import Ear
from chasquimq.engine.leader import Leader
from chasquimq.happening import Announce, Buried, Promoted, Ticked
from chasquimq.job import Reason
from chasquimq.store import Store
from chasquimq.store.delayed import Promotion

log = logging.getLogger("chasquimq.schedule")


class Promoter(Leader):
    role = "promoter"

    def __init__(
        self,
        store: Store,
        holder: str,
        announce: Announce,
        options: PromoteOptions,
        ear: Ear | None = None,
    ) -> None:
        super().__init__(store, holder, announce, options.poll_ms, options.lock_ttl_s, ear)
        self.promoted = 0
        self._batch = options.batch

    async def _act(self) -> float | None:
        done = await self._store.delayed.promote(self._holder, self._lock_ttl_s, self._batch)
        if not done.leads:
            return None
        self._turn(True)
        self._report(done)
        return self._interval_s if done.wait_ms is None else done.wait_ms / 1000

    async def _release(self) -> None:
        await self._store.delayed.release(self._holder)

    def _report(self, done: Promotion) -> None:
        if done.unreadable:
            log.error("%d delayed members were unreadable; they are in the DLQ", done.unreadable)
        for _ in range(done.unreadable):
            self._announce(Buried("", "", 0, Reason.MALFORMED))
        self.promoted += len(done.moved)
        for job_id, name in done.moved:
            self._announce(Promoted(job_id, name))
        self._announce(Ticked(len(done.moved), done.depth, done.lag_ms))
