"""A drawer to look into: how much queues hold, and where. It changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from chasquimq import lua
from chasquimq.job import Counts
from chasquimq.repeat import PAUSED_MS
from chasquimq.store.link import Link, reads_replies
from chasquimq.store.resp import pairs, text
from chasquimq.wire import Keys
from chasquimq.wire.fault import Fault, as_error, classify

AT_ONCE = 200  # queues per round trip: enough that thousands are few trips, and none is long
_PLACES = (  # as look.lua wants them, and what each is
    ("stream", "stream"),
    ("dlq", "stream"),
    ("delayed", "zset"),
    ("repeat", "zset"),
    ("events", "stream"),
    ("paused", "string"),
    ("promoter_lock", "string"),
    ("scheduler_lock", "string"),
)


class Holding(msgspec.Struct, frozen=True):
    """A consumer of the group: what is pending under its name, and when it last spoke."""

    name: str
    pending: int
    idle_ms: int  # since it last asked for anything


class Problem(msgspec.Struct, frozen=True):
    """A key of the queue that holds something else than it should, so that it cannot be read."""

    key: str
    is_a: str
    not_a: str

    def __str__(self) -> str:
        return f"{self.key} is a {self.is_a}, where a {self.not_a} belongs"


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as a group of workers sees it, by the server's clock. What lies under a key of the
    wrong type counts as nothing, and is told of in `problems`."""

    queue: str
    group: str
    at_ms: int  # when it was looked at
    exists: bool  # has any of the keys that all of this is read from
    stream_depth: int  # rows of the stream: what waits, and what runs
    pending: int | None  # None: there is no such group
    dlq_depth: int
    delayed_depth: int
    delayed_due: int  # of these: those that should be in the stream already
    delayed_lag_ms: int | None  # how overdue the next delayed job is; None: there is none
    delayed_next_ms: int | None  # how long until the next delayed job is due
    repeatables: int
    repeat_due: int
    repeat_paused: int  # paused, or put aside because they cannot be fired
    repeat_next_ms: int | None  # how long until the next fire; None: none is to come
    events_depth: int
    memory_bytes: int | None  # of the streams and sets; None: the server does not tell us
    stream_added: int  # rows that ever came into the stream
    dlq_added: int
    paused: bool
    promoter: str | None  # who holds the lock: moves what is due
    scheduler: str | None  # ... fires repeatable jobs
    counts: Counts | None  # None: a problem is in the way
    consumers: tuple[Holding, ...] = ()
    problems: tuple[Problem, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


@reads_replies
class Inspect:
    def __init__(self, keys: Keys, link: Link) -> None:
        self._keys = keys
        self._link = link

    async def counts(self, group: str) -> Counts:
        """All of one moment, as the group sees the queue."""
        found: list[int] = await self._link.run("counts", _counted(self._keys), (group,))
        return _counts(found)

    async def overview(self, group: str) -> Overview:
        [one] = await overviews(self._link, [self._keys], group)
        return one


async def overviews(link: Link, queues: Sequence[Keys], group: str) -> list[Overview]:
    """How these queues are, in their order; many of them in each round trip."""
    # The scripts ride along, so that no question is refused because they are unknown.
    loads = [("SCRIPT", "LOAD", lua.SOURCES[name]) for name in ("look", "counts")]
    found = []
    for first in range(0, len(queues), AT_ONCE):
        some = queues[first : first + AT_ONCE]
        questions = [question for keys in some for question in _questions(keys, group)]
        replies = await link.ask_each(*loads, *questions)
        answers = iter(replies[len(loads) :])
        for keys in some:
            _check(keys, replies[: len(loads)], look := next(answers))
            found.append(_overview(keys, group, look, next(answers)))
    return found


def _questions(keys: Keys, group: str) -> Iterator[tuple[lua.Arg, ...]]:
    places = [getattr(keys, name) for name, _ in _PLACES]
    yield lua.call("look", places, (group, PAUSED_MS))
    yield lua.call("counts", _counted(keys), (group,))


def _counted(keys: Keys) -> tuple[bytes, ...]:
    return keys.stream, keys.delayed, keys.dlq, keys.repeat


def _check(keys: Keys, loads: Sequence[Any], look: Any) -> None:
    if not isinstance(look, Exception):
        return
    refused = [load for load in loads if isinstance(load, Exception)]
    why = refused[0] if refused and classify(look) is Fault.SCRIPT else look
    raise as_error(why, f"looking at queue {keys.queue!r}")


def _overview(keys: Keys, group: str, look: list[Any], counts: Any) -> Overview:
    now_ms, kinds, size, stream, dlq, events, delayed, repeat, *leaders, consumers = look
    problems = tuple(_problems(keys, kinds))
    if isinstance(counts, Exception) and not problems:
        raise as_error(counts, f"counting queue {keys.queue!r}")
    next_ms = moment(delayed[1])
    fire_ms = None if repeat[0] == repeat[3] else moment(repeat[1])
    holdings = tuple(map(_holding, consumers or ()))
    return Overview(
        queue=keys.queue,
        group=group,
        at_ms=now_ms,
        exists=any(kind != b"none" for kind in kinds),
        stream_depth=stream[0],
        pending=None if consumers is None else sum(one.pending for one in holdings),
        dlq_depth=dlq[0],
        delayed_depth=delayed[0],
        delayed_due=delayed[2],
        delayed_lag_ms=None if next_ms is None else max(now_ms - next_ms, 0),
        delayed_next_ms=None if next_ms is None else max(next_ms - now_ms, 0),
        repeatables=repeat[0],
        repeat_due=repeat[2],
        repeat_paused=repeat[3],
        repeat_next_ms=None if fire_ms is None else max(fire_ms - now_ms, 0),
        events_depth=events[0],
        memory_bytes=None if size < 0 else size,
        stream_added=stream[1],
        dlq_added=dlq[1],
        paused=kinds[5] != b"none",
        promoter=_name(leaders[0]),
        scheduler=_name(leaders[1]),
        counts=None if isinstance(counts, Exception) else _counts(counts),
        consumers=holdings,
        problems=problems,
    )


def _problems(keys: Keys, kinds: Sequence[bytes]) -> Iterator[Problem]:
    for (name, wanted), kind in zip(_PLACES, kinds, strict=True):
        # Whatever lies under `paused`, it is there, and that is all it says.
        if name != "paused" and kind not in (b"none", wanted.encode()):
            yield Problem(getattr(keys, name).decode(), kind.decode(), wanted)


def _counts(found: Sequence[int]) -> Counts:
    waiting, running, delayed, dead, repeatables, oldest_ms = found
    age_ms = None if oldest_ms < 0 else oldest_ms
    return Counts(waiting, running, delayed, dead, repeatables, age_ms)


def moment(score: bytes | None) -> int | None:
    """A score in ms; other programs may write what is none: infinite ones, too."""
    if score is None:
        return None
    return int(max(min(float(score), PAUSED_MS), 0))


def _name(holder: bytes | None) -> str | None:
    return None if holder is None else text(holder)


def _holding(row: list[Any]) -> Holding:
    facts = pairs(row)
    return Holding(text(facts[b"name"]), int(facts[b"pending"]), int(facts[b"idle"]))
