"""Fire specs when they are due, on one process at a time, each window once.

1. one script call acquires or renews the lock and shows what is due, the earliest first;
2. for each the policy says which windows fire, and when the next one is;
3. one script per spec, many in one write: if we still lead, and the spec is as we saw it, its jobs
   are added and it moves on; else nothing happens, and whoever changed it has seen to it;
4. a spec that cannot be read is put aside, with the reason, and the others go on.

Whatever happens between two of these steps, a window is fired by the one script that also moves
the spec beyond it. All times are the server's.

A long catch-up goes on from tick to tick, and all that are due have their share of each.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import NamedTuple

from chasquimq import wire
from chasquimq.config import ScheduleOptions
from chasquimq.engine.ear import SPECS, Ear
from chasquimq.engine.leader import Leader
from chasquimq.errors import ConfigError, WireError
from chasquimq.happening import Announce, Fired, PutAside, SpecsTicked
from chasquimq.job import Envelope
from chasquimq.policy.repeat import plan
from chasquimq.store import Store
from chasquimq.store.specs import MAX_BYTES, Firing, Seen

log = logging.getLogger("chasquimq.schedule")

# Windows that one script call or one write fires, and all of a tick: the server serves nobody
# else during the first, and the lock must outlive the last.
MOST = 1_000
MOST_OF_A_TICK = 10_000
TURN = 32  # specs or windows that are planned before others in the event loop have their turn
WHY_CHARS = 300
AGAIN_MS = 10


class Planned(NamedTuple):
    """A spec that is due, and the jobs that it makes: their ids and how late they are."""

    firing: Firing
    key: str
    name: str
    jobs: list[tuple[str, int]]


class Scheduler(Leader):
    role = "scheduler"
    word = SPECS

    def __init__(
        self,
        store: Store,
        holder: str,
        announce: Announce,
        options: ScheduleOptions,
        ear: Ear | None = None,
    ) -> None:
        # Often enough to keep the lock, too.
        interval_ms = min(options.tick_ms, options.lock_ttl_s * 1000 // 3)
        super().__init__(store, holder, announce, interval_ms, options.lock_ttl_s, ear)
        # Where there are no specs it is less urgent, and an idle worker sends less.
        self._most_s = min(2 * interval_ms, options.lock_ttl_s * 1000 // 2) / 1000
        self.fired = 0
        self._options = options

    async def _act(self) -> float | None:
        due = await self._store.specs.due(self._holder, self._lock_ttl_s, self._options.batch)
        if not due.leads:
            return None
        self._turn(True)
        if due.gone:
            log.warning("%d keys without a spec were removed", due.gone)
        most = max(1, min(MOST, MOST_OF_A_TICK // max(len(due.rows), 1)))
        before, oldest_ms = self.fired, due.now_ms
        coming = [] if due.next_ms is None else [due.next_ms]
        ahead = deque(due.rows)
        while ahead:
            group = await self._plan(ahead, due.now_ms, most)
            answers = await self._store.specs.fire(self._holder, [each.firing for each in group])
            for planned, answer in zip(group, answers, strict=True):
                if not answer.leads:
                    return None
                if answer.jobs is None:
                    coming.append(due.now_ms + AGAIN_MS)  # somebody changed it
                    continue
                if planned.firing.next_ms is not None and not answer.over:
                    coming.append(planned.firing.next_ms)
                oldest_ms = min(oldest_ms, planned.firing.seen.score)
                self._tell(planned, answer.jobs)
        self._announce(SpecsTicked(self.fired - before, due.depth, due.now_ms - oldest_ms))
        if due.more:
            return 0.0
        if not coming:
            return self._most_s
        return min(max(min(coming) - due.now_ms, 0) / 1000, self._interval_s)

    async def _plan(self, ahead: deque[Seen], now_ms: int, most: int) -> list[Planned]:
        """What the next write fires: of those that are ahead as many as fit into it."""
        found: list[Planned] = []
        windows = size = since_turn = 0
        while ahead and windows < MOST and size < MAX_BYTES:
            seen = ahead.popleft()
            try:
                found.append(planned := self._planned(seen, now_ms, most))
            except Exception as error:  # whatever it is, it is about this spec: the others go on
                await self._put_aside(seen, error)
            else:
                windows += len(planned.jobs)
                size += sum(map(len, planned.firing.envelopes))
                since_turn += len(planned.jobs)
            since_turn += 1
            if since_turn >= TURN:
                since_turn = 0
                await asyncio.sleep(0)
        return found

    def _planned(self, seen: Seen, now_ms: int, most: int) -> Planned:
        spec, key = seen.read(), seen.key.decode()
        if not seen.live:
            raise WireError(f"its score is not a moment: {seen.place.decode():.40}")
        most = max(1, min(most, MAX_BYTES // (len(spec.payload) + 1)))
        fires, next_ms, left = plan(
            spec, seen.score, now_ms, self._options.tick_ms, most, seen.left
        )
        jobs = [(fire_id(key, at_ms), now_ms - at_ms) for at_ms in fires]
        envelopes = [
            wire.pack_envelope(Envelope(job_id, spec.payload, now_ms, 0, spec.retry))
            for job_id, _ in jobs
        ]
        name = spec.job_name
        firing = Firing(seen, name.encode(), envelopes, next_ms, spec.limit or 0, left)
        return Planned(firing, key, name, jobs)

    async def _put_aside(self, seen: Seen, error: Exception) -> None:
        known = isinstance(error, WireError | ConfigError)
        why = str(error.args[0]) if known else repr(error)
        # One line without control characters: a person reads it in a terminal.
        why = "".join([sign if sign.isprintable() else " " for sign in why[:WHY_CHARS]])
        if await self._store.specs.put_aside(seen, why):
            key = seen.key.decode(errors="backslashreplace")
            trace = None if known else error
            log.error("spec %r cannot be fired and was put aside: %s", key, why, exc_info=trace)
            self._announce(PutAside(key, why))

    def _tell(self, planned: Planned, count: int) -> None:
        self.fired += count
        for job_id, late_ms in planned.jobs[:count]:  # a limit may have cut off the last ones
            self._announce(Fired(job_id, planned.name, planned.key, late_ms))

    async def _release(self) -> None:
        await self._store.specs.release(self._holder)


def fire_id(key: str, at_ms: int) -> str:
    """The id of the job that a spec's window makes, in whichever process, however often tried."""
    return f"{key}@{at_ms}"
