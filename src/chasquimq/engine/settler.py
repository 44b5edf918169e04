"""Write outcomes back, in groups: events, moves and acks in one write, in this order.

    started events | retries and burials | results with their acks | acks | finished events

1. gather until the loop's turn ends, or enough acks have come together;
2. write the group; what it held is released when Redis has answered;
3. while Redis is away keep everything (the leases keep the entries ours) and write it again
   when it is back: an ack twice is harmless, a move twice is refused by its owner check.
   Events are the exception: they are dropped, and counted, before they delay an ack;
4. what Redis refuses is written again a few times, by itself, and then set aside: still held,
   never run again here, tried again every few seconds. If no write is taken at all, the reader
   stops, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from chasquimq.config import SettleOptions
from chasquimq.engine.holdings import Holdings
from chasquimq.engine.refusals import RARELY_S, TRIES, Refusals
from chasquimq.happening import Announce, CameTooLate, EventsDropped, Happening
from chasquimq.store import Jobs, Kept, Store
from chasquimq.wire.fault import Fault, classify, for_all

log = logging.getLogger("chasquimq.worker")

AGAIN_S = 0.2
_BROKEN = ConnectionError("no answer")
SCRIPTS = ("ack", "ack_held", "finish", "free", "retry", "bury", "may")


class Move(NamedTuple):
    """A relocation of one entry. `moved` hears the script's answer, 0 when it was refused."""

    entry_id: bytes
    command: bytes
    moved: Callable[[int], None]
    job_id: str = ""

    @property
    def ids(self) -> list[bytes]:
        return [self.entry_id]


class Batch(NamedTuple):
    """Acks in one command; `kept`: results that go with them."""

    ids: list[bytes]
    kept: list[Kept]

    @property
    def job_id(self) -> str:
        return self.kept[0].job_id if self.kept else ""

    def split(self) -> list[Batch]:
        kept = [[one] for one in self.kept] or [[]] * len(self.ids)
        return [Batch([entry_id], one) for entry_id, one in zip(self.ids, kept, strict=True)]


class Group(NamedTuple):
    before: int
    moves: list[Move]
    batches: list[Batch]
    after: int

    def answers(self) -> int:
        return self.before + len(self.moves) + len(self.batches) + self.after


