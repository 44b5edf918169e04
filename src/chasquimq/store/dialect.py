"""How this server adds and acks. Everything else is Lua that all servers run.

Which dialect a server speaks is asked of the server itself, never read from its version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, get_args

from chasquimq.config import DialectName, StreamOptions, one_of
from chasquimq.store.native import Native
from chasquimq.store.pipe import Pipe
from chasquimq.store.portable import Portable
from chasquimq.store.resp import pack
from chasquimq.wire import Keys
from chasquimq.wire.fault import as_error
from chasquimq.wire.info import parse_info, refuse_dangerous


class Dialect(Protocol):
    """Commands as bytes, one reply each. An instance belongs to one queue."""

    name: DialectName
    safe_to_resend: bool  # may a plain add whose answer was lost be sent again?

    def idmp_max_size(self, options: StreamOptions) -> int: ...

    def add_front(self, job_id: bytes, extras: int) -> bytes:
        """A plain add's command up to `$` of the envelope's length. It has so many fields (0 to 2)
        beside the envelope."""

    def add_own(self, job_id: bytes, fields: Sequence[bytes], marker_s: int) -> bytes:
        """An add whose id the caller chose: a second one is a no-op."""

    def ack(self, ids: Sequence[bytes]) -> bytes: ...

    def acked(self, reply: Any) -> int:
        """How many of an ack's ids were still pending."""


async def choose(pipe: Pipe, forced: DialectName | None) -> DialectName:
    """Ask the server what it can do; refuse one that would lose or crash."""
    if forced is not None:
        one_of("dialect", forced, get_args(DialectName))
    known, facts = await pipe.ask(
        pack("COMMAND", "INFO", "xcfgset") + pack("INFO", "server", "memory"), 2
    )
    if isinstance(facts, bytes):
        refuse_dangerous(parse_info(facts))
    if forced is not None:
        return forced
    if isinstance(known, Exception):
        raise as_error(known, "asking the server for its commands")
    return "native" if known and known[0] else "portable"


def build(
    name: DialectName, keys: Keys, *, group: str = "", producer_id: bytes = b"", trim: int = 0
) -> Dialect:
    kind = Native if name == "native" else Portable
    return kind(keys, group=group, producer_id=producer_id, trim=trim)
