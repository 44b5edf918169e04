"""A drawer to look into: how much a queue holds, and where. It changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from chasquimq.job import Counts
from chasquimq.store.fault import as_error
from chasquimq.store.link import Link
from chasquimq.wire import Keys


class Holding(msgspec.Struct, frozen=True):
    """A consumer of the group: what is pending under its name, and when it last spoke."""

    name: str
    pending: int
    idle_ms: int  # since it last asked for anything


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as a group of workers sees it. `pending` is None where the group does not exist."""

    queue: str
    group: str
    stream_depth: int  # rows of the stream: what waits, and what runs
    pending: int | None
    dlq_depth: int
    delayed_depth: int
    delayed_lag_ms: int | None  # how overdue the next delayed job is; None: there is none
    repeatables: int
    paused: bool
    counts: Counts
    consumers: tuple[Holding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class Inspect:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    async def counts(self, group: str) -> Counts:
        """All of one moment, as the group sees the queue."""
        keys = (self._keys.stream, self._keys.delayed, self._keys.dlq, self._keys.repeat)
        found: list[int] = await self._link.run("counts", keys, (group,))
        waiting, running, delayed, dead, repeatables, oldest_ms = found
        age_ms = None if oldest_ms < 0 else oldest_ms
        return Counts(waiting, running, delayed, dead, repeatables, age_ms)

    async def overview(self, group: str) -> Overview:
        keys = self._keys
        counts = await self.counts(group)
        replies = await self._link.ask_each(
            ("TIME",),
            ("XLEN", keys.stream),
            ("XLEN", keys.dlq),
            ("ZCARD", keys.delayed),
            ("ZRANGE", keys.delayed, 0, 0, "WITHSCORES"),
            ("ZCARD", keys.repeat),
            ("EXISTS", keys.paused),
            ("XPENDING", keys.stream, group),
            ("XINFO", "CONSUMERS", keys.stream, group),
        )
        pending, consumers = (_unless_missing(reply) for reply in replies[-2:])
        for reply in replies[:-2]:
            if isinstance(reply, Exception):
                raise as_error(reply, f"looking at {keys.queue}")
        clock, stream, dlq, delayed, first, repeat, paused = replies[:-2]
        now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000
        return Overview(
            queue=keys.queue,
            group=group,
            stream_depth=stream,
            pending=None if pending is None else pending[0],
            dlq_depth=dlq,
            delayed_depth=delayed,
            delayed_lag_ms=max(now_ms - int(float(first[1])), 0) if first else None,
            repeatables=repeat,
            paused=bool(paused),
            counts=counts,
            consumers=tuple(_holding(row) for row in consumers or ()),
        )


def _unless_missing(reply: Any) -> Any:
    """The reply, or None where there is no such stream or group."""
    if isinstance(reply, Exception):
        if str(reply).startswith("NOGROUP") or "no such key" in str(reply):
            return None
        raise as_error(reply, "looking at the group")
    return reply


def _holding(row: list[Any]) -> Holding:
    facts = dict(zip(row[::2], row[1::2], strict=True))
    name = bytes(facts[b"name"]).decode(errors="backslashreplace")
    return Holding(name, int(facts[b"pending"]), int(facts[b"idle"]))


class Survey:
    """A server as a whole: which queues live on it."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def queues(self) -> list[str]:
        """The names of all queues that have any key, sorted."""
        found: set[str] = set()
        cursor = b"0"
        while True:
            cursor, keys = await self._link.ask(
                "SCAN", cursor, "MATCH", "{chasqui:*}:*", "COUNT", 1_000
            )
            found.update(filter(None, map(_queue_of, keys)))
            if cursor == b"0":
                return sorted(found)


def _queue_of(key: bytes) -> str | None:
    name, closed, _ = key.removeprefix(b"{chasqui:").partition(b"}:")
    try:
        return name.decode() if name and closed else None
    except UnicodeDecodeError:
        return None  # no queue of ours: names are text
