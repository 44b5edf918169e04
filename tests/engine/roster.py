"""Specs as other programs may have written them, and a scheduler whose ticks a test calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from chasquimq import RepeatPattern, wire
from chasquimq.address import read_url
from chasquimq.config import ScheduleOptions
from chasquimq.engine.scheduler import Scheduler
from chasquimq.happening import Announce, Happening
from chasquimq.repeat import StoredSpec
from chasquimq.store import Dialer, Store
from tests.engine.desk import Desk

HOUR_MS = 3_600_000


def packed(key: str = "key", pattern: RepeatPattern | None = None, **slots: Any) -> bytes:
    """The bytes of a spec; hourly, unless told otherwise."""
    slots = {"job_name": "n", "payload": wire.encode(1), **slots}
    every = RepeatPattern("every", interval_ms=HOUR_MS)
    return wire.pack_spec(StoredSpec(key=key, pattern=pattern or every, **slots))


def lay(desk: Desk, key: str | bytes, score: int | float | str, body: bytes | None = None) -> None:
    """Write a spec as another program would: no wake-up, and nobody looks at it."""
    body = packed(str(key)) if body is None else body
    desk.redis.hset(desk.keys.spec(key), "spec", body)  # type: ignore[arg-type]
    desk.redis.execute_command("ZADD", desk.keys.repeat, score, key)


def now_ms(desk: Desk) -> int:
    seconds, micros = desk.redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


def fires(desk: Desk) -> list[tuple[str, int]]:
    """The jobs in the stream that specs made, in its order: key and moment."""
    pairs = [envelope.id.rpartition("@") for envelope in desk.envelopes()]
    return [(key, int(at_ms)) for key, _, at_ms in pairs]


def _unheard(happening: Happening) -> None:
    pass


@asynccontextmanager
async def scheduling(
    desk: Desk, announce: Announce = _unheard, holder: str = "holder", **options: int
) -> AsyncIterator[Scheduler]:
    """A scheduler that does not run by itself; it has a lock that outlives the test."""
    store = Store(desk.keys, Dialer(read_url(desk.server.url)), desk.server.forced_dialect)
    await store.open()
    settings = ScheduleOptions(**{"lock_ttl_s": 3_600, **options})
    yield Scheduler(store, holder, announce, settings)
    await store.close()
