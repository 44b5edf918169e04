"""The results' drawer: what handlers returned, while it lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.store.link import Link, reads_replies
from chasquimq.wire import Keys

CHUNK = 1_000  # keys per MGET: the server serves nobody else meanwhile


@reads_replies
class Results:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    async def get(self, job_ids: Sequence[str]) -> list[bytes | None]:
        """For each id its result's bytes; None where there is none (any more)."""
        found: list[bytes | None] = []
        for start in range(0, len(job_ids), CHUNK):
            keys = [self._keys.result(job_id) for job_id in job_ids[start : start + CHUNK]]
            reply = await self._link.ask("MGET", *keys)
            if type(reply) is not list or len(reply) != len(keys):
                raise TypeError(f"{len(keys)} results belong where something else is")
            if not all(stored is None or type(stored) is bytes for stored in reply):
                raise TypeError("something else is where a result belongs")
            found += reply
        return found


def unpack_result(job_id: str, stored: bytes) -> Any:
    """What a handler returned, from what it left in Redis."""
    try:
        return wire.decode(stored)
    except WireError as error:
        raise WireError(
            f"the stored result of job {job_id!r} is not MessagePack ({error.args[0]}); "
            "did another program write it?"
        ) from None
