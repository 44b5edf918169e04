"""Take up what dead workers left.

1. on a timer, and only while our own leases are steady, look at what has been pending for a whole
   lease without a sign of life;
2. what such a consumer had only read ahead goes back into the stream: it has not run, and nobody
   is charged. The rest are suspects: one of them may have ended its worker;
3. claim the suspects that may run now (`policy/recovery.py` says which) as far as slots are free,
   and go on when one has ended, or has outlived its crashed run. A suspect that finds no free slot
   after all goes back with its count;
4. what an earlier run under our own, lasting name left is looked at once, before anything is read,
   and claimed without that wait: nobody else runs it.

Nothing is claimed while the queue is paused. Beside this, jobs that were read ahead and cannot be
started soon go back for others to run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from chasquimq import wire
from chasquimq.config import MAX_MS, ReadOptions
from chasquimq.engine.holdings import Holdings
from chasquimq.engine.reader import Reader
from chasquimq.errors import AccessError, QueueFullError, StoreError
from chasquimq.flow.leader import Rounds
from chasquimq.flow.pause import pause
from chasquimq.happening import Announce, Read
from chasquimq.policy.recovery import Pace, Suspect
from chasquimq.store import Abandoned, Hold, Jobs, Row
from chasquimq.store.jobs import FIRST, LAST, place

log = logging.getLogger("chasquimq.worker")

PAGES = 20  # of one look, at most; the next look goes on where they end
AGAIN_S = 0.2
ALL = wire.Upto(LAST, LAST)
GIVEN_BACK_MS = 2_147_483_647  # what a worker gave back with its count looks idle for so long


class Recovery:
    def __init__(
        self,
        jobs: Jobs,
        hold: Hold,
        reader: Reader,
        holdings: Holdings,
        announce: Announce,
        options: ReadOptions,
        max_attempts: int,
        steady: Callable[[], bool],
    ) -> None:
        self._jobs = jobs
        self._hold = hold
        self._reader = reader
        self._holdings = holdings
        self._announce = announce
        self._steady = steady
        self._lease_ms = options.claim_idle_ms
        self._every_s = min(options.claim_every_ms, options.claim_idle_ms) / 1000
        self._pace = Pace(options.claim_idle_ms / 3000, max_attempts)
        self._own: list[Suspect] = []  # which an earlier run under our name left
        self._others: list[Suspect] = []
        self._claimed: dict[bytes, tuple[Row, float]] = {}  # and when that was
        self._after = FIRST
        self._able_since: float | None = None
        self._looked_at = float("-inf")
        self.rounds = Rounds()
        self._stopped = False
        self._loop = asyncio.get_running_loop()

    @property
    def waiting(self) -> int:
        """How many suspects have not been claimed, as of the last look."""
        return len(self._own) + len(self._others)

    def longest_wait_s(self) -> float:
        """For how long the oldest of them has been without a sign of life, as far as we could have
        claimed it meanwhile."""
        if not self._others or self._able_since is None:
            return 0.0
        now = self._loop.time()
        idle_ms = max(one.idle_ms % GIVEN_BACK_MS for one in self._others)
        return min(idle_ms / 1000 + now - self._looked_at, now - self._able_since)

    async def look_at_own(self, until: bytes) -> None:
        """See what an earlier run under our own name left, up to the entry `until`. Before our
        leases write down what this run starts, under the same name."""
        after, consumer = FIRST, self._jobs.consumer
        while True:
            page = await self._jobs.abandoned(0, after, until=until, consumer=consumer)
            # The one that had their jobs in memory is dead.
            await self._jobs.forget([row[0] for row in page.rows if row[3] < 0])
            living = [row for row in page.rows if row[3] >= 0]
            self._own += await self._sort_out(page._replace(rows=living), 0, MAX_MS)
            after = page.after
            if after == FIRST:
                break
        self._reader.left_over = {one.entry_id for one in self._own}
        if self._own:
            # Until our leases write another one: what we start lies behind these.
            await self._jobs.forget_started()

    async def run(self) -> None:
        while not self._stopped:
            self._holdings.nudge.clear()
            self._note_what_ended()
            wait_s = self._every_s
            try:
                await self._share()
                await self._withdraw()
                if self._reader.brake.paused:
                    self._able_since = None
                else:
                    await self._look()
                    await self._claim()
                    wait_s = self._until_next_change()
                self.rounds.went_well()
            except StoreError as error:
                self.rounds.has_failed(error)
                log.warning("cannot take up what dead workers left, trying again: %s", error)
                wait_s = AGAIN_S
            await pause(self._holdings.nudge, wait_s)

    def stop(self) -> None:
        self._stopped = True
        self._holdings.nudge.set()

    # -- looking ---------------------------------------------------------------------------------

    async def _look(self) -> None:
        now = self._loop.time()
        if not self._steady():
            self._able_since, self._others = None, []
            return
        if self._able_since is None:
            self._able_since = now
        if now - self._looked_at < self._every_s:
            return
        not_after_ms = await self._soon_ms()
        for _ in range(PAGES):
            page = await self._jobs.abandoned(self._lease_ms, self._after)
            # What an earlier run under our name left is listed, too: we know of it.
            rows = [row for row in page.rows if row[0] not in self._reader.left_over]
            page = page._replace(rows=rows)
            self._others = await self._sort_out(page, self._lease_ms, not_after_ms)
            self._after = FIRST if self._others else page.after
            if self._after == FIRST:
                break
        self._looked_at = self._loop.time()

    async def _sort_out(self, page: Abandoned, idle_ms: int, not_after_ms: int) -> list[Suspect]:
        """Put back what had only been read ahead; answers the rest."""
        suspects: list[Suspect] = []
        for consumer, pending in groupby(sorted(page.rows, key=itemgetter(1)), itemgetter(1)):
            record = page.records.get(consumer, b"")
            started = wire.unpack_started(record)
            rows = list(pending)
            upto: wire.Upto | None = ALL
            # A consumer that lives may have given back others, and nothing else of it is silent.
            if any(deliveries == 1 and idle < GIVEN_BACK_MS for *_, idle, deliveries in rows):
                upto = await self._started_upto(consumer, record, started)
            if upto is None:
                continue
            ahead: dict[bytes, Suspect] = {}
            for entry_id, _, idle, deliveries in rows:
                ran_ms = started.ran_ms.get(entry_id) if started is not None else None
                ran_s = None if ran_ms is None else ran_ms / 1000
                new = deliveries == 1 and ran_ms is None and idle < GIVEN_BACK_MS
                likely = not (new and _is_behind(entry_id, upto.likely))
                suspect = Suspect(entry_id, consumer, idle, deliveries, ran_s, likely)
                if new and _is_behind(entry_id, upto.possible):
                    ahead[entry_id] = suspect
                else:
                    suspects.append(suspect)
            back = await self._requeue(list(ahead), consumer, idle_ms, not_after_ms)
            suspects += [ahead[one] for one in ahead.keys() - back]
        return sorted(suspects, key=lambda one: place(one.entry_id))

    async def _started_upto(
        self, consumer: bytes, record: bytes, started: wire.Started | None
    ) -> wire.Upto | None:
        """The last entries that a silent consumer may have started: `ALL` where that is not known,
        None if it lives after all, or somebody else was quicker."""
        if started is None:
            return ALL
        if started.upto is not None:
            return started.upto
        try:
            return await self._jobs.started_upto(consumer, record, started)
        except (AccessError, QueueFullError) as error:
            log.debug("all that a dead worker held counts as started: %s", error)
            return ALL

    async def _requeue(
        self, ids: list[bytes], consumer: bytes, idle_ms: int, not_after_ms: int
    ) -> set[bytes]:
        """Answers what is no suspect: what was put back, and what waits for memory to be."""
        if not ids:
            return set()
        try:
            back = await self._jobs.requeue(ids, consumer, idle_ms, not_after_ms)
        except QueueFullError as error:
            log.warning("cannot put back %d jobs of a silent worker yet: %s", len(ids), error)
            return set(ids)
        log.info("put back %d jobs that a silent worker had only read ahead", len(back))
        return set(back)

    # -- claiming --------------------------------------------------------------------------------

    async def _claim(self) -> None:
        reader, holdings = self._reader, self._holdings
        while not self._stopped and not holdings.closed:
            async with reader.turn:
                waiting = [*self._own, *self._others]
                places = min(holdings.places(), reader.left())
                self._pace.postponed(holdings.queued_suspects(), self._loop.time())
                chosen = self._pace.choose(waiting, self._loop.time(), places)
                if not chosen:
                    return
                rows = await self._take([one for one in chosen if one in self._own], None)
                if self._steady():
                    others = [one for one in chosen if one in self._others]
                    rows += await self._take(others, self._lease_ms)
                elif not rows:
                    return
                reader.taken += len(rows)
            if not rows and await self._is_paused():
                return
            self._start(chosen, rows)

    async def _take(self, suspects: Sequence[Suspect], idle_ms: int | None) -> list[Row]:
        return await self._take_ids([one.entry_id for one in suspects], idle_ms)

    async def _take_ids(self, ids: Sequence[bytes], idle_ms: int | None) -> list[Row]:
        if not ids:
            return []
        return await self._jobs.claim(ids, idle_ms, await self._soon_ms(), self._hold.keys)

    async def _soon_ms(self) -> int:
        # A request that is longer on its way, to a server that is frozen, would find there what
        # living workers could not renew. So it carries a time after which it takes nothing.
        return await self._jobs.clock_ms() + self._lease_ms // 3

    async def take_up(self, ids: Sequence[bytes]) -> bool:
        """Run again what we had to stop, with these runs counted; what others have taken meanwhile
        is theirs. False while the queue is paused."""
        rows = await self._take_ids(ids, None)
        if not rows and await self._is_paused():
            return False
        # In one go, so that a renewal sees them in between neither held nor lost.
        self._holdings.release(ids)
        self._reader.left_over.difference_update(ids)
        self._holdings.take_suspects(rows)
        if rows:
            self._announce(Read(len(rows), len(rows)))
        return True

    async def _is_paused(self) -> bool:
        paused = await self._hold.look()
        self._reader.brake.hear(paused)
        return paused

    def _start(self, chosen: Iterable[Suspect], rows: Iterable[Row]) -> None:
        """Queue what was claimed. What was not, others have taken, or it is gone."""
        known = {one.entry_id: one for one in chosen}
        self._own = [one for one in self._own if one.entry_id not in known]
        self._others = [one for one in self._others if one.entry_id not in known]
        self._reader.left_over.difference_update(known)
        now = self._loop.time()
        for row in self._holdings.take_suspects(rows):
            self._claimed[row[0]] = row, now
            self._pace.started(known[row[0]], now)
            self._announce(Read(1, 1))

    def _note_what_ended(self) -> None:
        for entry_id in self._claimed.keys() - (self._holdings.ids - self._holdings.aside):
            del self._claimed[entry_id]
            self._pace.ended(entry_id)

    def _until_next_change(self) -> float:
        now = self._loop.time()
        # What we left ourselves nobody else takes up: it waits for a free slot only.
        wait_s = min(self._every_s, AGAIN_S) if self._own else self._every_s
        change_at = self._pace.next_change(now) if self.waiting else None
        return wait_s if change_at is None else min(change_at - now + 0.001, wait_s)

    # -- giving back -----------------------------------------------------------------------------

    async def _withdraw(self) -> None:
        """Give back suspects that found no free slot, with their counts, for others to claim."""
        overdue = self._loop.time() - self._every_s
        for entry_id, (row, since) in list(self._claimed.items()):
            if since > overdue or not self._holdings.withdraw(row):
                continue
            if await self._reader.give_back([row]):
                del self._claimed[entry_id]
                self._pace.withdrawn(entry_id)
                self._looked_at = float("-inf")  # it waits again, and others may wait for it
            else:
                self._holdings.put_back([row])

    async def _share(self) -> None:
        """Give back what was read ahead, if nothing is started any more: all slots are busy with
        long jobs."""
        rows = self._holdings.surrender()
        if rows and not await self._reader.give_back(rows):
            self._holdings.put_back(rows)


def _is_behind(entry_id: bytes, last: bytes) -> bool:
    return last != LAST and place(entry_id) > place(last)
