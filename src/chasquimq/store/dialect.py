"""How this server adds and acks. Everything else is Lua that all servers run.

Which dialect a server speaks is asked of the server itself, never read from its version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, get_args

from chasquimq import lua
from chasquimq.config import DialectName, StreamOptions, one_of
from chasquimq.errors import StoreError
from chasquimq.store.native import Native
from chasquimq.store.pipe import Pipe
from chasquimq.store.portable import Portable
from chasquimq.store.resp import pack, unpack
from chasquimq.wire import Keys
from chasquimq.wire.fault import as_error
from chasquimq.wire.info import parse_info, refuse_dangerous

ADDED, KNOWN = 1, 2  # what an add of an own id is answered; KNOWN by a send of our own, perhaps


class Dialect(Protocol):
    """Commands as bytes, one reply each. An instance belongs to one queue."""

    name: DialectName
    safe_to_resend: bool  # may a plain add whose answer was lost be sent again?

    def idmp_max_size(self, options: StreamOptions) -> int: ...

    def add_front(self, job_id: bytes, extras: int) -> bytes:
        """A plain add's command up to `$` of the envelope's length. It has so many fields (0 to 2)
        beside the envelope."""

    def add_own(self, job_id: bytes, fields: Sequence[bytes], marker_s: int) -> bytes:
        """An add whose id the caller chose: a second one is a no-op. Reply: ADDED or KNOWN."""

    def ack(self, ids: Sequence[bytes]) -> bytes: ...

    def acked(self, reply: Any) -> int:
        """How many of an ack's ids were still pending."""


_QUESTION = pack("COMMAND", "INFO", "xcfgset")


class Add(NamedTuple):
    """What an add was written from. `own`: the caller chose the job's id."""

    own: bool
    fields: list[bytes]


def read_add(command: bytes) -> Add | None:
    """An add that one of the dialects wrote; None for those that are the same in both."""
    words = unpack(command)
    if words[0] == b"XADD":
        return Add(False, words[words.index(b"*", 2) + 1 :])
    if words[1].decode() in (lua.SHA["add_own"], lua.SHA["add_once"]):
        return Add(True, words[7:])
    return None


async def choose(pipe: Pipe, forced: DialectName | None) -> DialectName:
    """Ask the server what it can do; refuse one that would lose or crash."""
    if forced is not None:
        one_of("dialect", forced, get_args(DialectName))
    known, facts = await pipe.ask(_QUESTION + pack("INFO", "server", "memory"), 2)
    if isinstance(facts, bytes):
        refuse_dangerous(parse_info(facts))
    return _read(known, forced)


async def ask_again(pipe: Pipe, forced: DialectName | None) -> DialectName:
    """Ask the server of another connection what it can do."""
    [known] = await pipe.ask(_QUESTION)
    return _read(known, forced)


def _read(known: Any, forced: DialectName | None) -> DialectName:
    if forced == "native" and not isinstance(known, Exception) and not (known and known[0]):
        raise StoreError(
            "dialect='native' was forced, but this server does not speak it: it has no XCFGSET, "
            "which Redis has since 8.6.2. Leave dialect out, or give the address of such a server"
        )
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
