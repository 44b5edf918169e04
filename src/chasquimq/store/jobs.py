"""The stream's drawer, as a consumer sees it: read, settle, give back, leave, sweep.

What is hot (read, ack, retry, bury) comes as bytes for a pipe, one reply each; the rest are
round trips over the store's own link.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from chasquimq import lua, wire
from chasquimq.config import MAX_MS, U32, DialectName, StreamOptions
from chasquimq.errors import WireError
from chasquimq.store import markers
from chasquimq.store.dialect import Dialect, build
from chasquimq.store.link import Link, reads_replies
from chasquimq.store.pipe import SHAPE_ERRORS
from chasquimq.store.resp import Arg, bulk, pack, pairs
from chasquimq.wire import Keys
from chasquimq.wire.right import RUNNING, asked

Row = list[Any]  # [entry id, fields] or [entry id, fields, idle ms, deliveries before this one]

FIRST = b"-"  # in a place where an entry id says where to go on: at the beginning
LAST = b"+"


class Sweep(NamedTuple):
    """What one sweep removed; `after` is the entry to look behind next."""

    leads: bool
    ghosts: int = 0
    consumers: int = 0
    after: bytes = FIRST
    more: bool = False


class Holder(NamedTuple):
    """The job that holds a unique id, as its marker knows it."""

    job_id: str
    created_ms: int


class Kept(NamedTuple):
    """The result of a job that is done, and the entry to ack."""

    entry_id: bytes
    job_id: str
    result: bytes


class Abandoned(NamedTuple):
    """A page of what silent consumers have left; `after` is the entry to look behind next."""

    after: bytes
    records: dict[bytes, bytes]  # consumer -> what it had started: wire/started.py
    rows: list[tuple[bytes, bytes, int, int]]  # entry id, consumer, idle ms, deliveries


class Memory(NamedTuple):
    """How many added ids the server remembers of each producer, and for how long."""

    ids: int
    seconds: int


@reads_replies
class Jobs:
    def __init__(self, keys: Keys, dialect: Dialect, link: Link, group: str, consumer: str) -> None:
        self.dialect = dialect
        self.consumer = consumer
        self.group = group
        self._keys = keys
        self._link = link

    @property
    def queue(self) -> str:
        return self._keys.queue

    def speak(self, name: DialectName | None) -> None:
        """Another server has come, perhaps, and knows other commands."""
        if name is not None and name != self.dialect.name:
            self.dialect = build(name, self._keys, group=self.group)

    # -- commands for a pipe ---------------------------------------------------------------

    def read(self, count: int, block_ms: int) -> bytes:
        who = b"$10\r\nXREADGROUP\r\n$5\r\nGROUP\r\n%b%b" % (bulk(self.group), bulk(self.consumer))
        how = b"$5\r\nCOUNT\r\n%b$5\r\nBLOCK\r\n%b" % (bulk(count), bulk(block_ms))
        return b"*11\r\n%b%b$7\r\nSTREAMS\r\n%b$1\r\n>\r\n" % (who, how, bulk(self._keys.stream))

    def retry(
        self, entry_id: bytes, delay_ms: int, member: bytes, unique: Holder | None = None
    ) -> bytes:
        """Reply: 1 moved, 0 no longer ours. A unique id stays taken meanwhile."""
        keys = (self._keys.stream, self._keys.delayed, *self._marker(unique))
        args: list[Arg] = [self.group, self.consumer, entry_id, delay_ms, member, self._keys.wake]
        if unique is not None:
            args.append(unique.created_ms)
        return pack(*lua.call("retry", keys, args))

    def bury(
        self, entry_id: bytes, fields: Sequence[bytes], trim: int, unique: Holder | None = None
    ) -> bytes:
        """Reply: the DLQ's length, 0 no longer ours. A unique id is free again."""
        keys = (self._keys.stream, self._keys.dlq, *self._marker(unique))
        who = (self.group, self.consumer, entry_id)
        created_ms = unique.created_ms if unique is not None else 0
        return pack(*lua.call("bury", keys, (*who, trim, created_ms, markers.MEMORY_S, *fields)))

    def finish(self, kept: Sequence[Kept], ttl_s: int) -> bytes:
        """Reply: how many results are kept and their entries acked; the others were no longer
        ours."""
        keys = [self._keys.stream, *[self._keys.result(one.job_id) for one in kept]]
        args: list[Arg] = [self.group, self.consumer, ttl_s]
        for one in kept:
            args += (one.entry_id, one.result)
        return pack(*lua.call("finish", keys, args))

    def free(
        self, entry_id: bytes, unique: Holder, result: bytes | None = None, ttl_s: int = 0
    ) -> bytes:
        """Ack the entry of a unique job, and keep its result if there is one; its id is free
        again. Reply: 1 done, 0 no longer ours."""
        keys = (self._keys.stream, *self._marker(unique))
        who = (self.group, self.consumer, entry_id)
        args: tuple[Arg, ...] = (*who, unique.created_ms, markers.MEMORY_S)
        if result is not None:
            keys += (self._keys.result(unique.job_id),)
            args += (ttl_s, result)
        return pack(*lua.call("free", keys, args))

    def _marker(self, unique: Holder | None) -> tuple[bytes, ...]:
        return (self._keys.unique(unique.job_id),) if unique is not None else ()

    def ack_held(self, ids: Sequence[bytes]) -> bytes:
        """Reply: how many were still ours; the others are left alone."""
        return pack(*lua.call("ack_held", (self._keys.stream,), (self.group, self.consumer, *ids)))

    def knock(self) -> bytes:
        """A write that changes nothing, of the kind by which others would take over our jobs."""
        return pack("XCLAIM", self._keys.stream, self.group, self.consumer, 0, "0-0", "JUSTID")

    def lacking(self) -> bytes:
        """Reply: the commands of a worker that our user may not run."""
        return pack(*lua.call("may", (self._keys.stream,), asked(RUNNING)))

    # -- round trips -----------------------------------------------------------------------

    async def join(self, options: StreamOptions, *, again: bool = False) -> None:
        """Create the stream and the group where they are missing; `again`: they were lost."""
        dialect, pipe = self.dialect, await self._link.soon_up()
        if pipe.dialect is not None:  # that of acks follows when their own connection is mended
            dialect = build(pipe.dialect, self._keys)
        await open_stream(self._link, self._keys, dialect, options, self.group, again=again)

    async def clock_ms(self) -> int:
        """What time it is, by the server's clock."""
        return await self._link.clock_ms()

    async def abandoned(
        self,
        idle_ms: int,
        after: bytes = FIRST,
        *,
        until: bytes = LAST,
        count: int = 500,
        consumer: str | None = None,
    ) -> Abandoned:
        """A page of what has been pending for `idle_ms` without a sign of life of its consumer, or
        of the only one that is named: then what has lost its body as well, with -1 deliveries."""
        args: list[Arg] = [self.group, idle_ms, after, until, count, self._keys.started]
        if consumer is not None:
            args.append(consumer)
        after, told, *rows = await self._link.run("abandoned", (self._keys.stream,), args)
        records = dict(zip(told[::2], told[1::2], strict=True))
        pending = [(entry_id, owner, int(idle), int(many)) for entry_id, owner, idle, many in rows]
        return Abandoned(after, records, pending)

    async def started_upto(
        self, consumer: bytes, record: bytes, started: wire.Started
    ) -> wire.Upto | None:
        """Write down which are the last entries that a silent consumer may have started, and answer
        them; None if its record has changed, or nothing is pending under its name."""
        keys = (self._keys.stream, self._keys.started)
        first = (started.slots, started.slots + started.acks)
        args = (self.group, consumer, record, *first, wire.UPTO, started.runs)
        last = await self._link.run("started_upto", keys, args)
        return None if last is None else wire.Upto(*last)

    async def requeue(
        self, ids: Sequence[bytes], consumer: bytes, idle_ms: int, not_after_ms: int = MAX_MS
    ) -> list[bytes]:
        """Put back what a silent consumer had only read ahead; nobody is charged. Answers the ids
        of those that were put back."""
        args: list[Arg] = [self.group, consumer, idle_ms, not_after_ms, *ids]
        return list(await self._link.run("requeue", (self._keys.stream,), args))

    async def claim(
        self,
        ids: Sequence[bytes],
        idle_ms: int | None,
        not_after_ms: int = MAX_MS,
        unless: tuple[bytes, ...] = (),
    ) -> list[Row]:
        """Take over entries that other consumers have left lying, or (None) what is still pending
        under our own name; nothing, if it gets there too late, or while the key `unless` is there.

        One script on all servers: `XREADGROUP ... CLAIM` knows no such limit."""
        silent: Arg = "own" if idle_ms is None else idle_ms
        args: list[Arg] = [self.group, self.consumer, silent, not_after_ms, *ids]
        return rows_of(await self._link.run("claim", (self._keys.stream, *unless), args))

    async def forget(self, ids: Sequence[bytes]) -> None:
        """Drop pending entries whose bodies are gone, and with them the jobs."""
        if ids:
            await self._link.ask("XACK", self._keys.stream, self.group, *ids)

    async def adopt(self, count: int) -> list[Row]:
        """What is pending under our name; for after a read whose reply was lost."""
        keys, args = (self._keys.stream,), (self.group, self.consumer, count)
        return rows_of(await self._link.run("adopt", keys, args))

    async def last_delivered(self) -> bytes:
        """The newest entry that the group has delivered to anyone."""
        for row in await self._link.ask("XINFO", "GROUPS", self._keys.stream):
            facts = pairs(row)
            if facts[b"name"] == self.group.encode():
                return bytes(facts[b"last-delivered-id"])
        return b"0-0"

    async def give_back(self, rows: Iterable[Row]) -> int:
        """Let others run what we hold and did not run; no delivery is charged."""
        held = {row[0]: row for row in rows}
        if not held:
            return 0
        args: list[Arg] = [self.group, self.consumer]
        for entry_id, row in held.items():
            args += (entry_id, _deliveries(row))
        back, *bare = await self._link.run("give_back", (self._keys.stream,), args)
        for entry_id in bare:
            back += await self._restore(held[entry_id])
        return int(back)

    async def give_back_charged(self, rows: Sequence[Row]) -> int:
        """Let others run what we began and did not end; this run is counted."""
        calls = [self._restoring(row, _deliveries(row) + 1) for row in rows]
        keys = [(self._keys.stream,)] * len(calls)
        return sum(await self._link.run_each("restore", keys, calls)) if calls else 0

    async def _restore(self, row: Row) -> int:
        """Give back what was trimmed or deleted in the stream meanwhile: we still have it."""
        if not row[1]:
            return 0
        args = self._restoring(row, _deliveries(row))
        return int(await self._link.run("restore", (self._keys.stream,), args))

    def _restoring(self, row: Row, deliveries: int) -> list[Arg]:
        return [self.group, self.consumer, row[0], *_charged(row[1], deliveries)]

    async def renew(
        self, link: Link, ids: Sequence[bytes], young_ms: int = 0, started: bytes = b""
    ) -> list[bytes]:
        """Keep our hold on these, except on what has been idle for less than `young_ms`, and write
        down our record of what we have started; answers those that are no longer ours. Leases
        have a link (and an event loop) of their own."""
        lost: list[bytes] = []
        ours: list[Arg] = [self.group, self.consumer, young_ms, self._keys.started, started]
        while True:
            reply = await link.run("renew", (self._keys.stream,), [*ours, *ids])
            try:
                looked_at, *gone = reply
                if ids and looked_at < 1:
                    raise ValueError(f"looked at {looked_at} of {len(ids)}")
                ids = ids[looked_at:]
            except SHAPE_ERRORS as error:
                raise link.mangled(error) from error  # not our own link, which is another loop's
            lost += gone
            if not ids:
                return lost

    async def leave(self) -> bool:
        """Take our name off the group, unless something is still pending under it."""
        keys, args = (self._keys.stream,), (self.group, self.consumer)
        while (left := await self._link.run("leave", keys, args)) < 0:
            pass
        return bool(left)

    async def forget_started(self) -> None:
        """Remove our record of what we have started."""
        await self._link.ask("HDEL", self._keys.started, self.consumer)

    async def sweep(
        self,
        ghost_idle_ms: int,
        consumer_idle_ms: int,
        after: bytes = FIRST,
        *,
        look_at: int = 1_000,
        names: int = 500,
    ) -> Sweep:
        """Remove what silent consumers left and nobody can use: pending entries without a body,
        and names with nothing pending. Only while we hold the promoter's lock."""
        keys = (self._keys.stream, self._keys.promoter_lock)
        args: list[Arg] = [self.group, self.consumer, ghost_idle_ms, consumer_idle_ms]
        args += (after, look_at, names, self._keys.started)
        reply = await self._link.run("sweep", keys, args)
        if len(reply) == 1:
            return Sweep(leads=False)
        ghosts, removed, after = reply
        return Sweep(True, ghosts, removed, after, after != FIRST or removed == names)

    async def unblock(self, client_id: int) -> None:
        """End a blocked read on another connection, without losing what it may just get."""
        await self._link.ask("CLIENT", "UNBLOCK", client_id)


