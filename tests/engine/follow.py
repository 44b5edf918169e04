"""A follower of a desk's events, and what a test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from chasquimq import QueueEvent, QueueEvents, wire
from tests.engine.desk import Desk

LIMIT_S = 20.0  # only ends a test that would fail anyway


def follower(desk: Desk, **options: Any) -> QueueEvents:
    options.setdefault("redis_url", desk.server.url)
    return QueueEvents(desk.name, **options)


def tell(desk: Desk, *job_ids: str, kind: str = "completed", name: str = "", **extras: Any) -> str:
    """Write events as another program would; answers the place of the last."""
    place = b""
    for job_id in job_ids:
        fields = wire.pack_event(kind, job_id, 1_700_000_000_000, name, extras)
        place = desk.redis.execute_command("XADD", desk.keys.events, "*", *fields)
    return place.decode()


async def take(events: QueueEvents, count: int) -> list[QueueEvent]:
    async with asyncio.timeout(LIMIT_S):
        return [await anext(events) for _ in range(count)]


async def take_ids(events: QueueEvents, count: int) -> list[str | None]:
    return [event.job_id for event in await take(events, count)]


@asynccontextmanager
async def collecting(events: QueueEvents) -> AsyncIterator[list[QueueEvent]]:
    """Follows in the background for the block; the list grows meanwhile."""
    seen: list[QueueEvent] = []

    async def follow() -> None:
        async for event in events:
            seen.append(event)  # noqa: PERF401 - it is looked at while it grows

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        group.create_task(follow())
        try:
            yield seen
        finally:
            await events.close()


def reading(desk: Desk) -> int:
    """How many connections are blocked in a read of events."""
    return sum(
        client["cmd"] == "xread" and "b" in client["flags"] for client in desk.redis.client_list()
    )


def rows(desk: Desk) -> list[tuple[str, list[str], dict[str, str]]]:
    """The events stream, raw: place, names of the fields in order, fields."""
    found = []
    for place, fields in desk.redis.xrange(desk.keys.events):
        text = {key.decode(): value.decode() for key, value in fields.items()}
        found.append((place.decode(), list(text), text))
    return found


def redis_ms(desk: Desk) -> int:
    seconds, micros = desk.redis.time()
    return int(seconds) * 1000 + int(micros) // 1000
