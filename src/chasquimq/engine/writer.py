"""Writes events where there is no settler to write them with: what a turn brings, in one write.

Nobody waits for it. While the connection is down, or too much is unanswered, events are dropped
and counted: they may never hold up what they tell of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from chasquimq.store import Link

GOODBYE_S = 1.0


class LinkWriter:
    """A `Writer` over a link of its own, which it closes."""

    def __init__(self, link: Link, max_waiting: int) -> None:
        self.link = link
        self.dropped = 0
        self.on_dropped: Callable[[int], None] = _ignore
        self._max_waiting = max_waiting
        self._waiting: list[bytes] = []
        self._unanswered = 0
        self._quiet: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    def event(self, command: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(command)

    event_before = event  # there are no acks here that it could stand before

    async def close(self) -> None:
        """Write what waits, see it answered or not for long, and hang up."""
        self._flush()
        if self._unanswered:
            self._quiet = self._loop.create_future()
            await asyncio.wait([self._quiet], timeout=GOODBYE_S)
        await self.link.close()

    def _flush(self) -> None:
        pipe = self.link.pipe
        room = self._max_waiting - self._unanswered
        if pipe is None or pipe.full:
            room = 0
        events, surplus = self._waiting[:room], self._waiting[room:]
        self._waiting = []
        self._drop(len(surplus))
        if pipe is not None and events:
            self._unanswered += len(events)
            heard = partial(self._heard, len(events))
            pipe.send(b"".join(events), len(events), heard, heard)

    def _heard(self, count: int, replies: list[Any]) -> None:
        """The answers, or those that came before the connection broke."""
        written = sum([not isinstance(reply, Exception) for reply in replies])
        self._unanswered -= count
        self._drop(count - written)
        if self._quiet is not None and not self._unanswered and not self._quiet.done():
            self._quiet.set_result(None)

    def _drop(self, count: int) -> None:
        if count:
            self.dropped += count
            self.on_dropped(count)


def _ignore(count: int) -> None:
    pass