def rows_of(reply: Any) -> list[Row]:
    """The rows of a reply; TypeError if they are none. Looks at the first and the last: a reply
    to another command shows there, and a look at each would cost every job."""
    if type(reply) is not list:
        raise TypeError(f"a list of entries belongs where {type(reply).__name__} is")
    for row in (reply[0], reply[-1]) if reply else ():
        if len(row) < 2 or type(row[0]) is not bytes or not isinstance(row[1], list | None):
            raise TypeError("something else is where an entry belongs")
    return reply


def place(entry_id: bytes) -> tuple[int, int]:
    """An entry id, to be compared."""
    ms, _, seq = entry_id.partition(b"-")
    return int(ms), int(seq or 0)


def _deliveries(row: Row) -> int:
    """How often it had been delivered before us."""
    return row[3] if len(row) > 3 else 0


def _charged(fields: Sequence[bytes], deliveries: int) -> Sequence[bytes]:
    """A new entry counts deliveries anew, so those before it go into the envelope."""
    split = wire.split_entry(fields)
    if not deliveries or isinstance(split, str):
        return fields
    body, name = split
    try:
        envelope = wire.unpack_envelope(body)
    except WireError:
        return fields
    envelope.attempt = min(envelope.attempt + deliveries, U32)
    hint, carrier = wire.unique_hint(fields), wire.carrier_of(fields)
    return wire.join_entry(wire.pack_envelope(envelope), name, hint, carrier)


async def open_stream(
    link: Link,
    keys: Keys,
    dialect: Dialect,
    options: StreamOptions,
    group: str = "",
    *,
    again: bool = False,
) -> Memory:
    """Make sure the stream is there; answers how well the server remembers added ids."""
    args = (group, dialect.idmp_max_size(options), options.idmp_duration_s, int(again))
    _, ids, seconds = await link.run("open_stream", (keys.stream,), args)
    return Memory(ids, seconds)
