"""Stop what runs when our leases are overdue while Redis goes on for others.

1. once a renewal is late, ask on our other connections whether Redis still takes writes there; if
   it does, others may soon take over what we run, and would run it at the same time;
2. so before that can be, cancel what runs: its outcome is void and its run counts, as with leases
   that were lost. What was not started goes back, and nothing more is read;
3. when a renewal succeeds again go on, and run again what is still ours.

Where nothing answers us we cannot know, and what runs goes on: Redis is away for others, too, as
far as we can see. After such a silence our renewals get more time: others, who heard nothing
either, take over nothing before their own leases have been steady for a whole one.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from chasquimq.errors import StoreError
from chasquimq.flow.pause import pause
from chasquimq.happening import LeasesLost
from chasquimq.store.pipe import Pipe
from chasquimq.wire.fault import Fault, classify

if TYPE_CHECKING:
    from chasquimq.engine.consumer import Consumer

log = logging.getLogger("chasquimq.worker")

# All of a lease.
LATE = 0.4  # a renewal is due each third
OVER = 0.8  # others may claim what was too young for the last renewal at nine tenths
LOOK = 0.05
STEADY = 0.3  # Redis has answered for so long
AFTER_SILENCE = 0.6
SILENT = 0.2
SILENT_S = 0.1  # at the least
SOON_S = 0.005


class Overdue:
    def __init__(self, consumer: Consumer) -> None:
        self.why: str | None = None  # what ran was stopped
        self._consumer = consumer
        self._lease_s = consumer.options.read.claim_idle_ms / 1000
        self._cut: set[bytes] = set()  # entries whose runs were stopped, to be run again
        self._watching = False
        self._since = self._heard = 0.0  # answers have come since then, and last
        self._needed = STEADY
        self._alone_since: float | None = None  # the reader's is our only connection
        self._asked: set[Pipe] = set()
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()

    async def run(self) -> None:
        lease = self._consumer.lease
        while not self._end.is_set():
            late = lease.gap() / self._lease_s
            wait = LOOK
            if late >= LATE:
                await self._look(late)
            elif self.why is not None or self._cut:
                await self._go_on()
            else:
                self._watching = False
                wait = max(LATE - late, LOOK)
            await pause(self._end, max(wait * self._lease_s, SOON_S))

    def stop(self) -> None:
        self._end.set()

    # -- do others get answers? ------------------------------------------------------------------

    async def _look(self, late: float) -> None:
        now = self._loop.time()
        if not self._watching:
            self._watching = True
            self._since = self._heard = now
            # One who looks that late was stopped, or kept from looking.
            self._needed = STEADY if late < LATE + SILENT else AFTER_SILENCE
        self._ask()
        if self.why is None and late >= OVER and self._answers(now):
            await self._stop_all()

    def _ask(self) -> None:
        consumer, asked = self._consumer, False
        for name in ("requests", "settler"):
            link = consumer.links[name]
            pipe = None if link is None else link.pipe
            if pipe is None:
                continue
            asked = True
            if pipe not in self._asked and not pipe.full:
                self._asked.add(pipe)
                heard = partial(self._answered, pipe)
                pipe.send(consumer.knock, 1, heard, heard)
        # A question behind a blocked read would have to wait.
        alone = not asked and consumer.reader.link.pipe is not None
        self._alone_since = (self._alone_since or self._loop.time()) if alone else None

    def _answered(self, pipe: Pipe, replies: list[Any]) -> None:
        self._asked.discard(pipe)
        if not replies or not _serves(replies[0]):
            return
        now = self._loop.time()
        if now - self._heard > self._silent_s():
            self._since, self._needed = now, AFTER_SILENCE
        self._heard = now

    def _answers(self, now: float) -> bool:
        """Whether Redis has gone on for others, as far as we can see."""
        if self._alone_since is not None:
            read_at = self._consumer.reader.last_read_at or 0.0
            long = now - self._alone_since >= AFTER_SILENCE * self._lease_s
            return long and read_at >= self._alone_since
        steady = now - self._since >= self._needed * self._lease_s
        return steady and now - self._heard <= self._silent_s()

    def _silent_s(self) -> float:
        return max(SILENT * self._lease_s, SILENT_S)

    # -- stop, and go on -------------------------------------------------------------------------

    async def _stop_all(self) -> None:
        consumer = self._consumer
        holdings, pool, reader = consumer.holdings, consumer.pool, consumer.reader
        cut = pool.cancel({row[0] for row in pool.running})
        self._cut |= cut
        reader.left_over |= cut
        holdings.let_rest(True)
        trouble = consumer.lease.trouble
        self.why = (
            f"leases were not renewed for {consumer.lease.gap():.1f} s{trouble and f' ({trouble})'}"
            ", though Redis answers other connections"
        )
        log.error(
            "%s: other workers may take over our jobs, so %d running handlers are cancelled, and "
            "nothing is read until a renewal succeeds",
            *(self.why, len(cut)),
        )
        if cut:
            consumer.leases_lost += len(cut)
            consumer.announce(LeasesLost(len(cut)))
        await reader.brake.turn_away([])
        await reader.unblock()

    async def _go_on(self) -> None:
        consumer, self._watching = self._consumer, False
        if self.why is not None:
            log.warning("leases are renewed again: reading goes on")
        ended = self._cut - {row[0] for row in consumer.pool.running}
        if ended and not consumer.holdings.closed and not consumer.reader.brake.paused:
            try:
                if await consumer.recovery.take_up(sorted(ended)):
                    self._cut -= ended
            except StoreError as error:
                log.warning("cannot take up what was stopped, trying again: %s", error)
        self.why = None
        consumer.holdings.let_rest(False)


def _serves(reply: Any) -> bool:
    """Whether who says so lets others write. A refusal that concerns our user does not tell."""
    return not isinstance(reply, Exception) or classify(reply) is Fault.ACCESS
