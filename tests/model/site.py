"""One server of the model: the store's own verbs on a queue, and what Redis holds, as a View.

Time is not waited for. Entries are made to look idle, and a score that a script took from the
server's clock is checked and then replaced by the model's, so that all servers agree on the order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from chasquimq import wire
from chasquimq.config import ConnectOptions, StreamOptions
from chasquimq.errors import StoreUnavailableError, WireError
from chasquimq.job import Due, Envelope
from chasquimq.store import Delayed, Holder, Jobs, Row
from chasquimq.store.dead import Replay, revive
from chasquimq.store.exam import queue as exam
from chasquimq.store.exam.queue import Patience
from chasquimq.store.exam.remedy import Remedy
from chasquimq.store.inspect import Inspect
from chasquimq.store.resp import pairs
from chasquimq.store.specs import Seen
from chasquimq.wire import Exported
from tests.model.book import AHEAD, ONCE, SPECS, UNIQUE, WHO, Book, Entry, Spec, Told, View, ident
from tests.servers import DialectServer
from tests.store.faulty import wipe
from tests.store.shelf import GROUP, Shelf, claim

NAME = b"work"
LIMIT = b"3600"  # seconds for which an id is unique, at the most
LEASE_MS = 600_000  # longer than a program takes on the slowest of machines
IDLE_MS = 2 * LEASE_MS
RETRIES_S = 30.0
# A machine that stands still for a while is no finding.
PATIENT = ConnectOptions(timeout_ms=60_000, reply_ms=60_000, retry_ms=5, max_retry_ms=50)


class Site:
    def __init__(self, server: DialectServer, queue_name: str) -> None:
        self.name = server.name
        self.server = server.server
        self.shelf = Shelf(server, queue_name)
        self.shelf.store = self.shelf.new_store(options=PATIENT)
        self.shelf.links = [self.shelf.store.link]
        self.ids: dict[int, bytes] = {}
        self.fields: dict[int, Any] = {}
        self.rows: dict[int, Exported] = {}  # of the DLQ
        self.sights: dict[str, dict[str, Seen]] = {}
        self.jobs: dict[str, Jobs] = {}
        self.remedy = Remedy(self.shelf.link, queue_name, GROUP)

    async def open(self) -> None:
        await self.shelf.open()
        self.jobs = {who: self.shelf.jobs(who) for who in WHO}
        self.dialect = self.shelf.dialect(group=GROUP, producer_id=b"p")

    async def begin(self) -> None:
        """An empty queue."""
        wipe(self.shelf)
        self.ids, self.fields, self.rows, self.sights = {}, {}, {}, {}
        await self.jobs[WHO[0]].join(StreamOptions())

    async def lose_group(self) -> None:
        """As a worker makes it again."""
        await self.shelf.link.ask("XGROUP", "DESTROY", self.shelf.keys.stream, GROUP)
        await self.jobs[WHO[0]].join(StreamOptions(), again=True)

    async def restart(self) -> None:
        self.server.kill()
        self.server.start()
        async with asyncio.timeout(RETRIES_S):
            while True:
                try:
                    await self.shelf.link.ask("PING")
                except StoreUnavailableError:
                    await asyncio.sleep(0.01)
                else:
                    return

    # -- commands ------------------------------------------------------------------------------

    async def add(self, bodies: list[tuple[str, bytes]]) -> None:
        """Plain adds in one write, as the producer fills them in."""
        parts = []
        for job, body in bodies:
            front = self.dialect.add_front(job.encode(), 1)
            tail = b"\r\n$1\r\nn\r\n$%d\r\n%b\r\n" % (len(NAME), NAME)
            parts.append(b"%b%d\r\n%b%b" % (front, len(body), body, tail))
        pipe = await self.shelf.link.up()
        for reply in await pipe.ask(b"".join(parts), len(parts)):
            assert not isinstance(reply, Exception), reply

    def row(self, number: int, before: int) -> Row:
        return [self.ids[number], self.fields[number], 0, before]

    @property
    def delayed(self) -> Delayed:
        return self.shelf.store.delayed

    async def schedule_once(self, job: str, data: bytes, delay_ms: int) -> Any:
        member, due = wire.join_member(NAME, data), Due(delay_ms)
        return await self.shelf.send(self.delayed.schedule_once(due, member, job, delay_ms))

    async def promote(self, name: str, batch: int) -> tuple[bool, list[str], int]:
        done = await self.delayed.promote(name, 3_600, batch)
        return done.leads, [job for job, _ in done.moved], done.unreadable

    def lock(self, which: str) -> bytes:
        keys = self.shelf.keys
        return keys.promoter_lock if which == "promoter" else keys.scheduler_lock

    # -- a consumer's verbs, with numbers for entry ids ------------------------------------------

    async def read(self, name: str, count: int) -> None:
        # Blocking would wait for what never comes; one millisecond ends it.
        await self.shelf.send(self.jobs[name].read(count, 1))

    async def numbered(self, rows: Awaitable[Sequence[Row]]) -> list[tuple[int, int]]:
        """Which entries these are, and how often they had been delivered before."""
        numbers = {entry_id: number for number, entry_id in self.ids.items()}
        return [(numbers[row[0]], row[3]) for row in await rows]

    async def take_back(self, name: str) -> list[tuple[int, int]]:
        jobs = self.jobs[name]
        page = await jobs.abandoned(0, until=await jobs.last_delivered(), consumer=name)
        await jobs.forget([row[0] for row in page.rows if row[3] < 0])
        ids = [row[0] for row in page.rows if row[3] >= 0]
        return await self.numbered(jobs.claim(ids, 0, unless=self.shelf.store.hold.keys))

    async def claim(self, name: str, count: int, late: bool) -> list[tuple[int, int]]:
        until = await self.clock_ms() + (-1 if late else LEASE_MS)
        unless = self.shelf.store.hold.keys
        return await self.numbered(claim(self.jobs[name], LEASE_MS, count, until, unless))

    async def renew(self, name: str, numbers: Sequence[int]) -> list[int]:
        ids = [self.ids[number] for number in numbers]
        lost = await self.jobs[name].renew(self.shelf.link, ids)
        return [number for number in numbers if self.ids[number] in lost]

    async def ack(self, name: str, number: int, fenced: bool, unique: Holder | None) -> int:
        ids = [self.ids[number]]
        if unique is not None:
            return int(await self.shelf.send(self.jobs[name].free(ids[0], unique)))
        if fenced:
            return int(await self.shelf.send(self.jobs[name].ack_held(ids)))
        return self.dialect.acked(await self.shelf.send(self.dialect.ack(ids)))

    async def ack_all(self, name: str, numbers: Sequence[int]) -> int:
        ids = [self.ids[number] for number in numbers]
        return int(await self.shelf.send(self.jobs[name].ack_held(ids))) if ids else 0

    async def give_back(self, name: str, rows: Sequence[tuple[int, int]]) -> int:
        return await self.jobs[name].give_back([self.row(*one) for one in rows])

    async def restore(self, name: str, number: int, before: int) -> int:
        return await self.jobs[name]._restore(self.row(number, before))

    # -- verbs of those who lead or operate ------------------------------------------------------

    async def pause(self, paused: bool) -> bool:
        hold = self.shelf.store.hold
        return await (hold.put(1_790_000_000_000) if paused else hold.lift())

    async def replay(self, count: int) -> Replay:
        revivals = []
        for row in await self.shelf.store.dead.page():
            with suppress(WireError):
                revivals.append(revive(row))
        return await self.shelf.store.dead.replay(revivals[:count])

    async def purge(self, count: int) -> int:
        dead = self.shelf.store.dead
        return await dead.delete((await dead.page())[:count])

    async def put_back(self, number: int, dry_run: bool) -> int:
        return await self.shelf.store.dead.put_back([self.rows[number]], dry_run=dry_run)

    async def sweep(self, name: str, living: bool) -> tuple[bool, int]:
        # Any name is old enough; what is pending is what must keep it. Nobody has been away for as
        # long as silent entries look.
        done = await self.jobs[name].sweep(IDLE_MS if living else 0, -1)
        return done.leads, done.ghosts

    async def forget(self, job_id: str) -> None:
        """Its marker expires."""
        keys = self.shelf.keys
        await self.shelf.link.ask("DEL", keys.unique(job_id), keys.dlid(job_id))

    async def delete(self, number: int) -> None:
        await self.shelf.link.ask("XDEL", self.shelf.keys.stream, self.ids[number])

    async def release(self, which: str, name: str) -> None:
        store = self.shelf.store
        await (store.delayed if which == "promoter" else store.specs).release(name)

    async def drop_index(self, job_id: str) -> int:
        return await self.remedy.drop_indexes([self.shelf.keys.didx(job_id)])

    async def drop_lock(self, which: str, name: str, forever: bool) -> int:
        link, key = self.shelf.link, self.lock(which)
        if forever:
            await link.ask("PERSIST", key)
        dropped = await self.remedy.drop_lock(which, name)
        await link.ask("EXPIRE", key, 3_600)
        return dropped

    async def examine(self) -> Told:
        """The queue as people are told of it, in two ways."""
        link, queue = self.shelf.link, self.shelf.keys.queue
        facts = await exam.look(link, queue, GROUP, Patience(LEASE_MS, LEASE_MS))
        seen = await Inspect(self.shelf.keys, link).overview(GROUP)
        assert seen.counts is not None and seen.pending == seen.counts.running
        return Told(
            counts=msgspec.structs.astuple(seen.counts)[:5],
            again=msgspec.structs.astuple(facts.counts)[:5],
            ghosts=sum(one.ghosts for one in facts.holders),
            dead_lately=facts.dead_lately,
            due=(seen.delayed_due, seen.repeat_due, seen.repeat_paused),
            empty=sorted(key.decode() for key in facts.empty_specs),
            locks=(seen.promoter, seen.scheduler),
        )

    async def names(self) -> list[str]:
        rows = await self.shelf.link.ask("XINFO", "CONSUMERS", self.shelf.keys.stream, GROUP)
        return sorted(pairs(row)[b"name"].decode() for row in rows)

    async def look(self, name: str) -> list[str] | int:
        due = await self.shelf.store.specs.due(name, 3_600, 100)
        if not due.leads:
            return -1
        self.sights[name] = {row.key.decode(): row for row in due.rows}
        return sorted(self.sights[name])

    # -- time ------------------------------------------------------------------------------------

    async def make_silent(self, entries: list[Entry]) -> None:
        for entry in entries:
            how = ("IDLE", IDLE_MS, "RETRYCOUNT", entry.deliveries, "JUSTID")
            where = (self.shelf.keys.stream, GROUP, entry.owner or "")
            await self.shelf.link.ask("XCLAIM", *where, 0, self.ids[entry.number], *how)

    async def clock_ms(self) -> int:
        return await self.shelf.link.clock_ms()

    async def reschedule(self, job_id: str, delay_ms: int) -> bool:
        """Markers live for as much longer as the job is put off. Its score is the model's, which
        may lie decades ahead, so they must live as long, or they would end while we look."""
        keys = self.shelf.keys
        for key in (keys.didx(job_id), keys.dlid(job_id), keys.unique(job_id)):
            await self.shelf.link.ask("EXPIRE", key, AHEAD // 1000)
        return await self.delayed.reschedule(job_id, Due(delay_ms))

    async def settle_score(self, job: str, body: bytes, since: int, delay_ms: int, to: int) -> None:
        """It was scheduled by the server's clock; from now on it is due when the model says so."""
        keys, member = self.shelf.keys, wire.join_member(NAME, body)
        link, until = self.shelf.link, await self.clock_ms()
        score = await link.ask("ZSCORE", keys.delayed, member)
        assert score is not None, f"{self.name}: {job} is not in the delayed set"
        assert since + delay_ms <= float(score) <= until + delay_ms, f"{self.name}: {job}"
        await link.ask("ZADD", keys.delayed, to, member)
        index = await link.ask("GET", keys.didx(ident(job)))
        if index is not None and index[:4].isdigit():
            was, _, front = index.partition(b" ")
            assert int(was) == int(float(score)), f"{self.name}: the index of {job} leads nowhere"
            await link.ask("SET", keys.didx(ident(job)), b"%d %b" % (to, front), "KEEPTTL")

    # -- what Redis holds ------------------------------------------------------------------------

    async def view(self, book: Book) -> View:
        keys = self.shelf.keys
        told = await self.shelf.link.ask_each(
            ("XRANGE", keys.stream, "-", "+"),
            ("XPENDING", keys.stream, GROUP, "-", "+", 10_000),
            ("XINFO", "GROUPS", keys.stream),
            ("ZRANGE", keys.delayed, 0, -1, "WITHSCORES"),
            ("XRANGE", keys.dlq, "-", "+"),
            ("KEYS", keys.tag + b"*"),
            ("MGET", *map(keys.unique, UNIQUE), *map(keys.dlid, ONCE)),
            ("MGET", keys.promoter_lock, keys.scheduler_lock, keys.paused),
            ("ZRANGE", keys.repeat, 0, -1, "WITHSCORES"),
            *[("HMGET", keys.spec(key), "spec", "aside", "fired") for key in SPECS],
        )
        for reply in told:
            assert not isinstance(reply, Exception), f"{self.name}: {reply}"
        entries, pending, groups, delayed, dead, names, marks, notes, specs, *hashes = told
        stream, ghosts = self._stream(entries, pending, groups)
        self._number(book, entries, dead)
        late = {member_job(member): int(float(score)) for member, score in _two(delayed)}
        assert 2 * len(late) == len(delayed), f"{self.name}: twice in the delayed set"
        return View(
            stream=stream,
            ghosts=ghosts,
            delayed=late,
            dead=[(body_job(fields[1]), bool(wire.unique_hint(fields))) for _, fields in dead],
            kept=_behind(keys.result(""), names),
            marks=_marks(marks, _behind(keys.dlid(""), names)),
            index=_behind(keys.didx(""), names),
            specs=_specs(dict(_two(specs)), hashes),
            locks=(notes[0] and notes[0].decode(), notes[1] and notes[1].decode()),
            paused=notes[2] is not None,
        )

    def _number(self, book: Book, entries: Any, dead: Any) -> None:
        """Which of the book's entries these are; where they are not the same, the view says so."""
        whole = [entry for entry in book.stream if not entry.bare]
        if len(entries) == len(whole):
            for entry, (entry_id, fields) in zip(whole, entries, strict=True):
                self.ids[entry.number], self.fields[entry.number] = entry_id, fields
        if len(dead) == len(book.dead):
            for one, (dlq_id, fields) in zip(book.dead, dead, strict=True):
                self.rows[one.number] = Exported(dlq_id.decode(), list(fields))

    def _stream(
        self, entries: Any, pending: Any, groups: Any
    ) -> tuple[list[tuple[str, int, bool, str | None, int]], list[tuple[str | None, int]]]:
        facts = pairs(groups[0])
        read_to = _order(facts[b"last-delivered-id"])
        held = {row[0]: (row[1].decode(), row[3]) for row in pending}
        rows = []
        for entry_id, fields in entries:
            envelope = wire.unpack_envelope(fields[1])
            owner, deliveries = held.pop(entry_id, (None, 0))
            if owner is None and _order(entry_id) <= read_to:
                owner = "nobody: it is never delivered again"
            hint = bool(wire.unique_hint(fields))
            rows.append((body_job(fields[1]), envelope.attempt, hint, owner, deliveries))
        return rows, list(held.values())


