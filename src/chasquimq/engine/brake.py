"""Start nothing while the queue is paused.

1. every read asks for the pause right behind it, so nothing that was read after a pause is
   started: it is given back. Claims ask inside their script, and take nothing;
2. beside that, when a pause is told, and on a timer: what was read ahead is given back, a read that
   blocks is ended before it gets what others add, and the end of the pause is noticed. A worker
   that has nothing to give back looks rarely: it would be told, and its reads ask as well.

What runs goes on, and is settled as ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from chasquimq.engine.holdings import Holdings
from chasquimq.errors import StoreError
from chasquimq.flow.pause import pause
from chasquimq.store import Hold, Row

log = logging.getLogger("chasquimq.worker")

EVERY_S = 0.5  # so late, at the most, are a pause and its end noticed where there is work
IDLE_S = 5.0

GiveBack = Callable[[list[Row]], Awaitable[bool]]
Unblock = Callable[[], Awaitable[object]]


class Brake:
    def __init__(
        self, hold: Hold, holdings: Holdings, give_back: GiveBack, unblock: Unblock
    ) -> None:
        self.paused = False
        self.looked_at: float | None = None
        self._hold = hold
        self._holdings = holdings
        self._give_back = give_back
        self._unblock = unblock
        self._aside: list[Row] = []  # held, and not to be started here
        self._heard = 0
        self._over = asyncio.Event()
        self._over.set()
        self._asked_at = 0.0  # by us or by a read
        self.nudge = asyncio.Event()  # a pause has begun, or ended, or we are to stop
        self._stopped = False
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        while not self._stopped:
            told = await pause(self.nudge, EVERY_S)
            self.nudge.clear()
            if self._stopped or not (told or self._is_time()):
                continue
            await self.look()
            if self.paused:
                await self._unblock()
                self._aside += self._holdings.take_out()
            await self._return()

    def stop(self) -> None:
        self._stopped = True
        self.nudge.set()
        self._over.set()

    def _is_time(self) -> bool:
        if self.paused or self._aside or self._holdings.queue:
            return True
        return self._loop.time() - self._asked_at >= IDLE_S

    async def look(self) -> None:
        before = self._heard
        try:
            paused = await self._hold.look()
        except StoreError as error:
            log.debug("cannot see whether the queue is paused: %s", error)
            return
        self.looked_at = self._asked_at = self._loop.time()
        if self._heard == before:  # else what was heard meanwhile is newer
            self._set(paused)

    def hear(self, paused: bool) -> None:
        """What came with a read, or from a script."""
        self._heard += 1
        self._asked_at = self._loop.time()
        if paused is not self.paused:
            self._set(paused)

    async def over(self, at_most_s: float = EVERY_S) -> None:
        """Wait for the end of the pause, or of us."""
        await pause(self._over, at_most_s)

    async def turn_away(self, rows: list[Row]) -> None:
        """Give back what was read and must not be started, and what was read ahead of it."""
        self._aside += self._holdings.keep(rows)
        self._aside += self._holdings.take_out()
        await self._return()

    def _set(self, paused: bool) -> None:
        if paused is self.paused:
            return
        self.paused = paused
        if paused:
            self._over.clear()
        else:
            self._over.set()
        log.info("the queue is paused" if paused else "the queue goes on")

    async def _return(self) -> None:
        """What cannot be given back now stays held until it can, also beyond the pause."""
        rows, self._aside = self._aside, []
        if rows and not await self._give_back(rows):
            self._aside += rows
