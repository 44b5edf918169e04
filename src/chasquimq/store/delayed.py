"""The delayed set's drawer: schedule, reschedule, cancel, promote.

Every job that was scheduled is found again by its id, through its side-index:

    didx:<id>    the member itself                        the caller chose the id: the reference's
    didx:<id>    <score> <its bytes before the id>        the id was minted: enough to search for it

Retries have none. A copy has zeros in its third and fourth byte (see `wire/delayed.py`), a score
has digits there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chasquimq import lua, wire
from chasquimq.job import Due
from chasquimq.store import markers
from chasquimq.store.link import Link, reads_replies
from chasquimq.store.markers import Mark
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


@reads_replies
class Delayed:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    def schedule(
        self, due: Due, member: bytes, job_id: str, delay_ms: int, notice: Notice | None = None
    ) -> bytes:
        """A command for a pipe, for a job whose id was minted. Reply: 1."""
        return self._schedule(due, member, job_id, None, delay_ms, notice)

    def schedule_once(
        self,
        due: Due,
        member: bytes,
        job_id: str,
        delay_ms: int,
        notice: Notice | None = None,
        mark: Mark | None = None,
    ) -> bytes:
        """The same for an id the caller chose, which may be unique beyond what the reference
        knows. Reply: 1, or 0 where the id is taken."""
        mark = mark or markers.once(self._keys, job_id, _index_s(delay_ms))
        return self._schedule(due, member, job_id, mark, delay_ms, notice)

    def _schedule(
        self,
        due: Due,
        member: bytes,
        job_id: str,
        mark: Mark | None,
        delay_ms: int,
        notice: Notice | None,
    ) -> bytes:
        keys: tuple[bytes, ...] = (self._keys.delayed, self._keys.didx(job_id))
        front = wire.before_id(member, job_id.encode())
        args: tuple[Arg, ...] = (*_when(due), member, self._keys.wake, _index_s(delay_ms), front)
        if mark is not None:
            keys += (mark.key,)
        args += (mark.value, mark.lives_s) if mark is not None else ("", 0)
        if notice is not None:
            args += (self._keys.events, *notice)
        return pack(*lua.call("schedule", keys, args))

    async def reschedule(self, job_id: str, due: Due, events_len: int = 0) -> bool:
        """Give a job another time; False if it is too late. About `events_len` events are kept,
        0: it is not told there."""
        args: tuple[Arg, ...] = (*_when(due), job_id, self._keys.wake)
        if events_len:
            args += (self._keys.events, events_len)
        return bool(await self._link.run("reschedule", self._places(job_id), args))

    async def cancel(self, job_id: str) -> bool:
        args = (job_id, markers.MEMORY_S)
        return bool(await self._link.run("cancel", self._places(job_id), args))

    async def cancel_each(self, job_ids: Sequence[str]) -> list[bool]:
        """The same for many, in order. Not in one round trip where they are very many."""
        done: list[bool] = []
        for first in range(0, len(job_ids), PAGE):
            page = job_ids[first : first + PAGE]
            places = [self._places(job_id) for job_id in page]
            args = [(job_id, markers.MEMORY_S) for job_id in page]
            done += map(bool, await self._link.run_each("cancel", places, args))
        return done

    def _places(self, job_id: str) -> tuple[bytes, ...]:
        keys = self._keys
        return keys.delayed, keys.didx(job_id), keys.dlid(job_id), keys.unique(job_id)

    async def promote(self, holder: str, lock_ttl_s: int, batch: int) -> Promotion:
        keys = (self._keys.delayed, self._keys.stream, self._keys.dlq, self._keys.promoter_lock)
        args = (holder, lock_ttl_s, batch, self._keys.didx(""), self._keys.unique(""))
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


def _index_s(delay_ms: int) -> int:
    """How long the index of a job lives, as the reference has it."""
    return max(1, delay_ms // 1000) + GRACE_S


def _when(due: Due) -> tuple[str, int]:
    return "at" if due.absolute else "in", due.ms
