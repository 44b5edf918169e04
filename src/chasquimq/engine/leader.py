"""What one process at a time does for a queue: promote delayed jobs, fire specs.

1. one script call acquires or renews the lock, and says whether it is ours;
2. sleep until the next one is due, but not for long (other programs send no wake-up);
3. a wake-up ends the sleep: something earlier was put in front;
4. who leads is announced when it changes. Without an answer we count as the leader until the
   lock may have expired, and not beyond.
"""

from __future__ import annotations

import asyncio
import logging

from chasquimq.engine.ear import Ear
from chasquimq.errors import StoreError
from chasquimq.flow.leader import Rounds, lead
from chasquimq.happening import Announce, LockTurned
from chasquimq.store import Store

log = logging.getLogger("chasquimq.schedule")

GOODBYE_S = 1.0


class Leader:
    role: str
    word: bytes = b""  # what wakes it

    def __init__(
        self,
        store: Store,
        holder: str,
        announce: Announce,
        interval_ms: int,
        lock_ttl_s: int,
        ear: Ear | None = None,
    ) -> None:
        self.leads = False
        self.rounds = Rounds()
        self._store = store
        self._holder = holder
        self._announce = announce
        self._interval_s = self._most_s = interval_ms / 1000  # the most: of one sleep
        self._lock_ttl_s = lock_ttl_s
        self._nudge = asyncio.Event()
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._ours_until = 0.0
        self._ear = ear or Ear(store)
        self._own_ear = ear is None
        self._ear.wake(self._nudge, self.word)

    async def run(self) -> None:
        if self._own_ear:
            await self._ear.open()
        try:
            await lead(self.tick, self._most_s, self._nudge, self._stop, log, self.rounds)
        finally:
            self._turn(False)  # before the release: two leaders at once would be a false alarm
            if self._own_ear:
                await self._ear.close()
            await self._goodbye()

    def stop(self) -> None:
        self._stop.set()
        self._nudge.set()

    async def tick(self) -> float:
        """Do once what is due, if we lead; answers how many seconds to wait."""
        asked_at = self._loop.time()
        try:
            wait_s = await self._act()
        except StoreError:
            if self._loop.time() >= self._ours_until:
                self._turn(False)
            raise
        self._turn(wait_s is not None)
        if wait_s is None:
            return self._interval_s
        self._ours_until = asked_at + self._lock_ttl_s
        return wait_s

    async def _act(self) -> float | None:
        """Seconds until the next one is due, None: another leads."""
        raise NotImplementedError

    async def _release(self) -> None:
        raise NotImplementedError

    async def _goodbye(self) -> None:
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._release()
        except (StoreError, TimeoutError) as error:
            log.info("the %s's lock was left to expire: %s", self.role, error)

    def _turn(self, leads: bool) -> None:
        if leads != self.leads:
            self.leads = leads
            self._announce(LockTurned(self.role, leads))
