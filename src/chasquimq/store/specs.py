"""The specs' drawer: what repeats, when it fires next, and the firing itself.

    repeat               score: the next fire in ms, or PAUSED_MS for one that was put aside
    repeat:spec:<key>    spec      its bytes, as all programs read them
                         fired     how often it has fired; not there before the first time
                         retry     the override of its jobs, if it has one
                         aside     <where it stood, ms> <why>     no reason: somebody paused it
                         catchup   <how many> <score>     a catch-up that goes on from that score

A reference scheduler knows the first two fields and leaves the others alone. What they say counts
only beside the score or the bytes that they were written for, so it may also write anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from typing import Any, NamedTuple

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.repeat import PAUSED_MS, StoredSpec
from chasquimq.store.link import Link, reads_replies
from chasquimq.store.resp import Arg
from chasquimq.wire import Keys

MAX_BYTES = 4_000_000  # about as much as one answer brings
PAGE = 500
_NOT_LEADING = -1


class Seen(NamedTuple):
    """A spec as we saw it. Who changes it says so, and is refused if it is no longer like this."""

    key: bytes
    place: bytes  # its score, as Redis prints it; empty: it has none
    packed: bytes | None  # None: what lies under its key is no hash, or an empty one
    retry: bytes | None = None
    fired: int = 0
    aside: bytes | None = None
    catchup: bytes | None = None

    @property
    def score(self) -> int:
        """Other programs may write other numbers; those that are no moment never come."""
        try:
            ms = int(float(self.place))
        except (OverflowError, ValueError):
            return PAUSED_MS
        return ms if 0 <= ms < PAUSED_MS else PAUSED_MS

    @property
    def sum(self) -> str:
        """Of all that its jobs are made from. Scripts compare it; nothing is proved by it, and the
        server has no other than sha1."""
        if self.packed is None:
            return ""
        return sha1(self.packed + (self.retry or b""), usedforsecurity=False).hexdigest()

    @property
    def armed(self) -> bool:
        return bool(self.place)

    @property
    def live(self) -> bool:
        return self.score < PAUSED_MS

    @property
    def stood(self) -> int:
        """When it fires next; of one that was put aside: when it would have."""
        if self.live or not self.aside:
            return self.score
        return _number(self.aside.partition(b" ")[0], self.score)

    @property
    def problem(self) -> str | None:
        """Why a scheduler put it aside; None where it did not."""
        if self.live or not self.aside:
            return None
        return self.aside.partition(b" ")[2].decode(errors="replace") or None

    @property
    def paused(self) -> bool:
        return self.armed and not self.live and self.problem is None

    @property
    def left(self) -> int | None:
        """How many windows a catch-up that goes on may still fire; None: none goes on."""
        many, _, score = (self.catchup or b"").partition(b" ")
        return _number(many, 0) if many and _number(score, -1) == self.score else None

    def read(self) -> StoredSpec:
        """The spec; WireError where it cannot be read."""
        if self.packed is None:
            raise WireError("what lies under its key is not a hash with a spec")
        try:
            self.key.decode()
        except UnicodeDecodeError:
            raise WireError("its key is not UTF-8") from None
        return wire.unpack_spec(self.packed, self.retry)


class DueSpecs(NamedTuple):
    leads: bool
    now_ms: int = 0
    next_ms: int | None = None  # the first score after now
    depth: int = 0
    gone: int = 0  # keys without a spec, which were removed
    more: bool = False  # more are due than were shown
    rows: tuple[Seen, ...] = ()


class Firing(NamedTuple):
    """What is to become of a spec that is due."""

    seen: Seen
    name: bytes
    envelopes: Sequence[bytes]
    next_ms: int | None  # None: it is over
    limit: int = 0
    left: int | None = None  # of a catch-up that goes on


class Fired(NamedTuple):
    """`jobs` is None where nothing was done: another leads, or somebody changed the spec."""

    leads: bool
    jobs: int | None = None
    over: bool = False


@reads_replies
class Specs:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    # -- for the scheduler -----------------------------------------------------------------------

    async def due(self, holder: str, lock_ttl_s: int, batch: int) -> DueSpecs:
        """Acquire or renew the lock, and see what is due."""
        keys = (self._keys.repeat, self._keys.scheduler_lock)
        args = (holder, lock_ttl_s, batch, self._keys.spec(""), MAX_BYTES)
        reply = await self._link.run("due", keys, args)
        if reply[0] == _NOT_LEADING:
            return DueSpecs(leads=False)
        now_ms, next_ms, depth, gone, more, *rows = reply
        due = tuple([_due(row) for row in rows])
        coming = None if next_ms < 0 else next_ms
        return DueSpecs(True, _moment(now_ms), coming, depth, gone, bool(more), due)

    async def fire(self, holder: str, firings: Sequence[Firing]) -> list[Fired]:
        """Fire each if we lead and it is as we saw it, in one write; the answers are in order."""
        if not firings:
            return []
        places = self._keys.stream, self._keys.scheduler_lock
        keys = [(*self._both(each.seen.key), *places) for each in firings]
        args = [_firing(holder, each) for each in firings]
        return [_fired(reply) for reply in await self._link.run_each("fire", keys, args)]

    async def release(self, holder: str) -> None:
        await self._link.run("release", (self._keys.scheduler_lock,), (holder,))

    # -- for whoever writes them -----------------------------------------------------------------

    async def clock_ms(self) -> int:
        """What time it is, by the server's clock."""
        return await self._link.clock_ms()

    async def see(self, key: str) -> tuple[int, Seen]:
        """What time it is by the server's clock, and what lies under the key."""
        raw = key.encode()
        now_ms, score, *hash_ = await self._link.run("see_spec", self._both(raw), (raw,))
        return _moment(now_ms), _seen(raw, score or b"", hash_)

    async def put(
        self, seen: Seen, packed: bytes, retry: bytes, next_ms: int | None, *, aside: bool = False
    ) -> bool:
        """Write a spec, and when it fires next (None: as it is), or would (`aside`: it is paused);
        False: see it again first."""
        score: Arg = "" if next_ms is None else next_ms
        note = ""
        if aside:
            score, note = PAUSED_MS, _note(next_ms)
        args = (seen.key, seen.sum, score, packed, retry, self._keys.wake, note, seen.place)
        return bool(await self._link.run("put_spec", self._both(seen.key), args))

    async def move(self, seen: Seen, score: int, aside: str = "") -> bool:
        """Give it another next fire; `aside`: where it stood and why. False: see it again first."""
        as_seen = (seen.key, seen.place, seen.sum)
        args = (*as_seen, score, aside, self._keys.wake, seen.aside or b"")
        return bool(await self._link.run("move_spec", self._both(seen.key), args))

    async def put_aside(self, seen: Seen, why: str = "") -> bool:
        """Let it fire no more, and note where it stood. False: see it again first."""
        return await self.move(seen, PAUSED_MS, _note(seen.stood, why))

    async def drop(self, key: str) -> bool:
        raw = key.encode()
        return bool(await self._link.run("drop_spec", self._both(raw), (raw,)))

    async def page(self, limit: int, after: tuple[Arg, bytes] | None = None) -> list[Seen]:
        """Specs by their next fire, behind a score and a key; those put aside come last."""
        found: dict[bytes, Seen] = {}
        behind: tuple[Arg, ...] = after or ()
        while len(found) < limit:
            most, known = min(limit - len(found), PAGE), len(found)
            args = (most, self._keys.spec(""), MAX_BYTES, *behind)
            rows = await self._link.run("list_specs", (self._keys.repeat,), args)
            for key, score, *hash_ in rows:  # one that fired meanwhile comes again, further on
                found.setdefault(key, _seen(key, score, hash_))
            if len(found) == known and len(rows) < most:
                break
            behind = rows[-1][1], rows[-1][0]
        return list(found.values())

    def _both(self, key: bytes) -> tuple[bytes, bytes]:
        return self._keys.repeat, self._keys.spec(key)