def body(job: str, created_ms: int, attempt: int) -> bytes:
    return wire.pack_envelope(Envelope(job, b"\xc0", created_ms, attempt))


def garbage(data: bytes) -> str:
    """What is no job is named by its bytes."""
    return repr(data)


def body_job(data: bytes) -> str:
    try:
        envelope = wire.unpack_envelope(data)
    except WireError:
        return garbage(data)
    several = envelope.id in UNIQUE + ONCE
    return f"{envelope.id}#{envelope.created_at_ms}" if several else envelope.id


def member_job(member: bytes) -> str:
    try:
        return body_job(wire.split_member(member)[1])
    except WireError:
        return garbage(member)


def _two(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _order(entry_id: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split(b"-")))


def _behind(front: bytes, names: list[bytes]) -> set[str]:
    return {name.removeprefix(front).decode() for name in names if name.startswith(front)}


def _marks(values: list[bytes | None], once: set[str]) -> dict[str, str]:
    """Of ids that are unique until done only whose they are: each server has its own tokens."""
    found = dict.fromkeys(once, "1")
    for job_id, value in zip(UNIQUE + ONCE, values, strict=True):
        if value is not None:
            found[job_id] = value.decode().partition(" ")[0]
    return found


def _specs(scores: dict[bytes, bytes], hashes: list[list[bytes | None]]) -> dict[str, Spec]:
    found = {}
    for key, (packed, aside, fired) in zip(SPECS, hashes, strict=True):
        score = scores.get(key.encode())
        if score is None and packed is None:
            continue
        edition = None if packed is None else int(wire.unpack_spec(packed, None).payload)
        note = None if aside is None else aside.decode()
        place = -1 if score is None else int(float(score))
        found[key] = Spec(place, edition, note, int(fired or 0))
    return found
