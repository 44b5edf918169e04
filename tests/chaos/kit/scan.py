"""Where every job is: one atomic look at a queue's stream, pending list, delayed set and DLQ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import redis

from chasquimq import wire
from chasquimq.errors import WireError

_ALL = 10_000_000


@dataclass(frozen=True)
class Scan:
    """Job ids by place, one per entry: an id that is twice in a place stands there twice."""

    unread: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    delayed: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    overdue: tuple[str, ...] = ()
    """Those of the delayed whose time has come."""
    stranded: tuple[str, ...] = ()
    """Delivered once and pending nowhere: no read and no claim will ever return them."""
    ghosts: tuple[str, ...] = ()
    """Entry ids that are pending though their entry is gone."""
    unreadable: int = 0
    """Entries and members that are no jobs."""

    @property
    def present(self) -> tuple[str, ...]:
        return (*self.unread, *self.pending, *self.delayed, *self.dead, *self.stranded)

    @property
    def drained(self) -> bool:
        return not (self.unread or self.pending or self.delayed or self.stranded)


def scan(url: str, queue: str, group: str = "default") -> Scan:
    stream, delayed, dlq = (f"{{chasqui:{queue}}}:{kind}" for kind in ("stream", "delayed", "dlq"))
    with redis.Redis.from_url(url, protocol=2) as client:
        pipe = client.pipeline(transaction=True)
        pipe.xrange(stream)
        pipe.xpending_range(stream, group, "-", "+", _ALL)
        pipe.xinfo_groups(stream)
        pipe.zrange(delayed, 0, -1, withscores=True)
        pipe.xrange(dlq)
        pipe.time()
        entries, pending, groups, members, buried, now = pipe.execute(raise_on_error=False)

    jobs = {entry: _job(fields) for entry, fields in _checked(entries)}
    graves = [_job(fields) for _, fields in _checked(buried)]
    waiting = [(_job_of_member(member), score) for member, score in _checked(members)]
    held = {item["message_id"] for item in _checked(pending)}
    last = max((_place(g["last-delivered-id"]) for g in _checked(groups)), default=(0, 0))
    read = {entry for entry in jobs if _place(entry) <= last}
    now_ms = now[0] * 1000 + now[1] // 1000

    return Scan(
        unread=_known(jobs[entry] for entry in jobs if entry not in read | held),
        pending=_known(jobs[entry] for entry in jobs if entry in held),
        delayed=_known(job for job, _ in waiting),
        dead=_known(graves),
        overdue=_known(job for job, score in waiting if score <= now_ms),
        stranded=_known(jobs[entry] for entry in jobs if entry in read - held),
        ghosts=tuple(entry.decode() for entry in sorted(held - jobs.keys())),
        unreadable=[*jobs.values(), *graves, *(job for job, _ in waiting)].count(None),
    )


def _checked(reply: Any) -> Any:
    """A queue nobody has used yet has no stream and no group; any other error is one."""
    if isinstance(reply, Exception):
        if "no such key" in str(reply) or "NOGROUP" in str(reply):
            return []
        raise reply
    return reply


def _job(fields: Mapping[bytes, bytes]) -> str | None:
    try:
        return wire.unpack_envelope(fields[b"d"]).id
    except (KeyError, WireError):
        return None


def _job_of_member(member: bytes) -> str | None:
    try:
        return wire.unpack_envelope(wire.split_member(member)[1]).id
    except WireError:
        return None


def _known(jobs: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(job for job in jobs if job is not None)


def _place(entry: bytes) -> tuple[int, int]:
    ms, _, sequence = entry.partition(b"-")
    return int(ms), int(sequence)
