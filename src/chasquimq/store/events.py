"""The events stream's drawer, as a follower sees it: what came last, and what comes next."""

from __future__ import annotations

from typing import Any

from chasquimq.store.link import Link
from chasquimq.wire import EventRow, Keys, unpack_event

Event = tuple[str, EventRow]  # its id, and what it says


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

    async def after(self, place: str, count: int, block_ms: int, link: Link) -> list[Event]:
        """What follows the event `place`, waiting for it; over a link that may be blocked."""
        how = ("XREAD", "COUNT", count, "BLOCK", block_ms)
        reply = await link.ask(*how, "STREAMS", self._keys.events, place)
        return _events(reply[0][1]) if reply else []


def _events(rows: Any) -> list[Event]:
    return [(entry_id.decode(), unpack_event(fields)) for entry_id, fields in rows]
