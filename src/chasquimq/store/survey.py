"""A server as a whole: which queues live on it, and what their keys weigh. It changes nothing.

Both walk over the keys of the database, a page at a time, so that the server has others to serve
in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from chasquimq.errors import ConfigError
from chasquimq.store.link import Link
from chasquimq.store.resp import Arg
from chasquimq.wire import Keys
from chasquimq.wire.fault import as_error
from chasquimq.wire.keys import check_stored_queue_name

PAGE = 1_000
SAMPLE = 50  # keys of a family that are weighed
NAMED = 1_000  # keys of a family whose names are kept, where each must be looked at
EVERY = b"{chasqui:*}:*"

# The families whose keys each belong to a job or a spec; all of them but specs expire.
EXPIRING = ("result", "dlid", "didx", "unique", "idmp")
LISTED = ("didx", "spec")
SINGLE = ("stream", "delayed", "dlq", "events", "repeat", "paused", "durable")

Progress = Callable[[int], None]


class Family(msgspec.Struct):
    """Keys of one kind. `weight` is estimated from a sample where there are many."""

    count: int = 0
    names: list[bytes] = []  # the first of them
    weight: int = 0
    heaviest: int = 0
    lasting: int = 0  # of the sample: would never expire

    def add(self, key: bytes, most: int) -> None:
        self.count += 1
        if len(self.names) < most:
            self.names.append(key)


class Census(msgspec.Struct):
    """What a walk found. `foreign`: names that our doors refuse."""

    queues: dict[str, dict[str, Family]] = {}
    foreign: set[bytes] = set()
    scanned: int = 0
    complete: bool = True


class Survey:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def queues(self) -> list[str]:
        """The names of all queues that have any key, sorted."""
        return sorted((await self.walk()).queues)

    async def walk(
        self,
        only: Iterable[str] = (),
        *,
        pages: int | None = None,
        progress: Progress | None = None,
    ) -> Census:
        """Which keys there are, of all queues or of some; at most so many pages are looked at."""
        names = set(only)
        census = Census(queues={name: {} for name in names}, foreign=set())
        pattern = _pattern(next(iter(names))) if len(names) == 1 else EVERY
        cursor: Arg = b"0"
        while True:
            cursor, keys = await self._link.ask("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)
            for key in keys:
                self._sort(census, key, names)
            census.scanned += PAGE
            if progress is not None:
                progress(PAGE)
            if cursor == b"0":
                return census
            if pages is not None and census.scanned >= pages * PAGE:
                census.complete = False
                return census

    def _sort(self, census: Census, key: bytes, only: set[str]) -> None:
        raw, closed, rest = key.removeprefix(b"{chasqui:").partition(b"}:")
        if not closed:
            return
        try:
            name = raw.decode()
            check_stored_queue_name(name)
        except (UnicodeDecodeError, ConfigError):
            census.foreign.add(raw)  # whose keys another program wrote
            return
        if only and name not in only:
            return
        families = census.queues.setdefault(name, {})
        family = family_of(rest)
        # A scan may show a key twice; that does not matter for what is estimated anyway.
        found = families.setdefault(family, Family(names=[]))
        found.add(key, NAMED if family in LISTED else SAMPLE)

    async def weigh(self, families: dict[str, Family]) -> None:
        """How much memory the families take, from a sample of their keys."""
        for family in families.values():
            some = family.names[:SAMPLE]
            asked: list[Sequence[Arg]] = [("MEMORY", "USAGE", key) for key in some]
            asked += [("PTTL", key) for key in some]
            said = await self._link.ask_each(*asked)
            for reply in said:
                if isinstance(reply, Exception):
                    raise as_error(reply, "MEMORY USAGE")
            weights = [int(weight) for weight in said[: len(some)] if weight is not None]
            family.lasting = sum(ttl == -1 for ttl in said[len(some) :])
            family.heaviest = max(weights, default=0)
            family.weight = sum(weights) * family.count // len(weights) if weights else 0

    async def lost_indexes(self, queue: str, names: Sequence[bytes]) -> list[bytes]:
        """Those side-indexes that lead to no delayed job."""
        keys = Keys(queue)
        lost = []
        for first in range(0, len(names), SAMPLE):
            page = names[first : first + SAMPLE]
            values = await self._link.ask_each(*[("GET", name) for name in page])
            looks: list[tuple[bytes, bytes, Sequence[Arg]]] = []
            for name, value in zip(page, values, strict=True):
                if isinstance(value, bytes):
                    job_id = name[len(keys.didx("")) :]
                    looks.append((name, *_where(keys, value, job_id)))
            said = await self._link.ask_each(*[look for _, _, look in looks]) if looks else []
            for (name, wanted, _), found in zip(looks, said, strict=True):
                if not isinstance(found, Exception) and not _leads(found, wanted):
                    lost.append(name)
        return lost

    async def unlisted_specs(self, queue: str, names: Sequence[bytes]) -> list[tuple[bytes, bool]]:
        """Specs that stand nowhere in the order of fires: (key, has it a recipe?)."""
        keys = Keys(queue)
        front = len(keys.spec(""))
        asked: list[Sequence[Arg]] = []
        for name in names:
            asked += [("ZSCORE", keys.repeat, name[front:]), ("HEXISTS", name, "spec")]
        said = await self._link.ask_each(*asked) if asked else []
        return [
            (name[front:], bool(recipe))
            for name, score, recipe in zip(names, said[::2], said[1::2], strict=True)
            if score is None and not isinstance(recipe, Exception)
        ]


MANY = 100  # members of one score that are looked at


def _where(keys: Keys, value: bytes, job_id: bytes) -> tuple[bytes, Sequence[Arg]]:
    """What an index leads to (`store/delayed.py` draws both forms), and how to look for it."""
    score, space, front = value.partition(b" ")
    if space and len(score) >= 4 and score.isdigit():
        look = ("ZRANGEBYSCORE", keys.delayed, score, score, "LIMIT", 0, MANY)
        return front + job_id, look
    return b"", ("ZSCORE", keys.delayed, value)


def _leads(found: Any, wanted: bytes) -> bool:
    if not isinstance(found, list):
        return found is not None
    # Where too many have one score, it may be among those that were not looked at.
    return len(found) == MANY or any(member.startswith(wanted) for member in found)


def family_of(rest: bytes) -> str:
    """The family of a key, by what stands behind its tag."""
    name = rest.decode(errors="replace")
    if name in SINGLE:
        return name
    if name.startswith("repeat:spec:"):
        return "spec"
    front = name.partition(":")[0]
    if front in (*EXPIRING, "spark"):
        return front
    return "lock" if name.endswith(":lock") else "other"


def _pattern(name: str) -> bytes:
    """The keys of one queue; what is a sign of patterns in its name is meant as it is."""
    safe = "".join(f"\\{sign}" if sign in "*?[]\\^" else sign for sign in name)
    return b"{chasqui:%b}:*" % safe.encode()
