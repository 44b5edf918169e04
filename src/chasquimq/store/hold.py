"""The drawer of the key that is there while a queue is paused: its workers read nothing then.

Any value means "paused", also an empty one: newer releases of the reference write their own. Ours
is for the operator who finds it: when, from where, and why.
"""

from __future__ import annotations

import logging
import os
import socket
from datetime import UTC, datetime
from typing import Any, NamedTuple

from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.store.link import Link, reads_replies
from chasquimq.store.resp import Arg, pack, pairs, text
from chasquimq.wire import Keys
from chasquimq.wire.fault import Fault, as_error, classify

log = logging.getLogger("chasquimq.redis")

# `give_back` makes what it leaves pending look so idle: nobody runs it. 24 days are less, and more
# than anybody's lease.
GIVEN_BACK_MS = 24 * 86_400_000
SOME = 10_000
LONGEST_REASON = 1_000
PAUSE = b"pause"  # said to the workers when a pause begins or ends


class Unfinished(NamedTuple):
    """What the consumers of one group have taken and not settled."""

    group: str
    running: int
    holders: tuple[tuple[str, int], ...]  # consumers, and how many each has


@reads_replies
class Hold:
    def __init__(self, keys: Keys, link: Link) -> None:
        self.question = pack("EXISTS", keys.paused)  # for a pipe, behind a read; one reply
        self._keys = keys
        self._link = link
        self._untold = False

    # -- for those who work ------------------------------------------------------------------

    @property
    def keys(self) -> tuple[bytes, ...]:
        """For scripts that take nothing while the queue is paused; none, if we may not ask."""
        return () if self._untold else (self._keys.paused,)

    def heard(self, reply: Any) -> bool:
        """What the answer to the question means. Who may not ask works on; a server that cannot
        answer now may hold a pause, and is to be asked again."""
        if not isinstance(reply, Exception):
            if type(reply) is not int:
                raise TypeError(f"EXISTS was answered with {type(reply).__name__}")
            self._untold = False
            return bool(reply)
        if classify(reply) not in (Fault.ACCESS, Fault.REFUSED, Fault.DIALECT):
            return True
        if not self._untold:
            self._untold = True
            log.warning(
                "cannot see whether queue %r is paused, so this worker does not heed pauses; "
                "allow its user the command EXISTS on %s: %s",
                self._keys.queue,
                self._keys.paused.decode(),
                reply,
            )
        return False

    async def look(self) -> bool:
        """Whether to hold; StoreUnavailableError if the server cannot say now."""
        [reply] = await self._link.ask_each(("EXISTS", self._keys.paused))
        paused = self.heard(reply)
        if paused and isinstance(reply, Exception):
            raise as_error(reply, "EXISTS")
        return paused

    # -- for those who pause -----------------------------------------------------------------

    async def is_there(self) -> bool:
        return bool(await self._link.ask("EXISTS", self._keys.paused))

    async def put(self, now_ms: int, reason: str | None = None) -> bool:
        """Pause; False if the queue was paused before, and the note that is there stays."""
        note = noted(now_ms, reason)
        return await self._tell("SET", self._keys.paused, note, "NX") is not None

    async def lift(self) -> bool:
        """Resume; False if the queue was not paused."""
        return bool(await self._tell("DEL", self._keys.paused))

    async def _tell(self, *command: Arg) -> Any:
        """Have workers look at once. Who may not publish is not heard: they look by themselves."""
        reply, _ = await self._link.ask_each(command, ("PUBLISH", self._keys.wake, PAUSE))
        if isinstance(reply, Exception):
            raise as_error(reply, str(command[0]))
        return reply

    async def note(self) -> str | None:
        """What the one who paused left to read, maybe nothing; None: not paused."""
        there, said = await self._link.ask_each(
            ("EXISTS", self._keys.paused), ("GET", self._keys.paused)
        )
        if isinstance(there, Exception):
            raise as_error(there, "EXISTS")
        if not there or said is None:
            return None
        # Some other type than a string is a pause, too, with nothing to read.
        return "" if isinstance(said, Exception) else text(bytes(said))

    async def unfinished(self) -> list[Unfinished]:
        """What runs, or is held to be run, in each group of workers; without what was given back
        and waits to be claimed."""
        stream = self._keys.stream
        [groups] = await self._link.ask_each(("XINFO", "GROUPS", stream))
        if isinstance(groups, Exception):
            if "no such key" in str(groups):
                return []
            raise as_error(groups, "XINFO")
        found = []
        for row in groups:
            name = bytes(pairs(row)[b"name"])
            summary, given_back = await self._link.ask_each(
                ("XPENDING", stream, name),
                ("XPENDING", stream, name, "IDLE", GIVEN_BACK_MS, "-", "+", SOME),
            )
            for reply in (summary, given_back):
                if isinstance(reply, Exception):
                    raise as_error(reply, "XPENDING")
            held = {bytes(who): int(count) for who, count in summary[3] or ()}
            for entry in given_back:
                held[bytes(entry[1])] = held.get(bytes(entry[1]), 0) - 1
            holders = tuple((text(who), count) for who, count in held.items() if count > 0)
            running = sum(count for _, count in holders)
            found.append(Unfinished(text(name), running, holders))
        return found


def noted(now_ms: int, reason: str | None) -> str:
    """When, from where and why, for whoever finds the key."""
    if reason is not None and not isinstance(reason, str):
        raise ArgumentError(f"reason is a text or None, got {type(reason).__name__}")
    if reason is not None and len(reason) > LONGEST_REASON:
        raise ConfigError(
            f"a reason has {LONGEST_REASON} characters at the most, got {len(reason)}"
        )
    at = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    where = f"{at} by process {os.getpid()} on {socket.gethostname()}"
    return f"{where}: {reason}" if reason else where
