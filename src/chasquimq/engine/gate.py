"""Is there room for more jobs? By the length that Redis last told, and what went out since."""

from __future__ import annotations

import asyncio
from typing import Protocol

from chasquimq.config import ProducerOptions
from chasquimq.engine.deadline import Deadline
from chasquimq.errors import QueueFullError, StoreUnavailableError
from chasquimq.happening import Happening, Refused
from chasquimq.policy.admission import fits
from chasquimq.store import Store

PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5


class Sender(Protocol):
    closing: bool

    def tell(self, happening: Happening) -> None: ...


class Gate:
    def __init__(
        self, store: Store, options: ProducerOptions, sender: Sender, deadline: Deadline
    ) -> None:
        self.depth = 0  # the stream's length as Redis last told it
        self.sent = 0  # jobs sent into it since
        self._unanswered = 0  # those of them of which nothing is known yet
        self._store = store
        self._limit = options.max_stream_len
        self._mode = options.on_full
        self._sender = sender
        self._deadline = deadline

    async def open(self) -> None:
        link = self._store.link
        depth = await link.ask("XLEN", self._store.keys.stream)
        if not isinstance(depth, int):
            raise link.mangled(TypeError(f"XLEN was answered with {type(depth).__name__}"))
        self.depth = depth

    def left(self, jobs: int) -> None:
        """So many were sent into the stream; what is delayed takes no room there."""
        self.sent += jobs
        self._unanswered += jobs

    def answered(self, jobs: int, depth: object = None) -> None:
        """An end of that: what became of so many is known, or nobody will say."""
        self._unanswered -= jobs
        if isinstance(depth, int):
            self.depth, self.sent = depth, self._unanswered

    def has_room(self, wanted: int) -> bool:
        return fits(self.depth, self.sent, wanted, self._limit)

    async def admit(self, wanted: int, since: float) -> float:
        """Wait for room, or refuse, as the options say. `since`: when the caller began to wait;
        answers from when on its deadline counts.

        With the usual deadline a caller that asked to wait does so while Redis answers; one that
        was given bounds the wait, too."""
        if self._mode == "trim" or not wanted or self._sender.closing or self.has_room(wanted):
            return since
        pause_s, now = PAUSE_S, asyncio.get_running_loop().time
        while True:
            # Our figure may be old: others drain the queue. Ask before refusing.
            await self._look(since)
            self.sent = self._unanswered
            if self.has_room(wanted):
                return since
            if self._mode == "raise" or wanted > self._limit:
                self._sender.tell(Refused(wanted))
                raise QueueFullError(
                    f"queue {self._store.keys.queue!r} holds {self.depth} jobs of at most "
                    f"{self._limit}; {wanted} more were refused. Add workers, raise "
                    "max_stream_len, or wait with on_full='wait'"
                )
            bounded = self._deadline.for_room
            if bounded and (left_s := since + self._deadline.s - now()) <= pause_s:
                await asyncio.sleep(max(left_s, 0))
                raise self._deadline.no_room(self._store.keys.queue, self.depth, self._limit)
            await asyncio.sleep(pause_s)
            if not bounded:
                since = now()
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _look(self, since: float) -> None:
        try:
            async with asyncio.timeout_at(since + self._deadline.s):
                await self.open()
        except TimeoutError:
            raise self._deadline.unsent() from None
        except StoreUnavailableError as error:
            raise self._deadline.unasked(error) from error
