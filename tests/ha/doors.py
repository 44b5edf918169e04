"""Every door of ours, used once on a queue: each leaves keys of that queue on the right server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis

from chasquimq import Queue, QueueEvents, Worker, sync
from chasquimq.address import read_url
from chasquimq.native import Consumer, Producer, Promoter, Scheduler
from chasquimq.spark.client import Client
from tests.ha.kit import until

Door = Callable[[str, str, redis.Redis], Awaitable[None]]


def keys_of(queue: str, server: redis.Redis) -> list[bytes]:
    return list(server.scan_iter(f"{{chasqui:{queue}}}:*"))


@asynccontextmanager
async def running(*doors: Promoter | Scheduler | Consumer, **options: Any) -> AsyncIterator[None]:
    """Doors that run for the block, and must end when they are told to."""
    async with asyncio.TaskGroup() as group:
        for door in doors:
            group.create_task(door.run(**options) if isinstance(door, Consumer) else door.run())
        try:
            yield
        finally:
            for door in doors:
                door.shutdown()


async def ignore(job: object) -> None:
    pass


async def queue(url: str, name: str, right: redis.Redis) -> None:
    async with Queue(name, redis_url=url) as door:
        await door.add("a", 1)
        await door.add("a", 1, delay_ms=3_600_000)


async def worker(url: str, name: str, right: redis.Redis) -> None:
    await Worker(name, ignore, redis_url=url, burst=True).run()


async def from_a_thread(url: str, name: str, right: redis.Redis) -> None:
    def use() -> None:
        with sync.Queue(name, redis_url=url) as door:
            door.add("a", 1)

    await asyncio.to_thread(use)


async def producer(url: str, name: str, right: redis.Redis) -> None:
    door = Producer(url, name)
    await door.add(b"\xc0")
    await door.shutdown()


async def consumer(url: str, name: str, right: redis.Redis) -> None:
    await Consumer(url, name, burst=True).run(ignore)  # type: ignore[arg-type]


async def promoter(url: str, name: str, right: redis.Redis) -> None:
    async with running(Promoter(url, name)):
        await asyncio.to_thread(until, lambda: right.exists(f"{{chasqui:{name}}}:promoter:lock"))


async def scheduler(url: str, name: str, right: redis.Redis) -> None:
    async with running(Scheduler(url, name)):
        await asyncio.to_thread(until, lambda: right.exists(f"{{chasqui:{name}}}:scheduler:lock"))


async def events(url: str, name: str, right: redis.Redis) -> None:
    """Reads, and finds what was told on the right server."""
    await queue(url, name, right)
    door = QueueEvents(name, redis_url=url, last_event_id="0")
    async for event in door:
        if event.name == "delayed":
            break
    await door.close()


async def command(url: str, name: str, right: redis.Redis) -> None:
    words = [sys.executable, "-m", "chasquimq", "add", name, "a", "1", "--redis-url", url]
    await asyncio.to_thread(subprocess.run, words, check=True, capture_output=True, timeout=60)


async def spark(url: str, name: str, right: redis.Redis) -> None:
    """The one connection of its sources and sinks."""
    key = f"{{chasqui:{name}}}:stream"
    with Client(read_url(url).of(key)) as door:
        door.ask("XADD", key, "*", "d", "")


EVERY: tuple[Door, ...] = (
    *(queue, worker, from_a_thread, producer, consumer, promoter, scheduler, events, command),
    spark,
)
