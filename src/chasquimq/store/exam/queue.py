"""A queue's state, as far as it tells of trouble. It reads, and changes nothing.

1. the kinds of its keys first: what is not what it should be is not asked about;
2. then counts, locks, groups and consumers in one write;
3. then what must be walked: pending entries and specs, a bounded number of pages of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from chasquimq.errors import WireError
from chasquimq.job import Counts
from chasquimq.store.hold import GIVEN_BACK_MS
from chasquimq.store.inspect import Inspect, moment
from chasquimq.store.link import Link
from chasquimq.store.resp import pairs, text
from chasquimq.store.specs import Specs
from chasquimq.store.survey import Family
from chasquimq.wire import Keys
from chasquimq.wire.fault import as_error

KINDS = {
    "stream": "stream",
    "dlq": "stream",
    "events": "stream",
    "delayed": "zset",
    "repeat": "zset",
    "promoter:lock": "string",
    "scheduler:lock": "string",
    "paused": "string",
}
PAGE = 1_000
PAGES = 20
SPECS = 5_000
BYTES = 4_000_000
LATELY_MS = 3_600_000
LATELY = 100


class Lock(NamedTuple):
    holder: str
    ttl_ms: int  # -1: it never expires


class Holder(msgspec.Struct):
    """A consumer, and what is pending under its name, as far as it was looked at."""

    name: str
    pending: int
    idle_ms: int
    oldest_ms: int = 0  # of the entries that have a body
    stuck: int = 0  # with a body, and nobody renews them
    ghosts: int = 0  # without one
    ripe: int = 0  # of these: as long silent as must be to be removed


class Broken(NamedTuple):
    """A spec and what is the matter with it."""

    key: str
    why: str = ""


class Patience(NamedTuple):
    """When a delivery counts as stuck, and when a consumer counts as gone."""

    stuck_ms: int
    silent_ms: int
    quick: bool = False


class QueueFacts(msgspec.Struct, kw_only=True):
    queue: str
    group: str
    now_ms: int = 0
    exists: bool = True
    wrong: dict[str, str] = {}  # key family: the kind it has
    counts: Counts = Counts(0, 0, 0, 0, 0, None)
    length: int = 0
    groups: tuple[str, ...] = ()
    holders: tuple[Holder, ...] = ()
    looked_at: int = 0  # pending entries
    stream: dict[str, int] = {}  # the numbers of XINFO STREAM
    overdue: int = 0
    overdue_ms: int = 0
    promoter: Lock | None = None
    scheduler: Lock | None = None
    specs_overdue: int = 0
    specs_overdue_ms: int = 0
    unreadable: tuple[Broken, ...] = ()
    aside: tuple[Broken, ...] = ()
    empty_specs: tuple[bytes, ...] = ()  # a place in the order, and no recipe
    spec_pauses: int = 0
    dead_lately: int = 0
    events: int = 0
    paused: str | None = None  # what the key says
    families: dict[str, Family] = {}  # empty: nobody walked over the keys
    lost_indexes: tuple[bytes, ...] = ()
    unlisted: tuple[tuple[bytes, bool], ...] = ()  # specs without a place: (key, has it a recipe?)
    trouble: str | None = None  # why not everything could be looked at

    @property
    def pending(self) -> int:
        return sum(one.pending for one in self.holders)


async def look(link: Link, queue: str, group: str, patience: Patience) -> QueueFacts:
    keys = Keys(queue)
    facts = QueueFacts(queue=queue, group=group)
    await _kinds(link, keys, facts)
    if not facts.exists:
        return facts
    await _numbers(link, keys, facts)
    if "stream" not in facts.wrong and facts.groups:
        await _pending(link, keys, facts, patience)
    if "repeat" not in facts.wrong:
        await _specs(link, keys, facts, patience.quick)
    return facts


async def _kinds(link: Link, keys: Keys, facts: QueueFacts) -> None:
    said = await _all(link, *[("TYPE", keys.tag + name.encode()) for name in KINDS])
    found = {name: str(kind) for name, kind in zip(KINDS, map(_text, said), strict=True)}
    facts.wrong = {name: kind for name, kind in found.items() if kind not in ("none", KINDS[name])}
    facts.exists = any(kind != "none" for kind in found.values())


async def _numbers(link: Link, keys: Keys, facts: QueueFacts) -> None:
    right = set(KINDS) - set(facts.wrong)
    facts.now_ms = await link.clock_ms()
    if right >= {"stream", "delayed", "dlq", "repeat"}:
        facts.counts = await Inspect(keys, link).counts(facts.group)
    if "delayed" in right:
        facts.overdue, facts.overdue_ms = await _late(link, keys.delayed, facts.now_ms)
    if "repeat" in right:
        facts.specs_overdue, facts.specs_overdue_ms = await _late(link, keys.repeat, facts.now_ms)
    if "dlq" in right:
        facts.dead_lately = int(await link.run("count_dead", (keys.dlq,), (LATELY_MS, LATELY)))
    if "events" in right:
        facts.events = int(await link.ask("XLEN", keys.events))
    facts.promoter = await _lock(link, keys.promoter_lock, "promoter:lock" in right)
    facts.scheduler = await _lock(link, keys.scheduler_lock, "scheduler:lock" in right)
    if "paused" in right:
        note = await link.ask("GET", keys.paused)
        facts.paused = None if note is None else _text(note)
    if "stream" in right and (facts.counts.waiting or facts.counts.running or await _there(
        link, keys.stream
    )):  # fmt: skip
        await _stream(link, keys, facts)


async def _stream(link: Link, keys: Keys, facts: QueueFacts) -> None:
    told, groups = await _all(
        link, ("XINFO", "STREAM", keys.stream), ("XINFO", "GROUPS", keys.stream)
    )
    facts.stream = {
        _text(name): int(value) for name, value in pairs(told).items() if isinstance(value, int)
    }
    facts.length = facts.stream.get("length", 0)
    facts.groups = tuple([_text(pairs(row)[b"name"]) for row in groups])
    if facts.group in facts.groups:
        rows = await link.ask("XINFO", "CONSUMERS", keys.stream, facts.group)
        facts.holders = tuple([_holder(pairs(row)) for row in rows])


async def _late(link: Link, key: bytes, now_ms: int) -> tuple[int, int]:
    """How many are overdue, and for how long the first is."""
    count, first = await _all(
        link, ("ZCOUNT", key, "-inf", now_ms), ("ZRANGE", key, 0, 0, "WITHSCORES")
    )
    return int(count), max(now_ms - (moment(first[1]) or 0), 0) if count else 0


async def _lock(link: Link, key: bytes, right: bool) -> Lock | None:
    if not right:
        return None
    holder, ttl_ms = await _all(link, ("GET", key), ("PTTL", key))
    return None if holder is None else Lock(_text(holder), int(ttl_ms))


async def _there(link: Link, key: bytes) -> bool:
    return bool(await link.ask("EXISTS", key))


async def _pending(link: Link, keys: Keys, facts: QueueFacts, patience: Patience) -> None:
    if facts.group not in facts.groups:
        return
    by_name = {one.name: one for one in facts.holders}
    after: Any = "-"
    for _ in range(1 if patience.quick else PAGES):
        args = (facts.group, after, PAGE, BYTES)
        after, *rows = await link.run("see_pending", (keys.stream,), args)
        for name, idle_ms, there in rows:
            holder = by_name.get(_text(name))
            if holder is None:  # it came after we asked for names
                continue
            if idle_ms >= GIVEN_BACK_MS:  # it was given back, which makes it look old
                idle_ms = min(idle_ms, holder.idle_ms)
            if there:
                holder.oldest_ms = max(holder.oldest_ms, idle_ms)
                holder.stuck += idle_ms >= patience.stuck_ms
            else:
                holder.ghosts += 1
                holder.ripe += min(idle_ms, holder.idle_ms) >= patience.silent_ms
        facts.looked_at += len(rows)
        if after == b"-":
            break


async def _specs(link: Link, keys: Keys, facts: QueueFacts, quick: bool) -> None:
    unreadable, aside, bare = [], [], []
    for seen in await Specs(keys, link).page(PAGE if quick else SPECS):
        name = text(seen.key)
        facts.spec_pauses += seen.paused
        if seen.packed is None:
            bare.append(seen.key)
        elif seen.problem is not None:
            aside.append(Broken(name, seen.problem))
        else:
            try:
                seen.read()
            except WireError as error:
                unreadable.append(Broken(name, str(error.args[0])))
    if bare:
        kinds = await _all(link, *[("TYPE", keys.spec(key)) for key in bare])
        for key, kind in zip(bare, map(_text, kinds), strict=True):
            if kind not in ("none", "hash"):
                name = text(key)
                unreadable.append(Broken(name, f"its key holds a {kind}"))
        facts.empty_specs = tuple(
            [key for key, kind in zip(bare, map(_text, kinds), strict=True)
             if kind in ("none", "hash")]
        )  # fmt: skip
    facts.unreadable, facts.aside = tuple(unreadable), tuple(aside)


def _holder(told: Mapping[bytes, Any]) -> Holder:
    return Holder(_text(told[b"name"]), int(told[b"pending"]), int(told[b"idle"]))


async def _all(link: Link, *commands: tuple[Any, ...]) -> list[Any]:
    """The answers; raises the first that is an error."""
    said = await link.ask_each(*commands)
    for command, reply in zip(commands, said, strict=True):
        if isinstance(reply, Exception):
            raise as_error(reply, str(command[0]))
    return said


def _text(word: Any) -> str:
    """Of a reply that may be an error, too."""
    return text(word) if isinstance(word, bytes) else str(word)
