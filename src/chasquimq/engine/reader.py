"""Get deliveries from Redis, as many as there is room for.

1. `read`: wait for room, block for new entries, queue what came. The block never claims. It
   may end by itself: on an empty queue, or after so many jobs;
2. `recover`: on a timer, and only while our own leases are steady, claim what dead consumers
   left. Such an entry is a suspect: it may have killed its worker. Suspects are taken one at a
   time, each run before anything new, and the next is not claimed before it is settled, so a
   job that kills its worker drags no neighbour along twice. On the same timer, what was read
   ahead and cannot be started is given back;
3. `take_back`: what an earlier run under our own, lasting name left, without that wait;
4. a lost stream or group is created again; after a lost reply, what it had brought is listed
   and taken up, because nobody else will.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from chasquimq.config import ReadOptions, StreamOptions, UntilOptions
from chasquimq.engine.holdings import Holdings
from chasquimq.errors import QueueFullError, StoreError, StoreUnavailableError
from chasquimq.flow.pause import pause
from chasquimq.happening import Announce, Drained, GivenBack, Read
from chasquimq.store import Jobs, Row, Store
from chasquimq.store.fault import Fault, as_error, classify
from chasquimq.store.pipe import Pipe
from chasquimq.store.resp import pack

log = logging.getLogger(__name__)

AGAIN_S = 0.2
BURST_BLOCK_MS = 50
LOOK_S = 0.01


class Reader:
    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        holdings: Holdings,
        announce: Announce,
        options: ReadOptions,
        stream: StreamOptions,
        until: UntilOptions,
    ) -> None:
        self.taken = 0  # deliveries, without those given back unstarted
        self.given_back = 0
        self.last_read_at: float | None = None
        self.groups_recreated = 0
        self._jobs = jobs
        self._holdings = holdings
        self._announce = announce
        self._options = options
        self._stream = stream
        self._until = until
        self._block_ms = min(options.block_ms, BURST_BLOCK_MS) if until.empty else options.block_ms
        self._stop = asyncio.Event()
        self._client_id = 0
        self._blocked = False
        self._taking_back = False
        self._loop = asyncio.get_running_loop()
        # Its own connection: an ack behind a blocked read would wait out the block.
        self.link = store.new_link(extra_reply_ms=options.block_ms, prepare=self._greet)

    async def _greet(self, pipe: Pipe) -> None:
        """Learn the connection's id, by which a blocked read can be ended from another one."""
        reply = (await pipe.ask(pack("CLIENT", "ID")))[0]
        self._client_id = reply if isinstance(reply, int) else 0

    async def stop(self) -> None:
        """End the blocked read. It answers all the same, so nothing it just got is lost."""
        self._stop.set()
        self._holdings.feed()
        while self._blocked and self._client_id:
            try:
                await self._jobs.unblock(self._client_id)
            except StoreError as error:
                # Not allowed, or Redis is away: the block ends by itself.
                log.info("cannot end the blocked read early: %s", error)
                return
            await asyncio.sleep(0.01)

    # -- new entries -----------------------------------------------------------------------------

    async def read(self, more: Callable[[], Awaitable[bool]]) -> None:
        """Read until told to stop, or until the limits say so; then until nothing is held.
        `more` is asked when a worker that stops on an empty queue has found it empty."""
        had_some = False
        while not self._stop.is_set() and (left := self._left()):
            count = min(await self._holdings.wait_for_room(self._options.batch), left)
            if self._stop.is_set() or not count:
                continue
            try:
                rows = await self._read(count)
            except StoreUnavailableError as error:
                log.warning("reading failed, trying again: %s", error)
                await self._rejoin()
                continue
            self.last_read_at = self._loop.time()
            if rows:
                self._take(rows)
                self._announce(Read(len(rows)))
            elif had_some:
                self._announce(Drained())
            elif self._until.empty and not self._busy() and not await more():
                break
            had_some = bool(rows)
        while self._busy() and not self._stop.is_set():
            await pause(self._stop, LOOK_S)

    def _left(self) -> int:
        """How many more deliveries this worker may take."""
        most = self._until.max_jobs
        return self._options.batch if most is None else max(most - self.taken, 0)

    def _busy(self) -> bool:
        return bool(self._holdings.ids) or self._taking_back

    def _take(self, rows: list[Row]) -> None:
        self._holdings.take(rows)
        self.taken += len(rows)

    async def _read(self, count: int) -> list[Row]:
        pipe = self.link.pipe
        if pipe is None:
            raise StoreUnavailableError("the reading connection is down")
        self._blocked = True
        try:
            reply = (await pipe.ask(self._jobs.read(count, self._block_ms)))[0]
        except ConnectionError as error:
            raise StoreUnavailableError(str(error)) from None
        finally:
            self._blocked = False
        if isinstance(reply, Exception):
            return await self._repair(reply)
        return list(reply[0][1]) if reply else []

    async def _repair(self, reply: Exception) -> list[Row]:
        fault = classify(reply)
        if fault is Fault.REFUSED:
            raise as_error(reply, "reading")
        log.warning("reading failed, trying again: %s", reply)
        if fault is Fault.GROUP:
            try:
                await self._jobs.join(self._stream, again=True)
                self.groups_recreated += 1
                return []
            except (StoreUnavailableError, QueueFullError) as error:
                log.warning("cannot create the group yet: %s", error)
        await pause(self._stop, AGAIN_S)
        return []

    async def _rejoin(self) -> None:
        """Back after a broken connection: take up what a lost reply had brought."""
        while not self._stop.is_set():
            try:
                await self.link.up()
                await self._jobs.join(self._stream, again=True)  # it may have come back empty
                missing = await self._missing()
            except StoreError as error:
                log.warning("cannot look for lost replies yet: %s", error)
                await pause(self._stop, AGAIN_S)
                continue
            if missing:
                log.info("took up %d deliveries whose reply was lost", len(missing))
                self._take(missing)
            return

    async def _missing(self) -> list[Row]:
        """What is pending under our name and has not been held."""
        with self._holdings.watching() as held:
            rows = await self._jobs.adopt(len(held) + self._options.batch)
            return [row for row in rows if row[0] not in held]

    # -- what dead consumers left ----------------------------------------------------------------

    async def take_back(self, until: bytes) -> None:
        """What an earlier run under our own name left, up to the entry `until`: nobody else
        runs it, so it is taken at once. One at a time, for one of them may be what killed it."""
        after, self._taking_back = b"-", True
        try:
            while not self._stop.is_set() and self._left():
                try:
                    row = await self._jobs.take_back(after, until)
                except StoreError as error:
                    log.warning("cannot take back what we left: %s", error)
                    await pause(self._stop, AGAIN_S)
                    continue
                if row is None:
                    return
                after = row[0]
                self.taken += 1
                self._announce(Read(1, 1))
                await self._holdings.take_suspect(row)
        finally:
            self._taking_back = False

    async def recover(self, steady: Callable[[], bool], own_until: bytes | None) -> None:
        if own_until is not None:
            await self.take_back(own_until)
        every_s = min(self._options.claim_every_ms, self._options.claim_idle_ms) / 1000
        while not self._stop.is_set():
            if steady() and await self._claim():
                continue
            await pause(self._stop, every_s)
            await self._share()

    async def _share(self) -> None:
        """Give back what is queued here while all our slots are busy with long jobs."""
        rows = self._holdings.surrender()
        if not rows:
            return
        try:
            await self._jobs.give_back(rows)
        except StoreError as error:
            log.warning("cannot give back %d jobs: %s", len(rows), error)
            self._holdings.queue.extend(rows)
            return
        self._holdings.release([row[0] for row in rows])
        self.taken -= len(rows)
        self.given_back += len(rows)
        self._announce(GivenBack(len(rows)))

    async def _claim(self) -> bool:
        """Claim one suspect and see it through; False when there was none."""
        if self._holdings.closed or not self._left():
            return False
        try:
            rows = await self._jobs.claim(self._options.claim_idle_ms, 1)
        except StoreError as error:
            log.warning("claiming failed, trying again: %s", error)
            return False
        suspect = False
        for row in rows:
            self._announce(Read(1, int(row[3] > 0)))
            if row[3] > 0:
                suspect = True
                self.taken += 1
                await self._holdings.take_suspect(row)
            else:
                self._take([row])  # a claim brings new entries where there are no old
        return suspect
