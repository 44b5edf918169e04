"""The results' drawer: what handlers returned, while it lives."""

from __future__ import annotations

from collections.abc import Sequence

from chasquimq.store.link import Link
from chasquimq.wire import Keys


class Results:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    async def get(self, job_ids: Sequence[str]) -> list[bytes | None]:
        """For each id its result's bytes; None where there is none (any more)."""
        if not job_ids:
            return []
        return list(await self._link.ask("MGET", *map(self._keys.result, job_ids)))
