"""Fire specs when they are due, on one process at a time, each window once.

1. one script call acquires or renews the lock and shows what is due, the earliest first;
2. for each the policy says which windows fire, and when the next one is;
3. one script per spec, all in one write: if we still lead, and the spec is as we saw it, its jobs
   are added and it moves on; else nothing happens, and whoever changed it has seen to it;
4. a spec that cannot be read is put aside, with the reason, and the others go on.

Whatever happens between two of these steps, a window is fired by the one script that also moves
the spec beyond it. All times are the server's.
"""

from __future__ import annotations

import asyncio
import logging

from chasquimq import wire
from chasquimq.config import ScheduleOptions
from chasquimq.engine.ear import SPECS, Ear
from chasquimq.engine.leader import Leader
from chasquimq.errors import ConfigError, WireError
from chasquimq.happening import Announce, Fired, PutAside, SpecsTicked
from chasquimq.job import Envelope
from chasquimq.policy.repeat import plan
from chasquimq.store import Store
from chasquimq.store.specs import MAX_BYTES, DueSpecs, Firing, Seen

log = logging.getLogger(__name__)

MOST = 1_000  # windows that one script call fires: the server serves nobody meanwhile
TURN = 32  # specs that are planned before others in the event loop have their turn
WHY_CHARS = 300
AGAIN_MS = 10


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
        self.fired = 0
        self._options = options

    async def _act(self) -> float | None:
        specs = self._store.specs
        due = await specs.due(self._holder, self._lock_ttl_s, self._options.batch)
        if not due.leads:
            return None
        self._turn(True)
        if due.gone:
            log.warning("%d keys without a spec were removed", due.gone)
        firings = await self._plan(due)
        answers = await specs.fire(self._holder, [firing for firing, _ in firings])
        fired, next_ms = 0, due.next_ms
        for (firing, windows), answer in zip(firings, answers, strict=True):
            if not answer.leads:
                return None
            if answer.jobs is None:
                next_ms = due.now_ms + AGAIN_MS  # somebody changed it
                continue
            if firing.next_ms is not None and not answer.over:
                next_ms = min(firing.next_ms, next_ms or firing.next_ms)
            for at_ms in windows[: answer.jobs]:
                self._tell(firing, at_ms, due.now_ms)
            fired += answer.jobs
        self.fired += fired
        lag_ms = due.now_ms - due.rows[0].score if due.rows else 0
        self._announce(SpecsTicked(fired, due.depth, lag_ms))
        return self._wait_s(due, next_ms)

    def _wait_s(self, due: DueSpecs, next_ms: int | None) -> float:
        if due.more:
            return 0.0
        if next_ms is None:
            return self._interval_s
        return max(next_ms - due.now_ms, 0) / 1000

    async def _plan(self, due: DueSpecs) -> list[tuple[Firing, tuple[int, ...]]]:
        found = []
        for place, seen in enumerate(due.rows, 1):
            try:
                found.append(self._firing(seen, due.now_ms))
            except (WireError, ConfigError) as error:
                await self._put_aside(seen, str(error))
            if place % TURN == 0:
                await asyncio.sleep(0)
        return found

    def _firing(self, seen: Seen, now_ms: int) -> tuple[Firing, tuple[int, ...]]:
        spec, key = seen.read(), seen.key.decode()
        if not seen.live:
            raise WireError(f"its score is not a moment: {seen.place.decode():.40}")
        most = max(1, min(MOST, MAX_BYTES // (len(spec.payload) + 1)))
        fires, next_ms, left = plan(
            spec, seen.score, now_ms, self._options.tick_ms, most, seen.left
        )
        envelopes = [
            wire.pack_envelope(Envelope(fire_id(key, at), spec.payload, now_ms, 0, spec.retry))
            for at in fires
        ]
        name = spec.job_name.encode()
        return Firing(seen, name, envelopes, next_ms, spec.limit or 0, left), fires

    async def _put_aside(self, seen: Seen, why: str) -> None:
        key = seen.key.decode(errors="backslashreplace")
        why = why.replace("\n", " ")[:WHY_CHARS]
        if await self._store.specs.put_aside(seen, why):
            log.error("spec %r cannot be fired and was put aside: %s", key, why)
            self._announce(PutAside(key, why))

    def _tell(self, firing: Firing, at_ms: int, now_ms: int) -> None:
        key, name = firing.seen.key.decode(), wire.decode_name(firing.name)
        self._announce(Fired(fire_id(key, at_ms), name, key, now_ms - at_ms))

    async def _release(self) -> None:
        await self._store.specs.release(self._holder)


def fire_id(key: str, at_ms: int) -> str:
    """The id of the job that a spec's window makes, in whichever process, however often tried."""
    return f"{key}@{at_ms}"
