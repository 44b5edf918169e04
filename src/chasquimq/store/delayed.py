"""The delayed set's drawer: schedule, cancel, promote."""

from __future__ import annotations

from typing import NamedTuple

from chasquimq import lua
from chasquimq.job import Due
from chasquimq.store.link import Link
from chasquimq.store.resp import pack
from chasquimq.wire import Keys, decode_name

GRACE_S = 3_600  # how long a caller's id stays taken after its job was due


class Promotion(NamedTuple):
    """What a promoter's tick did. `moved` holds (job id, name)."""

    leads: bool
    wait_ms: int | None = None  # until the next job is due; None: nothing is scheduled
    depth: int = 0
    lag_ms: int = 0
    unreadable: int = 0
    moved: tuple[tuple[str, str], ...] = ()


class Delayed:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    def schedule(self, due: Due, member: bytes) -> bytes:
        """A command for a pipe. Reply: 1."""
        when = ("at" if due.absolute else "in", due.ms)
        return pack(*lua.call("schedule", (self._keys.delayed,), (*when, member, self._keys.wake)))

    def schedule_once(self, due: Due, member: bytes, job_id: str, delay_ms: int) -> bytes:
        """The same for an id the caller chose. Reply: 1, or 0 where it is scheduled already."""
        keys = (self._keys.delayed, self._keys.dlid(job_id), self._keys.didx(job_id))
        when = ("at" if due.absolute else "in", due.ms)
        lives_s = max(1, delay_ms // 1000) + GRACE_S
        return pack(*lua.call("schedule", keys, (*when, member, self._keys.wake, lives_s)))

    async def cancel(self, job_id: str) -> bool:
        keys = (self._keys.delayed, self._keys.didx(job_id), self._keys.dlid(job_id))
        return bool(await self._link.run("cancel", keys))

    async def promote(self, holder: str, lock_ttl_s: int, batch: int) -> Promotion:
        keys = (self._keys.delayed, self._keys.stream, self._keys.dlq, self._keys.promoter_lock)
        args = (holder, lock_ttl_s, batch, self._keys.didx(""))
        reply = await self._link.run("promote", keys, args)
        if len(reply) == 1:
            return Promotion(leads=False)
        wait_ms, depth, lag_ms, unreadable, *flat = reply
        moved = tuple(
            (decode_name(job_id), decode_name(name))
            for job_id, name in zip(flat[::2], flat[1::2], strict=True)
        )
        return Promotion(True, None if wait_ms < 0 else wait_ms, depth, lag_ms, unreadable, moved)

    async def release(self, holder: str) -> None:
        await self._link.run("release", (self._keys.promoter_lock,), (holder,))
