"""What this worker holds: every delivery from the read to the ack's reply, and a bound on it.

    read --> queue (not started) --> running --> acked, retried or buried --> released
             `------------------------- ids --------------------------------'

The set of ids is updated per batch, never per job. How far to read ahead follows from time: as
many as are started in ten milliseconds, so that fast handlers never wait for Redis and slow
ones do not sit on jobs that another worker could run.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from chasquimq.store import Row

AHEAD_S = 0.010
MAX_AHEAD = 256
UNACKED = 256  # finished, but Redis has not yet answered
MEASURE_S = 0.002
SHARE_S = 0.1  # what is queued and not started after that long is left to other workers


class Holdings:
    def __init__(self, concurrency: int) -> None:
        self.queue: deque[Row] = deque()
        self.ids: set[bytes] = set()
        self.aside: set[bytes] = set()  # of these: have run, and Redis refuses to settle them
        self.closed = False
        self.waking = False  # a worker was woken and has not come yet
        self.resting = 0  # workers that yielded a whole turn; while there are any, wake no more
        self.refused = 0  # deliveries of what we already hold
        self.hungry = False  # the reader waits for room
        self.low = 0  # the queue length at which it is worth a look
        self.refusing = False  # Redis refuses what we write: more jobs could not be settled
        self.overdue = False  # our leases may be over: what we started others could start, too
        self._concurrency = concurrency
        self._ahead = 0  # until it is known how fast the handlers are
        self._idle: deque[asyncio.Future[None]] = deque()
        self._room: asyncio.Future[None] | None = None
        self._taken = 0
        self._started = 0
        self._turned_at = 0
        self._measured_at = 0.0
        self._suspects: set[bytes] = set()
        self._watched: set[bytes] | None = None
        self.nudge = asyncio.Event()  # a suspect has ended, or what is queued is not started
        self._stuck = False
        self._sharing: asyncio.TimerHandle | None = None

    @property
    def blocked(self) -> bool:
        """Nothing more may be read or claimed."""
        return self.refusing or self.overdue

    # -- the reader's side -------------------------------------------------------------------

    def room(self) -> int:
        """How many more deliveries are welcome now."""
        if self.blocked:
            return 0
        wanted = len(self._idle) + self._ahead - len(self.queue)
        return min(wanted, self._concurrency + self._ahead + UNACKED - len(self.ids))

    async def wait_for_room(self, batch: int) -> int:
        """Wait until a read is worth its round trip: half of what we want, or all is started."""
        while not (room := self._worthwhile()) and not self.closed:
            self._room = asyncio.get_running_loop().create_future()
            self.hungry = True
            try:
                await self._room
            finally:
                self.hungry = False
        return min(room, batch)

    def take(self, rows: Iterable[Row]) -> None:
        """Queue deliveries, except those we hold already: they are running here."""
        self._measure()
        new = self.keep(rows)
        self.queue.extend(new)
        self._taken += len(new)
        self.wake()
        if self.queue and self._sharing is None:
            self._watch_the_queue()

    def keep(self, rows: Iterable[Row]) -> list[Row]:
        """Hold deliveries without queueing them; answers them, except those we hold already."""
        rows = list(rows)
        ids = [row[0] for row in rows]
        if not self.ids.isdisjoint(ids):
            rows = [row for row in rows if row[0] not in self.ids]
            self.refused += len(ids) - len(rows)
            ids = [row[0] for row in rows]
        self._hold(ids)
        return rows

    def take_out(self) -> list[Row]:
        """All that is queued and must not be started, suspects too; it stays held."""
        left = list(self.queue)
        self.queue.clear()
        self._taken -= len(left)
        return left

    @contextmanager
    def watching(self) -> Iterator[set[bytes]]:
        """Every id that is held at any time during the block. Who asks Redis what is pending
        must compare with this: an entry may be acked and released while the answer travels."""
        self._watched = set(self.ids)
        try:
            yield self._watched
        finally:
            self._watched = None

    def take_suspects(self, rows: Iterable[Row]) -> list[Row]:
        """Run these next; answers them, without what we hold already. `nudge` tells when one of
        them has ended."""
        if self.closed:
            return []  # claimed while we were stopping: given back with all that is pending
        new = self.keep(rows)
        self._suspects.update([row[0] for row in new])
        before = len(self.queued_suspects())
        self.queue.rotate(-before)
        self.queue.extendleft(reversed(new))
        self.queue.rotate(before)
        self._taken += len(new)
        self.wake()
        return new

    def queued_suspects(self) -> list[bytes]:
        """Those that have not been started, and come before all else."""
        return [row[0] for row in takewhile(_is_suspect, self.queue)]

    def withdraw(self, row: Row) -> bool:
        """Take a suspect out of the queue if it is still there; it stays held."""
        if row not in self.queue:
            return False
        self.queue.remove(row)
        self._taken -= 1
        return True

    def places(self) -> int:
        """How many suspects would start soon: slots that are free, or as many as have become free
        since this was last asked."""
        started, before = self._taken - len(self.queue), self._turned_at
        self._turned_at = started
        if self.blocked:
            return 0
        return max(len(self._idle) - len(self.queue), min(started - before, self._concurrency))

    def drop(self, lost: Iterable[bytes]) -> None:
        """Forget deliveries that another consumer has taken over, started or not."""
        gone = self.ids.intersection(lost)
        if gone:
            self.queue = deque(row for row in self.queue if row[0] not in gone)
            self.release(gone)

    def surrender(self) -> list[Row]:
        """Queued deliveries that others should have, if nothing was started for `SHARE_S`. They are
        still held; suspects stay, their count would not survive."""
        stuck, self._stuck = self._stuck, False
        if not stuck:
            return []
        rows = [row for row in self.queue if len(row) == 2]
        self.queue = deque(row for row in self.queue if len(row) > 2)
        self._taken -= len(rows)  # or they would count as started
        self._ahead = self.low = 0
        return rows

    def put_back(self, rows: Sequence[Row]) -> None:
        """Queue again what was to leave, and could not be given back."""
        self.queue.extend(rows)
        self._taken += len(rows)

    def close(self) -> list[Row]:
        """Start nothing more; answers what was queued and not started, still held."""
        self.closed = True
        left = list(self.queue)
        self.queue.clear()
        self.feed()
        for future in self._idle:
            if not future.done():
                future.set_result(None)
        self._idle.clear()
        if self._sharing is not None:
            self._sharing.cancel()
        return left

    # -- the workers' side -------------------------------------------------------------------

    async def idle(self) -> None:
        """Wait for something to do."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        if self.hungry:
            self.feed()
        try:
            await future
        except asyncio.CancelledError:
            self._left(future)
            raise
        self.waking = False

    def wake(self) -> None:
        """Wake one worker; it wakes the next if there is more. Handlers that never suspend
        are thus run by one worker, without a switch between jobs."""
        if self.waking or self.resting or not self.queue:
            return
        while self._idle:
            future = self._idle.popleft()
            if not future.done():  # else its worker was cancelled a moment ago
                self.waking = True
                future.set_result(None)
                return

    def feed(self) -> bool:
        """Wake the reader if it waits and a read is worth it; says whether it did."""
        room = self._room
        if room is None or room.done() or not (self.closed or self._worthwhile()):
            return False
        room.set_result(None)
        return True

    # -- the settler's side ------------------------------------------------------------------

    def release(self, ids: Iterable[bytes]) -> None:
        self.ids.difference_update(ids)
        if self.aside:
            self.aside &= self.ids
        if self._suspects and not self._suspects <= self.ids:
            self._suspects &= self.ids
            self.nudge.set()
        if self.hungry:
            self.feed()

    def set_aside(self, entry_id: bytes) -> None:
        """It has run and is still held; nothing waits for it any more."""
        self.aside.add(entry_id)
        self.nudge.set()

    def stop_reading(self, refusing: bool) -> None:
        self.refusing = refusing
        if self.hungry:
            self.feed()

    def let_rest(self, overdue: bool) -> None:
        """Start nothing while our leases may be over."""
        self.overdue = overdue
        if self.hungry:
            self.feed()

    def _left(self, future: asyncio.Future[None]) -> None:
        """A worker that waited was cancelled. If it had been woken, the next one is woken."""
        if future in self._idle:
            self._idle.remove(future)
        elif not future.cancelled():
            self.waking = False
            self.wake()

    # -- inside --------------------------------------------------------------------------------

    def _hold(self, ids: list[bytes]) -> None:
        self.ids.update(ids)
        if self._watched is not None:
            self._watched.update(ids)

    def _watch_the_queue(self) -> None:
        """While something is queued, see whether it is started."""
        started = self._taken - len(self.queue)
        loop = asyncio.get_running_loop()
        self._sharing = loop.call_later(SHARE_S, self._see_progress, started)

    def _see_progress(self, started: int) -> None:
        self._sharing = None
        if not self.queue or self.closed:
            return
        if self._taken - len(self.queue) == started:
            self._stuck = True
            self.nudge.set()
        self._watch_the_queue()

    def _worthwhile(self) -> int:
        room = self.room()
        target = len(self._idle) + self._ahead
        worth = room > 0 and (2 * room >= target or not self.queue)
        return room if worth else 0

    def _measure(self) -> None:
        now = time.perf_counter()
        elapsed = now - self._measured_at
        if elapsed < MEASURE_S:
            return
        started = self._taken - len(self.queue)
        if self._measured_at:
            rate = (started - self._started) / elapsed
            self._ahead = min(MAX_AHEAD, int(rate * AHEAD_S))
        self._started, self._measured_at = started, now
        self.low = self._ahead // 2


def _is_suspect(row: Row) -> bool:
    return len(row) > 2
