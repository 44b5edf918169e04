"""Get deliveries from Redis, as many as there is room for.

1. `read`: wait for room, block for new entries, queue what came. The block never claims. It
   may end by itself: on an empty queue, or after so many jobs;
2. a lost stream or group is created again; after a lost reply, what it had brought is listed
   and taken up, because nobody else will;
3. while the queue is paused nothing of this happens, and what came is given back: `brake` knows.

What dead workers left is not read but claimed: `recovery.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from chasquimq.config import ReadOptions, StreamOptions, UntilOptions
from chasquimq.engine.brake import Brake
from chasquimq.engine.holdings import Holdings
from chasquimq.errors import QueueFullError, StoreError, StoreUnavailableError
from chasquimq.flow.leader import Rounds
from chasquimq.flow.pause import pause
from chasquimq.happening import Announce, Drained, GivenBack, GroupRecreated, Read
from chasquimq.store import Jobs, Row, Store
from chasquimq.store.jobs import rows_of
from chasquimq.store.pipe import SHAPE_ERRORS, Pipe
from chasquimq.store.resp import pack
from chasquimq.wire.fault import Fault, as_error, classify

log = logging.getLogger("chasquimq.worker")

AGAIN_S = 0.2
EMPTY_BLOCK_MS = 50  # an empty queue is noticed after so long
TURN_BLOCK_MS = 500  # a read that shares its turns with claims does not keep them from it for long
LOOK_S = 0.01
READ_BYTES = 8_000_000  # about as much as one read brings, once the jobs' size is known


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
        self.asking_since: float | None = None  # for new entries, and no answer has come
        self.groups_recreated = 0
        self.rounds = Rounds()
        self.brake = Brake(store.hold, holdings, self.give_back, self.unblock)
        self._hold = store.hold
        self._jobs = jobs
        self._holdings = holdings
        self._announce = announce
        self._options = options
        self._stream = stream
        self._until = until
        self._block_ms = _block_ms(options, until)
        self._row_bytes = 1.0  # of an entry, as lately read
        # A worker that takes only so many jobs asks for them in one way at a time: what a read
        # may bring and a claim may bring could together be too many.
        self.turn: AbstractAsyncContextManager[object] = (
            nullcontext() if until.max_jobs is None else asyncio.Lock()
        )
        self.left_over: set[bytes] = set()  # by an earlier run under our name, and not claimed yet
        self._stop = asyncio.Event()
        self._client_id = 0
        self._blocked = False
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
        self.brake.stop()
        self._holdings.feed()
        while self._blocked:
            if not await self.unblock():
                return
            await asyncio.sleep(0.01)

    async def unblock(self) -> bool:
        """Have the blocked read end, if there is one; says whether that could be done."""
        if not self._blocked or not self._client_id:
            return False
        try:
            await self._jobs.unblock(self._client_id)
        except StoreError as error:
            # Not allowed, or Redis is away: the block ends by itself.
            log.info("cannot end the blocked read early: %s", error)
            return False
        return True

    # -- new entries -----------------------------------------------------------------------------

    async def read(self, more: Callable[[], Awaitable[bool]]) -> None:
        """Read until told to stop, or until the limits say so; then until nothing is held.
        `more` is asked when a worker that stops on an empty queue has found it empty."""
        had_some = False
        while not self._stop.is_set() and (self.left() or self._busy()):
            if not self.left():
                await pause(self._stop, LOOK_S)  # what is held may yet be given back
                continue
            if self.brake.paused:
                if not await self._wait_out():
                    return
                continue
            room = await self._holdings.wait_for_room(self._options.batch)
            if self._stop.is_set() or self.brake.paused or not room:
                continue
            self.asking_since = self.asking_since or self._loop.time()
            try:
                async with self.turn:
                    rows = await self._read(min(room, self.left()))
                    kept = await self._take(rows)
            except StoreUnavailableError as error:
                log.warning("reading failed, trying again: %s", error)
                await self._rejoin()
                self.asking_since = None
                continue
            if rows:
                self._announce(Read(len(rows)))
            elif not kept:
                continue
            elif had_some:
                self._announce(Drained())
            elif self._until.empty and not self._busy() and not await more():
                break
            had_some = bool(rows)
        while self._busy() and not self._stop.is_set():
            await pause(self._stop, LOOK_S)

    def left(self) -> int:
        """How many more deliveries this worker may take."""
        most = self._until.max_jobs
        return self._options.batch if most is None else max(most - self.taken, 0)

    def _busy(self) -> bool:
        held = len(self._holdings.ids) > len(self._holdings.aside)
        return held or bool(self.left_over and self.left())

    async def _take(self, rows: list[Row]) -> bool:
        """Queue what was read. Where nothing may be started give it back, and answer False."""
        self.taken += len(rows)
        if self.brake.paused or self._holdings.overdue:
            await self.brake.turn_away(rows)
            return False
        if rows:
            self._holdings.take(rows)
        return True

    async def _wait_out(self) -> bool:
        """Wait while the queue is paused. A worker that stops on an empty queue does not wait for
        others to resume it: False, once what it runs has ended."""
        if not self._until.empty:
            await self.brake.over()
        elif self._holdings.ids:
            await pause(self._stop, LOOK_S)
        else:
            log.warning("the queue is paused: this burst ends, and leaves what waits there")
            return False
        self.last_read_at = self.brake.looked_at or self.last_read_at
        return True

    async def _read(self, count: int) -> list[Row]:
        pipe = self.link.pipe
        if not count:
            self.asking_since = None
            return []  # a claim brought the last one while we waited for our turn
        if pipe is None:
            raise StoreUnavailableError("the reading connection is down")
        self._blocked = True
        try:
            # Answered right behind the read, whenever that is: what came after a pause is known.
            count = max(1, min(count, int(READ_BYTES / self._row_bytes)))
            data = self._jobs.read(count, self._block_ms) + self._hold.question
            before = pipe.received
            reply, paused = await pipe.ask(data, 2)
        except ConnectionError as error:
            raise StoreUnavailableError(str(error)) from None
        finally:
            self._blocked = False
        if isinstance(reply, Exception):
            return await self._repair(reply)
        try:
            is_paused = self._hold.heard(paused)
            rows = rows_of(reply[0][1]) if reply is not None else []
        except SHAPE_ERRORS as error:
            raise self.link.mangled(error) from error
        self.last_read_at, self.asking_since = self._loop.time(), None
        self.rounds.went_well()
        self.brake.hear(is_paused)
        if rows:
            # Small ones in between do not make us forget at once how large others are.
            size = (pipe.received - before) / len(rows)
            self._row_bytes = max(size, self._row_bytes / 2)
        return rows

    async def _repair(self, reply: Exception) -> list[Row]:
        fault = classify(reply)
        if fault in (Fault.REFUSED, Fault.DIALECT):
            raise as_error(reply, "reading")
        log.warning("reading failed, trying again: %s", reply)
        self.rounds.has_failed(as_error(reply, "reading"))
        if fault is Fault.GROUP:
            try:
                await self._jobs.join(self._stream, again=True)
                self.groups_recreated += 1
                self._announce(GroupRecreated())
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
                # It may have been read in a pause, and who knows is lost with the reply.
                self.brake.hear(await self._hold.look())
            except StoreError as error:
                log.warning("cannot look for lost replies yet: %s", error)
                await pause(self._stop, AGAIN_S)
                continue
            if missing:
                log.info("took up %d deliveries whose reply was lost", len(missing))
                await self._take(missing)
            return

    async def _missing(self) -> list[Row]:
        """What is pending under our name and has not been held. What an earlier run left is no
        lost reply: it is taken back one by one."""
        with self._holdings.watching() as held:
            rows = await self._jobs.adopt(len(held) + self._options.batch)
            return [row for row in rows if row[0] not in held and row[0] not in self.left_over]

    async def give_back(self, rows: list[Row]) -> bool:
        """Give back; False if that cannot be done now, and they are still held."""
        try:
            await self._jobs.give_back(rows)
        except StoreError as error:
            log.warning("cannot give back %d jobs: %s", len(rows), error)
            return False
        self._holdings.release([row[0] for row in rows])
        self.taken -= len(rows)
        self.given_back += len(rows)
        self._announce(GivenBack(len(rows)))
        return True


def _block_ms(options: ReadOptions, until: UntilOptions) -> int:
    if until.empty:
        return min(options.block_ms, EMPTY_BLOCK_MS)
    return options.block_ms if until.max_jobs is None else min(options.block_ms, TURN_BLOCK_MS)
