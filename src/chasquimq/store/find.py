"""A drawer to look for jobs: by their ids, wherever they are, or as lists. It changes nothing.

Nothing on the server leads from an id to an entry of the stream or to a retry, so both are walked
through: in pages, each a short command, so that the server serves others in between, and no
further than asked. Where a stream is longer than that, its ends are looked at, and the entries
around the place where jobs stand that were made when the id was, if it tells: see `_place_of`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from chasquimq.errors import WireError
from chasquimq.store import sighting
from chasquimq.store.jobs import place
from chasquimq.store.link import Link
from chasquimq.store.resp import pairs, text
from chasquimq.store.sighting import Row, Sighting
from chasquimq.store.specs import Specs
from chasquimq.store.walk import Progress, Walk, ask_all
from chasquimq.wire import EventRow, Keys, unpack_event
from chasquimq.wire.fault import as_error

SAMPLE = 3  # entries that tell when others around them were made
SKEW_MS = 60_000  # clocks of producers and of Redis differ by less
FEW = 20_000  # so many rows are looked through again for a job that was on its way
_SCORE_AND_FRONT = re.compile(rb"([0-9]{4,}) (.*)", re.DOTALL)
_GONE = -2  # what PTTL says of a key that is not there
_NEVER = "it was given to a worker and settled, but not removed: no worker will get it again"


class Looked(NamedTuple):
    """How far somebody looked."""

    place: str
    rows: int
    total: int

    @property
    def whole(self) -> bool:
        return self.rows >= self.total


class Marker(msgspec.Struct, frozen=True):
    """A key that holds the id. `ttl_ms` is None where it stays."""

    kind: str  # didx, dlid or unique
    value: str
    ttl_ms: int | None


class Stored(msgspec.Struct, frozen=True):
    """A result. `payload` is None where it is too large to be fetched unasked."""

    size: int
    ttl_ms: int | None
    payload: bytes | None


class Origin(msgspec.Struct, frozen=True):
    """The spec that a job's id names."""

    key: str
    window_ms: int | None  # None: somebody made the job by hand
    exists: bool
    job_name: str = ""
    pattern: dict[str, Any] | None = None
    next_fire_ms: int | None = None
    fired: int = 0
    paused: bool = False
    problem: str | None = None


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """All that a queue knows of an id."""

    queue: str
    group: str
    asked: str
    job_id: str  # not what was asked for, if that was an entry's id
    now_ms: int
    sightings: tuple[Sighting, ...]
    result: Stored | None
    markers: tuple[Marker, ...]
    events: tuple[tuple[str, EventRow], ...]  # oldest first
    origin: Origin | None
    looked: tuple[Looked, ...]

    @property
    def found(self) -> bool:
        """Whether there is anything but a spec, which does not make a job."""
        return bool(self.sightings or self.result or self.markers or self.events)


