"""The events stream's drawer, as a follower sees it: what came last, and what comes next."""

from __future__ import annotations

import asyncio
from typing import Any

from chasquimq.errors import WireError
from chasquimq.store.link import Link, reads_replies
from chasquimq.store.pipe import Pipe, Replies
from chasquimq.store.resp import pack
from chasquimq.wire import EventRow, Keys, unpack_event
from chasquimq.wire.fault import as_error

Event = tuple[str, EventRow]  # its id, and what it says; a row that is no event says nothing

_NOTHING = EventRow("", None, "", {})


@reads_replies
class Events:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    async def tip(self) -> str:
        """The id of the newest event; whatever comes after it is new."""
        newest = await self._link.ask("XREVRANGE", self._keys.events, "+", "-", "COUNT", 1)
        return newest[0][0].decode() if newest else "0-0"

    async def last(self, count: int) -> list[Event]:
        """The newest events, oldest first."""
        rows = await self._link.ask("XREVRANGE", self._keys.events, "+", "-", "COUNT", count)
        return _events(reversed(rows))

    def ahead(
        self, place: str, count: int, block_ms: int, pipe: Pipe
    ) -> asyncio.Future[list[Event]]:
        """What follows the event `place`, over a pipe that may be blocked. A future: who is
        cancelled while waiting for it may wait for it again, instead of asking twice."""
        future: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()

        def landed(replies: Replies) -> None:
            if future.done():
                return
            if isinstance(replies[0], Exception):
                future.set_exception(as_error(replies[0], "XREAD"))
            else:
                future.set_result(_answered(replies[0]))

        def lost(replies: Replies) -> None:
            if not future.done():
                future.set_exception(self._link.no_answer())

        future.add_done_callback(_seen)
        how = ("XREAD", "COUNT", count, "BLOCK", block_ms)
        pipe.send(pack(*how, "STREAMS", self._keys.events, place), 1, landed, lost)
        return future


def _seen(future: asyncio.Future[list[Event]]) -> None:
    """An error for which nobody came back is no news: the next read will tell."""
    if not future.cancelled():
        future.exception()


def _answered(reply: Any) -> list[Event]:
    return _events(reply[0][1]) if reply else []


def _events(rows: Any) -> list[Event]:
    return [(entry_id.decode(), _row(fields)) for entry_id, fields in rows]


def _row(fields: Any) -> EventRow:
    """What is no event keeps its place in the row of events: followers go on behind it."""
    try:
        return unpack_event(fields)
    except WireError:
        return _NOTHING
