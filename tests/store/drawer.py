"""The specs' drawer in tests: specs as other programs write them, and what Redis holds then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import redis

from chasquimq import lua, wire
from chasquimq.repeat import RepeatPattern, StoredSpec
from chasquimq.store import Link
from chasquimq.store.specs import DueSpecs, Fired, Firing, Seen
from tests.store.shelf import Shelf, envelope

MOMENT = Path(__file__).with_name("moment.lua").read_text()
PAST = 1_700_000_000_000
AHEAD = 4_000_000_000_000


def spec(key: str = "k", payload: bytes = b"\xc0", **fields: Any) -> bytes:
    every = RepeatPattern.every(1_000)
    return wire.pack_spec(
        StoredSpec(key=key, job_name="tick", pattern=every, payload=payload, **fields)
    )


def arm(shelf: Shelf, key: str | bytes, score: float | str, **fields: Any) -> None:
    """Write a spec as other programs do."""
    raw = key if isinstance(key, bytes) else key.encode()
    packed = fields.pop("spec", None) or spec(raw.decode(errors="replace"))
    shelf.redis.zadd(shelf.keys.repeat, {raw: score})
    shelf.redis.hset(shelf.keys.spec(raw), mapping={"spec": packed, **fields})


def scores(shelf: Shelf) -> dict[bytes, float]:
    return dict(shelf.redis.zrange(shelf.keys.repeat, 0, -1, withscores=True))


def fields(shelf: Shelf, key: str = "k") -> dict[bytes, bytes]:
    return dict(shelf.redis.hgetall(shelf.keys.spec(key)))


def snapshot(shelf: Shelf) -> dict[bytes, tuple[bytes, int]]:
    """Every key of the queue, byte for byte, and when it ends."""
    found = sorted(shelf.redis.scan_iter(match=shelf.keys.tag + b"*", count=10_000))
    return {key: (shelf.redis.dump(key), shelf.redis.pexpiretime(key)) for key in found}


async def due(shelf: Shelf, holder: str = "me", batch: int = 100) -> DueSpecs:
    return await shelf.store.specs.due(holder, 5, batch)


async def look(shelf: Shelf, holder: str = "me") -> Seen:
    """The one spec that is due."""
    [seen] = (await due(shelf, holder)).rows
    return seen


def firing(
    seen: Seen,
    *windows: int,
    then: int | None = AHEAD,
    name: bytes = b"tick",
    limit: int = 0,
    left: int | None = None,
) -> Firing:
    envelopes = [envelope(f"{seen.key.decode()}@{at_ms}") for at_ms in windows]
    return Firing(seen, name, envelopes, then, limit, left)


async def fire(shelf: Shelf, *firings: Firing, holder: str = "me") -> list[Fired]:
    return await shelf.store.specs.fire(holder, firings)


def fired(shelf: Shelf) -> list[str]:
    """The ids of the jobs in the stream, in order."""
    return [wire.unpack_envelope(row[b"d"]).id for _, row in shelf.entries()]


def ids(windows: Sequence[int], key: str = "k") -> list[str]:
    return [f"{key}@{at_ms}" for at_ms in windows]


def listen(shelf: Shelf) -> tuple[redis.client.PubSub, Callable[[], list[bytes]]]:
    """What was said on the channel since it was asked last: all of it, for the last word is ours
    and a server keeps the order."""
    ear = shelf.redis.pubsub(ignore_subscribe_messages=True)
    ear.subscribe(shelf.keys.wake)
    ear.get_message(timeout=5)

    def said() -> list[bytes]:
        shelf.redis.publish(shelf.keys.wake, "end")
        came: list[bytes] = []
        while came[-1:] != [b"end"]:
            message = ear.get_message(timeout=30)
            if message is not None:
                came.append(message["data"])
        return came[:-1]

    return ear, said


class AtThatMoment:
    """A link whose scripts arm the spec `k` first, so many ms from the moment that they see."""

    def __init__(self, link: Link, offset_ms: float) -> None:
        self._link = link
        self._before = MOMENT.replace("OFFSET", str(offset_ms))

    async def run(self, script: str, keys: Any, args: Any = ()) -> Any:
        text = self._before + lua.SOURCES[script]
        return await self._link.ask("EVAL", text, len(keys), *keys, *args)