class Find:
    def __init__(
        self,
        keys: Keys,
        link: Link,
        group: str = "default",
        *,
        scan: int = 100_000,
        progress: Progress = lambda rows: None,
    ) -> None:
        self._keys = keys
        self._link = link
        self._group = group
        self._scan = scan
        self._walk = Walk(link, progress)

    async def sizes(self) -> int:
        """How many rows there are to look through at the most."""
        keys = self._keys
        streams = [("XLEN", key) for key in (keys.stream, keys.dlq, keys.events)]
        rows = await ask_all(self._link, [*streams, ("ZCARD", keys.delayed)])
        return sum(min(count, self._scan) for count in rows)

    # -- one job -------------------------------------------------------------------------------

    async def job(self, asked: str, *, events: int = 20, result_bytes: int = 2**62) -> Sought:
        """Look for an id, of a job or of an entry, everywhere."""
        job_id = await self._resolve(asked)
        now_ms = await self._link.clock_ms()
        seen, looked = await self.places(job_id, asked)
        if not seen and sum(place.rows for place in looked) <= FEW:
            seen, looked = await self.places(job_id, asked)  # it may have been moving
        created = [one.created_ms for one in seen if one.created_ms is not None]
        since_ms = min(created, default=sighting.made_ms(job_id) or 0) - SKEW_MS
        told, walked = await self._events(job_id, since_ms, events)
        return Sought(
            queue=self._keys.queue,
            group=self._group,
            asked=asked,
            job_id=job_id,
            now_ms=now_ms,
            sightings=tuple(seen),
            result=await self._result(job_id, result_bytes),
            markers=await self._markers(job_id),
            events=told,
            origin=await self._origin(job_id),
            looked=(*looked, walked),
        )

    async def places(self, job_id: str, asked: str = "") -> tuple[list[Sighting], list[Looked]]:
        """Where a job is now. `asked`: the entry's id that led to it."""
        delayed, in_set = await self._in_delayed(job_id)
        stream, in_stream = await self._in_stream(job_id, asked or job_id)
        dead, in_dlq = await self._in_dlq(job_id, asked or job_id)
        return [*stream, *delayed, *dead], [in_stream, in_set, in_dlq]

    async def due_ms(self, job_id: str) -> int | None:
        """When a job that was delayed is due; None where its id leads to none."""
        indexed = await self._by_index(job_id.encode())
        return None if indexed is None else sighting.due_ms(indexed[1])

    async def _resolve(self, asked: str) -> str:
        """The id of the job in an entry, if that is what was asked for; else the same."""
        for key, read in (
            (self._keys.stream, sighting.in_stream),
            (self._keys.dlq, sighting.in_dlq),
        ):
            for row in await self._entry(key, asked):
                job_id = read(row).job_id
                if job_id is not None:
                    return job_id
        return asked

    async def _in_stream(self, job_id: str, asked: str) -> tuple[list[Sighting], Looked]:
        key, wanted = self._keys.stream, job_id.encode()
        found = {row[0]: sighting.in_stream(row) for row in await self._entry(key, asked)}
        total, seen = await self._link.ask("XLEN", key), set[bytes]()
        for start, end, newest_first, most in await self._parts(total, job_id):
            async for page in self._walk.entries(
                key, most, start=start, end=end, newest_first=newest_first
            ):
                seen.update(row[0] for row in page)
                found |= {row[0]: sighting.in_stream(row) for row in page if _holds(row, wanted)}
        mine = [one for one in found.values() if job_id == one.job_id or asked == one.entry_id]
        return await self._owned(mine), self._far("stream", len(seen), total)

    async def _entry(self, key: bytes, asked: str) -> list[Row]:
        """The entry of a stream that has this id, if it is one of an entry."""
        if not sighting.is_entry_id(asked):
            return []
        return [(row[0], row[1]) for row in await self._link.ask("XRANGE", key, asked, asked)]

    def _far(self, where: str, rows: int, total: int) -> Looked:
        """A walk that was not cut off saw all, also of a queue that shrank meanwhile."""
        return Looked(where, total if rows < self._scan >= total else min(rows, total), total)

    async def _parts(self, total: int, job_id: str) -> list[tuple[str, str, bool, int]]:
        """(from where, to where, backwards, how many): all of it, or the parts that are worth a
        look."""
        if total <= self._scan:
            return [("-", "+", False, self._scan)]
        made_ms = sighting.made_ms(job_id)
        if made_ms is None:
            share = max(1, self._scan // 2)
            return [("-", "+", False, share), ("-", "+", True, share)]
        start, share = await self._place_of(made_ms), max(1, self._scan // 6)
        # All of a bulk was made in one millisecond: most of it stands behind the place.
        around = [(start, "+", False, 3 * share), ("-", start, True, share)]
        return [*around, ("-", "+", False, share), ("-", "+", True, share)]

    async def _place_of(self, made_ms: int) -> str:
        """The entry's id from which on jobs stand that were made then, by their own account.

        Entries tell the server's time of their add, jobs the producer's time of their making.
        Between them lie the difference of two clocks, and as much time as a large bulk takes. But
        what was made later was mostly added later, so some dozens of looks lead there.
        """
        key = self._keys.stream
        ends = [("XRANGE", key, "-", "+", "COUNT", 1), ("XREVRANGE", key, "+", "-", "COUNT", 1)]
        rows = [row for page in await ask_all(self._link, ends) for row in page]
        times = [sighting.entry_ms(row[0].decode()) for row in rows] or [0]
        ms = await self._bisect(made_ms, "{}-0", times[0], times[-1] + 1) - 1
        last = await self._link.ask("XREVRANGE", key, max(ms, 0), max(ms, 0), "COUNT", 1)
        if not last:
            return f"{ms + 1}-0"
        # Thousands may have been added in that millisecond.
        most = int(last[0][0].rpartition(b"-")[2])
        return f"{ms}-{await self._bisect(made_ms, f'{ms}-{{}}', 0, most + 1)}"

    async def _bisect(self, made_ms: int, entry_id: str, low: int, high: int) -> int:
        """The first number for which the entries from this id on were made then, or later."""
        while low < high:
            middle = (low + high) // 2
            page = ("XRANGE", self._keys.stream, entry_id.format(middle), "+", "COUNT", SAMPLE)
            # The middle one of some: retries, and jobs that were delayed, are older than others.
            made = sorted(sighting.made_of((row[0], row[1])) for row in await self._link.ask(*page))
            if not made or made[len(made) // 2] >= made_ms:
                high = middle
            else:
                low = middle + 1
        return low

    async def _owned(self, entries: list[Sighting]) -> list[Sighting]:
        """The same, and which of them somebody runs."""
        if not entries:
            return []
        key, group = self._keys.stream, self._group
        last = await last_delivered(self._link, key, group)
        ids = [one.entry_id or "" for one in entries]
        replies = await self._link.ask_each(*(("XPENDING", key, group, i, i, 1) for i in ids))
        owned = []
        for one, reply in zip(entries, replies, strict=True):
            if isinstance(reply, Exception) and not str(reply).startswith("NOGROUP"):
                raise as_error(reply, "XPENDING")
            held = [] if isinstance(reply, Exception) else reply
            if held:
                one = held_by(one, held[0])
            elif one.entry_id and place(one.entry_id.encode()) <= place(last):
                one = msgspec.structs.replace(one, trouble=one.trouble or _NEVER)
            owned.append(one)
        return owned

    async def _in_delayed(self, job_id: str) -> tuple[list[Sighting], Looked]:
        wanted, found = job_id.encode(), dict[bytes, Sighting]()
        indexed = await self._by_index(wanted)
        if indexed is not None:
            member, score = indexed
            found[member] = sighting.in_delayed(member, score, indexed=True)
        total, rows = await self._link.ask("ZCARD", self._keys.delayed), 0
        async for page in self._walk.members(self._keys.delayed, self._scan):
            rows += len(page)
            for member, score in page:
                if wanted in member and member not in found:
                    seen = sighting.in_delayed(member, score, indexed=False)
                    if seen.job_id == job_id:
                        found[member] = seen
        return list(found.values()), self._far("delayed", rows, total)

    async def _by_index(self, job_id: bytes) -> tuple[bytes, float] | None:
        """The member that a job's side-index leads to, and its score; see `delayed.py`."""
        key = self._keys.delayed
        index = await self._link.ask("GET", self._keys.didx(job_id))
        if index is None:
            return None
        pointer = _SCORE_AND_FRONT.fullmatch(index) if index[2:4] != b"\0\0" else None
        if pointer is None:
            score = await self._link.ask("ZSCORE", key, index)
            return None if score is None else (index, float(score))
        at, wanted = pointer[1], pointer[2] + job_id
        low = await self._link.ask("ZCOUNT", key, "-inf", b"(" + at)
        high = low + await self._link.ask("ZCOUNT", key, at, at)
        while low < high:  # members of one score lie in the order of their bytes
            middle = (low + high) // 2
            row = await self._link.ask("ZRANGE", key, middle, middle)
            if row and row[0].startswith(wanted):
                return row[0], float(at)
            if row and row[0] < wanted:
                low = middle + 1
            else:
                high = middle
        return None

    async def _in_dlq(self, job_id: str, asked: str) -> tuple[list[Sighting], Looked]:
        key, wanted = self._keys.dlq, job_id.encode()
        found = {row[0]: sighting.in_dlq(row) for row in await self._entry(key, asked)}
        total, rows = await self._link.ask("XLEN", key), 0
        async for page in self._walk.entries(key, self._scan, newest_first=True):
            rows += len(page)
            for row in page:
                if _holds(row, wanted) or _holds(row, asked.encode()):
                    seen = sighting.in_dlq(row)
                    if seen.job_id == job_id or asked in (seen.entry_id, seen.source_id):
                        found[row[0]] = seen
        return list(found.values()), self._far("DLQ", rows, total)

    async def _events(
        self, job_id: str, since_ms: int, most: int
    ) -> tuple[tuple[tuple[str, EventRow], ...], Looked]:
        """The newest events of a job, oldest first; none can be older than the job."""
        key, wanted, found = self._keys.events, job_id.encode(), list[tuple[str, EventRow]]()
        total, rows, end = await self._link.ask("XLEN", key), 0, False
        start = str(since_ms) if since_ms > 0 else "-"
        async for page in self._walk.entries(key, self._scan, start=start, newest_first=True):
            rows += len(page)
            for entry_id, fields in page:
                if fields is not None and wanted in fields:
                    event = _event(fields)
                    if event is not None and event.job_id == job_id:
                        found.append((entry_id.decode(), event))
            if len(found) >= most:
                break
        else:
            end = rows < self._scan
        return tuple(reversed(found[:most])), Looked("events", total if end else rows, total)

    async def _result(self, job_id: str, most: int) -> Stored | None:
        key = self._keys.result(job_id)
        size, ttl = await ask_all(self._link, [("STRLEN", key), ("PTTL", key)])
        if ttl == _GONE:
            return None
        payload = await self._link.ask("GET", key) if size <= most else None
        return Stored(size, _ttl(ttl), payload)

    async def _markers(self, job_id: str) -> tuple[Marker, ...]:
        kinds = {
            "didx": self._keys.didx(job_id),
            "dlid": self._keys.dlid(job_id),
            "unique": self._keys.unique(job_id),
        }
        asked = [command for key in kinds.values() for command in (("GET", key), ("PTTL", key))]
        replies = await ask_all(self._link, asked)
        found = []
        for kind, value, ttl in zip(kinds, replies[::2], replies[1::2], strict=True):
            if value is not None:
                # The index may be a copy of the whole job, which is shown elsewhere.
                told = f"{len(value)} bytes" if kind == "didx" else value.decode(errors="replace")
                found.append(Marker(kind, told, _ttl(ttl)))
        return tuple(found)

    async def _origin(self, job_id: str) -> Origin | None:
        """The spec of a fire, `<key>@<ms>`, or of one that was made by hand."""
        key, _, end = job_id.rpartition("@")
        if not key or sighting.made_ms(job_id) is None:
            return None
        window_ms = int(end) if end.isdigit() and len(end) < 20 else None
        seen = (await Specs(self._keys, self._link).see(key))[1]
        if not seen.armed and seen.packed is None:
            return Origin(key, window_ms, exists=False) if window_ms is not None else None
        told = Origin(
            key, window_ms, exists=True, next_fire_ms=seen.stood, fired=seen.fired,
            paused=seen.paused, problem=seen.problem,
        )  # fmt: skip
        try:
            spec = seen.read()
        except WireError as error:
            return msgspec.structs.replace(told, problem=str(error.args[0]))
        return msgspec.structs.replace(told, job_name=spec.job_name, pattern=spec.pattern.to_dict())


async def last_delivered(link: Link, stream: bytes, group: str) -> bytes:
    """The newest entry that a group has given to anyone; `0-0` where there is no such group."""
    [groups] = await link.ask_each(("XINFO", "GROUPS", stream))
    if isinstance(groups, Exception):
        if "no such key" in str(groups):
            return b"0-0"
        raise as_error(groups, "XINFO")
    for row in groups:
        facts = pairs(row)
        if facts[b"name"] == group.encode():
            return bytes(facts[b"last-delivered-id"])
    return b"0-0"


def held_by(one: Sighting, pending: list[Any]) -> Sighting:
    """The same entry, and who has it, as XPENDING tells."""
    _, consumer, idle_ms, deliveries = pending
    return msgspec.structs.replace(
        one,
        state="running",
        consumer=text(consumer),
        idle_ms=idle_ms,
        deliveries=deliveries,
    )


def _holds(row: Row, wanted: bytes) -> bool:
    """Whether an id may be in a row: its bytes are. Looking closer costs a hundred times more."""
    return row[1] is not None and any(wanted in value for value in row[1][1::2])


def _event(fields: list[bytes]) -> EventRow | None:
    try:
        return unpack_event(fields)
    except WireError:
        return None


def _ttl(ms: int) -> int | None:
    return ms if ms >= 0 else None
