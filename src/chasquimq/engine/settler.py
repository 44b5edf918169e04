"""Write outcomes back, in groups: events, moves and acks in one write, in this order.

    started events | retries and burials | results with their acks | acks | finished events

1. gather until the loop's turn ends, or enough acks have come together;
2. write the group; what it held is released when Redis has answered;
3. while Redis is away keep everything (the leases keep the entries ours) and write it again
   when it is back: an ack twice is harmless, a move twice is refused by its owner check.
   Events are the exception: they are dropped, and counted, before they delay an ack.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from chasquimq.config import SettleOptions
from chasquimq.engine.holdings import Holdings
from chasquimq.happening import Announce, CameTooLate, EventsDropped, Happening
from chasquimq.store import Jobs, Kept, Store
from chasquimq.wire.fault import Fault, classify

log = logging.getLogger(__name__)

AGAIN_S = 0.2
_BROKEN = ConnectionError("no answer")
SCRIPTS = ("ack", "ack_held", "finish", "free", "retry", "bury")


class Move(NamedTuple):
    """A relocation of one entry. `moved` hears the script's answer, 0 when it was refused."""

    entry_id: bytes
    command: bytes
    moved: Callable[[int], None]


class Group(NamedTuple):
    before: int
    moves: list[Move]
    kept: list[Kept]
    acks: list[bytes]
    after: int

    def answers(self) -> int:
        return self.before + len(self.moves) + bool(self.kept) + bool(self.acks) + self.after


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
        self.link = store.new_link()
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
        """Wait until everything that came in has been written and answered."""
        while self._in_flight or self._waits():
            self._quiet = self._loop.create_future()
            self.flush()
            if self._in_flight or self._pausing is not None or self.link.pipe is None:
                await self._quiet

    def _waits(self) -> bool:
        return bool(self._acks or self._kept or self._moves or self._before or self._after)

    # -- groups go out -------------------------------------------------------------------------

    def flush(self) -> None:
        self.scheduled = False
        self._drop_surplus()
        pipe = self.link.pipe
        if pipe is None or pipe.full or self._pausing is not None:
            return  # `_up`, `_drained` or the end of the pause come back here
        if not self._waits():
            return
        acks, kept, moves = self._acks, self._kept, self._moves
        before, after = self._before, self._after
        parts = [*before, *(move.command for move in moves)]
        jobs = self._jobs
        if kept:
            parts.append(jobs.finish(kept, self._result_ttl_s))
        if acks:
            parts.append(jobs.dialect.ack(acks) if self.fresh(acks) else jobs.ack_held(acks))
        parts += after
        group = Group(len(before), moves, kept, acks, len(after))
        self._acks, self._kept, self._moves, self._before, self._after = [], [], [], [], []
        self._in_flight += 1
        self._events_in_flight += group.before + group.after
        landed, lost = partial(self._landed, group), partial(self._lost, group)
        pipe.send(b"".join(parts), len(parts), landed, lost)

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
        # A server that was restarted has forgotten the scripts; loading them is free then.
        self._load()
        self.flush()

    def _load(self) -> None:
        pipe = self.link.pipe
        if pipe is not None:
            pipe.load(SCRIPTS)

    # -- answers come back ---------------------------------------------------------------------

    def _landed(self, group: Group, replies: list[Any]) -> None:
        self._in_flight -= 1
        self._events_in_flight -= group.before + group.after
        if isinstance(replies[0], Exception) or isinstance(replies[-1], Exception):
            self._count_refused(group, replies)
        at = group.before
        released: list[bytes] = []
        for move in group.moves:
            if self._settled(replies[at], partial(self._moves.append, move)):
                released.append(move.entry_id)
                self._report(move, replies[at])
            at += 1
        if group.kept:
            ids = [one.entry_id for one in group.kept]
            released += self._acked(ids, replies[at], partial(self._kept.extend, group.kept))
            at += 1
        if group.acks:
            again = partial(self._acks.extend, group.acks)
            released += self._acked(group.acks, replies[at], again)
        self._holdings.release(released)
        self._done()

    def _count_refused(self, group: Group, replies: list[Any]) -> None:
        """Events that Redis would not take. Those that got no answer are counted already."""
        events = replies[: group.before] + replies[len(replies) - group.after :]
        refused = [reply for reply in events if isinstance(reply, Exception)]
        self._count_dropped(len(refused) - refused.count(_BROKEN))

    def _report(self, move: Move, reply: Any) -> None:
        moved = 0 if isinstance(reply, Exception) else int(reply)
        if not moved:
            self._count_stale(1)
        move.moved(moved)

    def _acked(self, ids: list[bytes], reply: Any, again: Callable[[], None]) -> list[bytes]:
        """Those of which nothing is left to do: all of them, or none yet."""
        if not self._settled(reply, again):
            return []
        if not isinstance(reply, Exception):
            acked = reply if isinstance(reply, int) else self._jobs.dialect.acked(reply)
            self._count_stale(len(ids) - acked)
        return ids

    def _count_stale(self, count: int) -> None:
        if count:
            self.stale += count
            self.announce(CameTooLate(count))

    def _settled(self, reply: Any, again: Callable[[], None]) -> bool:
        """Whether the matter is closed; if not, it is queued again."""
        if not isinstance(reply, Exception):
            return True
        if reply is _BROKEN:
            again()
            return False
        fault = classify(reply)
        if fault is Fault.GROUP:
            return True  # the stream is gone, and the entry with it: nothing is left to settle
        if fault is not Fault.SCRIPT:
            log.warning("settling failed, trying again: %s", reply)
        elif self._pausing is None:  # once for all that were refused together
            self._load()
        again()
        self._pause(0.0 if fault is Fault.SCRIPT else AGAIN_S)
        return False

    def _lost(self, group: Group, replies: list[Any]) -> None:
        """The connection broke. What was answered before it broke counts; the rest again."""
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
