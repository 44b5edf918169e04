"""The DLQ's drawer: look at dead jobs, bring them back."""

from __future__ import annotations

import logging
from typing import Any

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
        rows = await self._rows(limit, after)
        return [wire.unpack_dead(dlq_id, fields) for dlq_id, fields in rows]

    async def replay(self, limit: int) -> int:
        """Bring back the oldest `limit` that can be read; what cannot is passed over."""
        moved, after, keys = 0, "", (self._keys.dlq, self._keys.stream)
        while moved < limit and (page := await self._rows(PAGE, after)):
            after = page[-1][0].decode()
            ready = [found for row in page if (found := _revived(*row)) is not None]
            flat = [part for found in ready[: limit - moved] for part in found]
            if flat:
                moved += int(await self._link.run("replay", keys, flat))
        return moved

    async def _rows(self, limit: int, after: str) -> list[Any]:
        if limit <= 0:
            return []
        start = f"({after}" if after else "-"
        return list(await self._link.ask("XRANGE", self._keys.dlq, start, "+", "COUNT", limit))


def _revived(dlq_id: bytes, fields: list[bytes]) -> tuple[bytes, bytes, bytes] | None:
    """What `replay.lua` wants: the id, a fresh envelope, the name as it was."""
    split = wire.split_entry(fields)
    try:
        if isinstance(split, str):
            raise WireError(split)
        envelope = wire.unpack_envelope(split[0])
    except WireError as error:
        log.warning("dlq entry %s stays: %s", dlq_id.decode(), error)
        return None
    fresh = msgspec.structs.replace(envelope, attempt=0)
    return dlq_id, wire.pack_envelope(fresh), split[1]
