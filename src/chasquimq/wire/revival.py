"""A dead job with fresh attempts, as `lua/part_revive.lua` takes it; and what markers say.

    unique:<id>     <created ms> <limit s> <token>       its job waits or runs

Which job a marker stands for is told by the id and the envelope's creation time, which a job keeps
through retries, burial and replay.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from chasquimq.errors import WireError
from chasquimq.wire.entry import split_entry, unique_hint
from chasquimq.wire.envelope import pack_envelope, unpack_envelope
from chasquimq.wire.keys import Keys


class Revival(NamedTuple):
    """The id of the row, a fresh envelope, the name as it was; and if the job's id was unique, that
    id and what its marker will say."""

    dlq_id: str
    envelope: bytes
    name: bytes
    unique_id: str = ""
    holder: bytes = b""

    def marker(self, keys: Keys) -> bytes:
        return keys.unique(self.unique_id) if self.holder else b""

    def args(self, keys: Keys) -> tuple[bytes | str, ...]:
        """As the scripts take it."""
        return self.dlq_id, self.envelope, self.name, self.marker(keys), self.holder


def pack_holder(created_ms: int, limit_s: int, token: str) -> bytes:
    """What the marker of an id says that is unique until its job is done."""
    return b"%d %d %b" % (created_ms, limit_s, token.encode())


def revive(dlq_id: str, fields: Any) -> Revival:
    """The job in a row, with fresh attempts; WireError where there is none to be read."""
    split = split_entry(fields)
    if isinstance(split, str):
        raise WireError(split)
    fresh = msgspec.structs.replace(unpack_envelope(split[0]), attempt=0)
    revival = Revival(dlq_id, pack_envelope(fresh), split[1])
    limit = unique_hint(fields)
    if not limit:
        return revival
    holder = pack_holder(fresh.created_at_ms, int(limit), dlq_id)
    return revival._replace(unique_id=fresh.id, holder=holder)
