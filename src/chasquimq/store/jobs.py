"""The stream's drawer, as a consumer sees it: read, settle, give back, leave.

What is hot (read, ack, retry, bury) comes as bytes for a pipe, one reply each; the rest are
round trips over the store's own link.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from chasquimq import lua
from chasquimq.config import StreamOptions
from chasquimq.store.dialect import Dialect
from chasquimq.store.link import Link
from chasquimq.store.resp import Arg, bulk, pack
from chasquimq.wire import Keys

Row = list[Any]  # [entry id, fields] or [entry id, fields, idle ms, deliveries before this one]


class Jobs:
    def __init__(self, keys: Keys, dialect: Dialect, link: Link, group: str, consumer: str) -> None:
        self.dialect = dialect
        self.consumer = consumer
        self.group = group
        self._keys = keys
        self._link = link

    # -- commands for a pipe ---------------------------------------------------------------

    def read(self, count: int, block_ms: int) -> bytes:
        who = b"$10\r\nXREADGROUP\r\n$5\r\nGROUP\r\n%b%b" % (bulk(self.group), bulk(self.consumer))
        how = b"$5\r\nCOUNT\r\n%b$5\r\nBLOCK\r\n%b" % (bulk(count), bulk(block_ms))
        return b"*11\r\n%b%b$7\r\nSTREAMS\r\n%b$1\r\n>\r\n" % (who, how, bulk(self._keys.stream))

    def retry(self, entry_id: bytes, delay_ms: int, member: bytes) -> bytes:
        """Reply: 1 moved, 0 no longer ours."""
        keys = (self._keys.stream, self._keys.delayed)
        who = (self.group, self.consumer, entry_id)
        return pack(*lua.call("retry", keys, (*who, delay_ms, member, self._keys.wake)))

    def bury(self, entry_id: bytes, fields: Sequence[bytes], trim: int) -> bytes:
        """Reply: the DLQ's length, 0 no longer ours."""
        keys = (self._keys.stream, self._keys.dlq)
        who = (self.group, self.consumer, entry_id)
        return pack(*lua.call("bury", keys, (*who, trim, *fields)))

    def finish(self, entry_id: bytes, job_id: str, result: bytes, ttl_s: int) -> bytes:
        """Reply: 1 the result is kept and the entry acked, 0 no longer ours."""
        keys = (self._keys.stream, self._keys.result(job_id))
        who = (self.group, self.consumer, entry_id)
        return pack(*lua.call("finish", keys, (*who, ttl_s, result)))

    def ack_held(self, ids: Sequence[bytes]) -> bytes:
        """Reply: how many were still ours; the others are left alone."""
        return pack(*lua.call("ack_held", (self._keys.stream,), (self.group, self.consumer, *ids)))

    # -- round trips -----------------------------------------------------------------------

    async def join(self, options: StreamOptions, *, again: bool = False) -> None:
        """Create the stream and the group where they are missing; `again`: they were lost."""
        await open_stream(self._link, self._keys, self.dialect, options, self.group, again=again)

    async def claim(self, idle_ms: int, count: int) -> list[Row]:
        """Take over what other consumers have left lying; may bring new entries, too."""
        command = self.dialect.claim(self.group, self.consumer, idle_ms, count)
        return self.dialect.claimed(await self._link.ask(*command))

    async def adopt(self, count: int) -> list[Row]:
        """What is pending under our name; for after a read whose reply was lost."""
        keys, args = (self._keys.stream,), (self.group, self.consumer, count)
        return list(await self._link.run("adopt", keys, args))

    async def take_back(self, after: bytes = b"-") -> Row | None:
        """One entry that an earlier run under our name left, behind `after`; it counts as a run."""
        keys, args = (self._keys.stream,), (self.group, self.consumer, after)
        return list(await self._link.run("take_back", keys, args)) or None

    async def give_back(self, rows: Iterable[Row]) -> int:
        """Let others run what we hold and did not run; no delivery is charged."""
        args: list[Arg] = [self.group, self.consumer]
        for row in rows:
            args += (row[0], row[3] if len(row) > 3 else 0)
        if len(args) == 2:
            return 0
        return int(await self._link.run("give_back", (self._keys.stream,), args))

    async def renew(self, link: Link, ids: Sequence[bytes]) -> list[bytes]:
        """Keep our hold on these; answers those that are no longer ours. Leases have a link
        (and an event loop) of their own."""
        args: list[Arg] = [self.group, self.consumer, *ids]
        return list(await link.run("renew", (self._keys.stream,), args))

    async def leave(self) -> bool:
        """Take our name off the group, unless something is still pending under it."""
        keys, args = (self._keys.stream,), (self.group, self.consumer)
        return bool(await self._link.run("leave", keys, args))

    async def unblock(self, client_id: int) -> None:
        """End a blocked read on another connection, without losing what it may just get."""
        await self._link.ask("CLIENT", "UNBLOCK", client_id)


async def open_stream(
    link: Link,
    keys: Keys,
    dialect: Dialect,
    options: StreamOptions,
    group: str = "",
    *,
    again: bool = False,
) -> int:
    """Make sure the stream is there; answers how many added ids the server remembers."""
    args = (group, dialect.idmp_max_size(options), options.idmp_duration_s, int(again))
    _, idmp_max_size = await link.run("open_stream", (keys.stream,), args)
    return int(idmp_max_size)
