"""The delayed set's drawer: schedule, cancel, promote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chasquimq import lua
from chasquimq.job import Due
from chasquimq.store.link import Link
from chasquimq.store.resp import Arg, pack
from chasquimq.wire import Keys, decode_name

GRACE_S = 3_600  # how long a caller's id stays taken after its job was due
PAGE = 500  # a write cancels at most so many


class Promotion(NamedTuple):
    """What a promoter's tick did. `moved` holds (job id, name)."""

    leads: bool
    wait_ms: int | None = None  # until the next job is due; None: nothing is scheduled
    depth: int = 0
    lag_ms: int = 0
    unreadable: int = 0
    moved: tuple[tuple[str, str], ...] = ()


class Notice(NamedTuple):
    """What the events stream is told of a delayed job, and about how many events it keeps."""

    max_len: int
    job_id: bytes
    name: bytes


class Delayed:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    def schedule(self, due: Due, member: bytes, notice: Notice | None = None) -> bytes:
        """A command for a pipe. Reply: 1."""
        return self._schedule(due, member, (), 0, notice)

    def schedule_once(
        self, due: Due, member: bytes, job_id: str, delay_ms: int, notice: Notice | None = None
    ) -> bytes:
        """The same for an id the caller chose. Reply: 1, or 0 where it is scheduled already."""
        markers = (self._keys.dlid(job_id), self._keys.didx(job_id))
        return self._schedule(due, member, markers, max(1, delay_ms // 1000) + GRACE_S, notice)

    def _schedule(
        self,
        due: Due,
        member: bytes,
        markers: tuple[bytes, ...],
        lives_s: int,
        notice: Notice | None,
    ) -> bytes:
        when = ("at" if due.absolute else "in", due.ms)
        args: tuple[Arg, ...] = (*when, member, self._keys.wake, lives_s)
        if notice is not None:
            args += (self._keys.events, *notice)
        return pack(*lua.call("schedule", (self._keys.delayed, *markers), args))

    async def cancel(self, job_id: str) -> bool:
        return bool(await self._link.run("cancel", self._cancel_keys(job_id)))

    async def cancel_each(self, job_ids: Sequence[str]) -> list[bool]:
        """The same for many, in order. Not in one round trip where they are very many."""
        done: list[bool] = []
        for first in range(0, len(job_ids), PAGE):
            calls = [self._cancel_keys(job_id) for job_id in job_ids[first : first + PAGE]]
            done += map(bool, await self._link.run_each("cancel", calls))
        return done

    def _cancel_keys(self, job_id: str) -> tuple[bytes, bytes, bytes]:
        return self._keys.delayed, self._keys.didx(job_id), self._keys.dlid(job_id)

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