def _moment(reply: Any) -> int:
    if type(reply) is not int:
        raise TypeError(f"{type(reply).__name__} is where a moment belongs")
    return reply


def _due(row: list[Any]) -> Seen:
    key, score, *hash_ = row
    packed, retry, catchup = hash_ or (None, None, None)
    return Seen(key, score, packed, retry, catchup=catchup)


def _seen(key: bytes, score: bytes, hash_: list[Any]) -> Seen:
    packed, retry, fired, aside = hash_[0] if hash_ else (None, None, None, None)
    return Seen(key, score, packed, retry, _number(fired or b"0", 0), aside)


def _note(stood_ms: int | None, why: str = "") -> str:
    """The field `aside`; no reason: somebody paused it."""
    return f"{stood_ms} {why}"


def _firing(holder: str, each: Firing) -> tuple[Arg, ...]:
    seen, then = each.seen, "" if each.next_ms is None else each.next_ms
    left = "" if each.left is None else f"{each.left} {then}"
    as_seen = (seen.key, seen.place, seen.sum)
    return (holder, *as_seen, then, each.limit, left, each.name, *each.envelopes)


def _fired(reply: list[int]) -> Fired:
    if len(reply) == 1:
        return Fired(leads=reply[0] != _NOT_LEADING)
    count, over = reply
    return Fired(True, count, bool(over))


def _number(text: bytes, otherwise: int) -> int:
    try:
        return int(text)
    except ValueError:
        return otherwise
