"""The DLQ's drawer: look at dead jobs, bring them back."""

from __future__ import annotations

import logging

import msgspec

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.job import DeadEntry
from chasquimq.store.link import Link
from chasquimq.wire import Keys

log = logging.getLogger(__name__)

PAGE = 100  # a replay script call moves at most so many


class DeadLetters:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    async def peek(self, limit: int, after: str = "") -> list[DeadEntry]:
        """The oldest dead jobs, those behind the entry `after` if one is named."""
        if limit <= 0:
            return []
        start = f"({after}" if after else "-"
        rows = await self._link.ask("XRANGE", self._keys.dlq, start, "+", "COUNT", limit)
        return [wire.unpack_dead(dlq_id, fields) for dlq_id, fields in rows]

    async def replay(self, limit: int) -> int:
        """Bring back the oldest `limit` that can be read; what cannot is passed over."""
        moved, after = 0, ""
        while moved < limit:
            page = await self.peek(PAGE, after)
            if not page:
                break
            after = page[-1].dlq_id
            again = [ready for entry in page if (ready := _revived(entry)) is not None]
            flat = [part for ready in again[: limit - moved] for part in ready]
            if flat:
                moved += int(
                    await self._link.run("replay", (self._keys.dlq, self._keys.stream), flat)
                )
        return moved


def _revived(entry: DeadEntry) -> tuple[str, bytes, str] | None:
    """What `replay.lua` wants: the id, a fresh envelope, the name."""
    try:
        envelope = wire.unpack_envelope(entry.payload)
    except WireError as error:
        log.warning("dlq entry %s stays: %s", entry.dlq_id, error)
        return None
    fresh = msgspec.structs.replace(envelope, attempt=0)
    return entry.dlq_id, wire.pack_envelope(fresh), entry.name
