"""Move delayed jobs to the stream when they are due, on one process at a time.

1. one script call acquires or renews the lock and moves what is due;
2. sleep until the next job is due, at most the poll interval (other programs send no wake-up);
3. a message on the wake channel ends the sleep: something earlier was put in front;
4. who leads is announced when it changes. Without an answer we count as the leader until the
   lock may have expired, and not beyond.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from chasquimq.config import PromoteOptions
from chasquimq.errors import StoreError
from chasquimq.flow.leader import lead
from chasquimq.happening import Announce, Buried, LockTurned, Promoted, Ticked
from chasquimq.job import Reason
from chasquimq.store import Store
from chasquimq.store.delayed import Promotion
from chasquimq.store.pipe import Pipe
from chasquimq.store.resp import pack

log = logging.getLogger(__name__)

GOODBYE_S = 1.0


class Promoter:
    def __init__(
        self, store: Store, holder: str, announce: Announce, options: PromoteOptions
    ) -> None:
        self.leads = False
        self.promoted = 0
        self._store = store
        self._holder = holder
        self._announce = announce
        self._options = options
        self._nudge = asyncio.Event()
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._ours_until = 0.0

    async def run(self) -> None:
        ear = self._store.new_link(prepare=self._subscribe)
        ear.on_up = self._nudge.set
        try:
            await ear.open()
        except StoreError as error:
            log.warning("no wake-ups (%s); delayed jobs may start a poll interval late", error)
        try:
            await lead(self.tick, self._options.poll_ms / 1000, self._nudge, self._stop)
        finally:
            self._turn(False)  # before the release: two leaders at once would be a false alarm
            await ear.close()
            await self._release()

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._store.delayed.release(self._holder)
        except (StoreError, TimeoutError) as error:
            log.info("the promoter's lock was left to expire: %s", error)

    def stop(self) -> None:
        self._stop.set()
        self._nudge.set()

    async def tick(self) -> float:
        """Promote once; answers how many seconds to wait."""
        options = self._options
        asked_at = self._loop.time()
        try:
            done = await self._promote()
        except StoreError:
            if self._loop.time() >= self._ours_until:
                self._turn(False)
            raise
        self._turn(done.leads)
        if not done.leads:
            return options.poll_ms / 1000
        self._ours_until = asked_at + options.lock_ttl_s
        self._report(done)
        return (options.poll_ms if done.wait_ms is None else done.wait_ms) / 1000

    async def _promote(self) -> Promotion:
        options = self._options
        return await self._store.delayed.promote(self._holder, options.lock_ttl_s, options.batch)

    def _report(self, done: Promotion) -> None:
        if done.unreadable:
            log.error("%d delayed members were unreadable; they are in the DLQ", done.unreadable)
        for _ in range(done.unreadable):
            self._announce(Buried("", "", 0, Reason.MALFORMED))
        self.promoted += len(done.moved)
        for job_id, name in done.moved:
            self._announce(Promoted(job_id, name))
        self._announce(Ticked(len(done.moved), done.depth, done.lag_ms))

    def _turn(self, leads: bool) -> None:
        if leads != self.leads:
            self.leads = leads
            self._announce(LockTurned("promoter", leads))

    async def _subscribe(self, pipe: Pipe) -> None:
        reply = (await pipe.ask(pack("SUBSCRIBE", self._store.keys.wake)))[0]
        if isinstance(reply, Exception):
            raise StoreError(f"cannot subscribe to wake-ups: {reply}")
        pipe.on_push = self._woken

    def _woken(self, message: Any) -> None:
        self._nudge.set()