class Settler:
    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        holdings: Holdings,
        options: SettleOptions,
        max_events: int,
        result_ttl_s: int,
    ) -> None:
        self.announce: Announce = _ignore
        # Whether entries are certainly ours. If not, an ack asks first: someone else may have
        # one of them by now.
        self.fresh: Callable[[list[bytes]], bool] = _always
        self.stale = 0  # outcomes that came too late: someone else had settled the entry
        self.dropped_events = 0
        self.scheduled = False
        self._acks: list[bytes] = []
        self._kept: list[Kept] = []
        self._moves: list[Move] = []
        self._alone: list[Batch] = []  # were refused, and may not take neighbours down
        self._aside: list[Move | Batch] = []
        self._refusals = Refusals()
        self._lacking = False  # a right; without it none of them is tried
        self._trying: asyncio.TimerHandle | None = None
        self._ending = False
        self._before: list[bytes] = []
        self._after: list[bytes] = []
        self._in_flight = 0
        self._events_in_flight = 0
        self._max_events = max_events
        self._result_ttl_s = result_ttl_s
        self._holdings = holdings
        self._jobs = jobs
        self._batch = options.batch
        self._idle_s = options.idle_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._pausing: asyncio.TimerHandle | None = None
        self._quiet: asyncio.Future[None] | None = None
        self.link = store.new_link(prepare=store.greet)
        self.link.on_up = self._up

    # -- outcomes come in ----------------------------------------------------------------------

    def ack(self, entry_id: bytes) -> None:
        acks = self._acks
        acks.append(entry_id)
        if len(acks) >= self._batch:
            self.flush()
        elif not self.scheduled:
            self._schedule()

    def finish(self, kept: Kept) -> None:
        """An ack that keeps a result."""
        self._kept.append(kept)
        if len(self._kept) >= self._batch:
            self.flush()
        elif not self.scheduled:
            self._schedule()

    def move(self, move: Move) -> None:
        self._moves.append(move)
        if not self.scheduled:
            self._schedule()

    def event(self, command: bytes) -> None:
        self._after.append(command)
        if not self.scheduled:
            self._schedule()

    def event_before(self, command: bytes) -> None:
        """An event that is written ahead of the acks."""
        self._before.append(command)
        if not self.scheduled:
            self._schedule()

    async def quiet(self) -> None:
        """Wait until everything that came in has been written and answered. What is set aside is
        tried once more, and not waited for."""
        self._ending = True
        if self._trying is not None:
            self._trying.cancel()
        self._try_aside()
        while self._in_flight or self._waits():
            self._quiet = self._loop.create_future()
            self.flush()
            if self._in_flight or self._pausing is not None or self.link.pipe is None:
                await self._quiet

    def _waits(self) -> bool:
        settling = self._acks or self._kept or self._moves or self._alone
        return bool(settling or self._before or self._after)

    # -- groups go out -------------------------------------------------------------------------

    def flush(self) -> None:
        self.scheduled = False
        self._drop_surplus()
        pipe = self.link.pipe
        if pipe is None or pipe.full or self._pausing is not None:
            return  # `_up`, `_drained` or the end of the pause come back here
        if not self._waits():
            return
        moves, batches = self._moves, self._alone
        before, after = self._before, self._after
        if self._kept:
            batches.append(Batch([one.entry_id for one in self._kept], self._kept))
        if self._acks:
            batches.append(Batch(self._acks, []))
        parts = [*before, *(move.command for move in moves), *map(self._command, batches), *after]
        group = Group(len(before), moves, batches, len(after))
        self._acks, self._kept, self._moves, self._alone = [], [], [], []
        self._before, self._after = [], []
        self._in_flight += 1
        self._events_in_flight += group.before + group.after
        landed, lost = partial(self._landed, group), partial(self._lost, group)
        pipe.send(b"".join(parts), len(parts), landed, lost)

    def _command(self, batch: Batch) -> bytes:
        if batch.kept:
            return self._jobs.finish(batch.kept, self._result_ttl_s)
        ids = batch.ids
        return self._jobs.dialect.ack(ids) if self.fresh(ids) else self._jobs.ack_held(ids)

    def _drop_surplus(self) -> None:
        """Drop the newest events beyond the limit; asked per group, because per event it costs."""
        before, after = self._before, self._after
        surplus = len(before) + len(after) + self._events_in_flight - self._max_events
        if surplus > 0:
            kept = max(len(after) - surplus, 0)
            surplus -= len(after) - kept
            self._count_dropped(len(after) - kept + min(surplus, len(before)))
            del after[kept:], before[max(len(before) - surplus, 0) :]

    def _count_dropped(self, count: int) -> None:
        if count:
            self.dropped_events += count
            self.announce(EventsDropped(count))

    def _schedule(self) -> None:
        self.scheduled = True
        if self._idle_s:
            self._loop.call_later(self._idle_s, self.flush)
        else:
            self._loop.call_soon(self.flush)

    def _up(self) -> None:
        pipe = self.link.pipe
        assert pipe is not None
        pipe.on_drained = self.flush
        self._jobs.speak(pipe.dialect)
        # A server that was restarted has forgotten the scripts; loading them is free then.
        self._load()
        self.flush()

    def _load(self) -> None:
        pipe = self.link.pipe
        if pipe is not None:
            pipe.load(SCRIPTS)

    # -- answers come back ---------------------------------------------------------------------

    def _landed(self, group: Group, replies: list[Any]) -> None:
        if self._readable(group, replies) < len(replies):
            raise TypeError("an outcome was answered with something else")  # hear it as lost
        self._in_flight -= 1
        self._events_in_flight -= group.before + group.after
        if isinstance(replies[0], Exception) or isinstance(replies[-1], Exception):
            self._count_unheard(group, replies)
        at = group.before
        released: list[bytes] = []
        for move in group.moves:
            if self._settled(move, replies[at]):
                released.append(move.entry_id)
                self._report(move, replies[at])
            at += 1
        for batch in group.batches:
            if self._settled(batch, replies[at]):
                released += batch.ids
                self._count_acked(batch, replies[at])
            at += 1
        self._holdings.release(released)
        self._done()

    def _readable(self, group: Group, replies: list[Any]) -> int:
        """How many replies, from the first one, have a shape that their commands have."""
        has_lists = self._jobs.dialect.name == "native"  # those of XACKDEL
        lists = [False for _ in group.moves] + [has_lists and not one.kept for one in group.batches]
        for at, may_be_list in enumerate(lists, group.before):
            if at >= len(replies):
                break
            is_list = may_be_list and isinstance(replies[at], list)
            if not is_list and not isinstance(replies[at], (int, Exception)):
                return at
        return len(replies)

    def _count_unheard(self, group: Group, replies: list[Any]) -> None:
        """Events that Redis would not take. Those that got no answer are counted already."""
        events = replies[: group.before] + replies[len(replies) - group.after :]
        refused = [reply for reply in events if isinstance(reply, Exception)]
        self._count_dropped(len(refused) - refused.count(_BROKEN))

    def _report(self, move: Move, reply: Any) -> None:
        moved = 0 if isinstance(reply, Exception) else int(reply)
        if not moved:
            self._count_stale(1)
        move.moved(moved)

    def _count_acked(self, batch: Batch, reply: Any) -> None:
        if not isinstance(reply, Exception):
            acked = reply if isinstance(reply, int) else self._jobs.dialect.acked(reply)
            self._count_stale(len(batch.ids) - acked)

    def _count_stale(self, count: int) -> None:
        if count:
            self.stale += count
            self.announce(CameTooLate(count))

    def _settled(self, write: Move | Batch, reply: Any) -> bool:
        """Whether the matter is closed; if not, it is queued again or set aside."""
        if not isinstance(reply, Exception):
            if self._refusals:
                self._taken(write)
            return True
        if reply is _BROKEN:
            self._again(write)
            return False
        fault = classify(reply)
        if fault is Fault.GROUP:
            self._taken(write)
            return True  # the stream is gone, and the entry with it: nothing is left to settle
        if fault in (Fault.REFUSED, Fault.ACCESS):
            self._refused(write, reply)
            return False
        if fault is Fault.DIALECT:
            self._ask_again()
        if fault is not Fault.SCRIPT:
            log.warning("settling failed, trying again: %s", reply)
        elif self._pausing is None:  # once for all that were refused together
            self._load()
        self._again(write)
        self._pause(0.0 if fault is Fault.SCRIPT else AGAIN_S)
        return False

    def _again(self, write: Move | Batch) -> None:
        if isinstance(write, Move):
            self._moves.append(write)
        elif write.ids[0] in self._refusals:
            self._alone.append(write)
        elif write.kept:
            self._kept.extend(write.kept)
        else:
            self._acks.extend(write.ids)

    # -- refusals ------------------------------------------------------------------------------

    @property
    def refusing(self) -> str | None:
        """What Redis says, while it takes nothing that this worker writes."""
        return self._refusals.reply if self._refusals.blocked else None

    def _refused(self, write: Move | Batch, reply: Exception) -> None:
        if isinstance(write, Batch) and len(write.ids) > 1:
            self._alone += write.split()  # one of them may be refused for itself
            self._pause(AGAIN_S)
            return
        [entry_id] = write.ids
        tries = self._refusals.add(entry_id, reply)
        self._holdings.stop_reading(self._refusals.blocked)
        # Without a right, a script may have been cut off behind its first write: one more copy.
        lacking = isinstance(write, Move) and for_all(reply)
        self._lacking = self._lacking or lacking
        if tries < TRIES and not lacking:
            log.info("Redis refused to settle entry %s: %s", entry_id.decode(), reply)
            self._again(write)
            self._pause(AGAIN_S)
            return
        if entry_id not in self._holdings.aside:
            job = f"job {write.job_id!r}, " if write.job_id else ""
            log.error(
                "Redis refuses to settle %sentry %s, which has run: %s. It is not run again here; "
                "repair the key or the rights of the user, this is tried again every %g s",
                *(job, entry_id.decode(), reply, RARELY_S),
            )
        self._aside.append(write)
        self._holdings.set_aside(entry_id)
        self._try_later()

    def _taken(self, write: Move | Batch) -> None:
        self._refusals.close(write.ids)
        self._holdings.stop_reading(False)

    def _try_later(self) -> None:
        if self._trying is None and not self._ending:
            self._trying = self._loop.call_later(RARELY_S, self._try_aside)

    def _try_aside(self) -> None:
        """Write once more what is set aside, if we have all rights that it needs."""
        self._trying = None
        pipe = self.link.pipe
        if not self._lacking:
            self._resend()
        elif pipe is None:
            self._try_later()
        else:
            self._in_flight += 1
            pipe.send(self._jobs.lacking(), 1, self._heard_lacking, self._heard_lacking)

    def _heard_lacking(self, replies: list[Any]) -> None:
        self._in_flight -= 1
        if replies == [[]]:
            self._lacking = False
            self._resend()
        else:
            log.warning("what is set aside waits for rights that are missing: %s", replies)
            self._load()
            self._try_later()
        self._done()

    def _resend(self) -> None:
        aside, self._aside = self._aside, []
        for write in aside:
            self._again(write)
        self.flush()

    def _ask_again(self) -> None:
        """Connect anew, and ask the server what it can do."""
        if self.link.pipe is not None:
            self.link.pipe.leave()

    def _lost(self, group: Group, replies: list[Any]) -> None:
        """The connection broke. What was answered before it broke counts; the rest again."""
        replies = replies[: self._readable(group, replies)]
        missing = group.answers() - len(replies)
        unheard = max(group.before - len(replies), 0)
        self._count_dropped(unheard + min(missing, group.after))
        self._landed(group, [*replies, *[_BROKEN] * missing])

    def _pause(self, seconds: float) -> None:
        if self._pausing is None:
            self._pausing = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._pausing = None
        self.flush()
        self._done()

    def _done(self) -> None:
        if self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)


def _always(ids: list[bytes]) -> bool:
    return True


def _ignore(happening: Happening) -> None:
    pass
