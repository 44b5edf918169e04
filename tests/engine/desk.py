"""A queue on a real server, as tests work with it: doors to open, and what Redis holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis

from chasquimq import Job, Queue, Worker, wire
from chasquimq.engine.producer import Producer
from chasquimq.job import Envelope
from chasquimq.store.pipe import Pipe
from tests.servers import DialectServer

Handler = Callable[[Job], Awaitable[Any] | Any]


class Desk:
    def __init__(self, server: DialectServer, queue_name: str) -> None:
        self.server = server
        self.name = queue_name
        self.keys = wire.Keys(queue_name)
        self.redis: redis.Redis = server.client()

    # -- doors ---------------------------------------------------------------------------------

    def queue(self, **options: Any) -> Queue:
        options.setdefault("redis_url", self.server.url)
        return Queue(self.name, dialect=self.server.forced_dialect, **options)

    def worker(self, handler: Handler, **options: Any) -> Worker:
        options.setdefault("redis_url", self.server.url)
        return Worker(self.name, handler, dialect=self.server.forced_dialect, **options)

    @asynccontextmanager
    async def working(self, handler: Handler, **options: Any) -> AsyncIterator[Worker]:
        """A worker that runs for the block, and must stop cleanly after it."""
        worker = self.worker(handler, **options)
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            try:
                yield worker
            finally:
                await worker.close()

    async def settled(self, timeout: float = 20.0) -> None:
        """Wait until nothing waits, runs or is delayed."""
        await eventually(lambda: self.left() == 0, timeout)

    # -- what Redis holds ------------------------------------------------------------------------

    def waiting(self) -> int:
        return int(self.redis.xlen(self.keys.stream))

    def delayed(self) -> int:
        return int(self.redis.zcard(self.keys.delayed))

    def left(self) -> int:
        """Both, at one moment: asked one after the other, a job may move in between."""
        with self.redis.pipeline() as pipe:
            return sum(pipe.xlen(self.keys.stream).zcard(self.keys.delayed).execute())

    def dead(self) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in self.redis.xrange(self.keys.dlq)]

    def pending(self) -> list[dict[str, Any]]:
        try:
            return list(self.redis.xpending_range(self.keys.stream, "default", "-", "+", 1000))
        except redis.ResponseError:  # no group yet
            return []

    def events(self) -> list[wire.EventRow]:
        rows = self.redis.xrange(self.keys.events)
        return [wire.unpack_event([x for pair in row.items() for x in pair]) for _, row in rows]

    def envelopes(self) -> list[Envelope]:
        rows = self.redis.xrange(self.keys.stream)
        return [wire.unpack_envelope(fields[b"d"]) for _, fields in rows]

    # -- what others may have put there ------------------------------------------------------------

    def put(self, job_id: str = "job", data: Any = None, name: str = "", **slots: Any) -> bytes:
        """An entry as another program would write it; answers its id."""
        envelope = Envelope(job_id, wire.encode(data), 1_700_000_000_000, **slots)
        return self.put_raw(wire.pack_envelope(envelope), name.encode())

    def put_raw(self, body: bytes, name: bytes = b"") -> bytes:
        fields = {b"d": body, **({b"n": name} if name else {})}
        return bytes(self.redis.xadd(self.keys.stream, fields))  # type: ignore[arg-type]

    def abandon(self, count: int, consumer: str = "ghost", deliveries: int = 1) -> list[bytes]:
        """Have a consumer that does not live take entries; answers their ids."""
        try:
            self.redis.xgroup_create(self.keys.stream, "default", "0", mkstream=True)
        except redis.ResponseError:
            pass
        read = self.redis.xreadgroup("default", consumer, {self.keys.stream: ">"}, count=count)
        ids = [entry_id for entry_id, _ in read[0][1]]
        for _ in range(deliveries - 1):
            self.redis.xclaim(self.keys.stream, "default", consumer, 0, ids)
        return ids


def producer_of(queue: Queue) -> Producer:
    session = queue._sessions.known()
    assert session is not None and session.live is not None
    return session.live


def deafened(queue: Queue) -> tuple[Pipe, list[bytes]]:
    """The connection of its adds, which hears no answer any more, and what it would have heard."""
    pipe, unheard = producer_of(queue).link.pipe, list[bytes]()
    assert pipe is not None
    pipe.data_received = unheard.append  # type: ignore[method-assign]
    return pipe, unheard


async def eventually(holds: Callable[[], Any], timeout: float = 20.0) -> None:
    """Poll until it holds; the timeout only ends a test that would fail anyway."""
    deadline = asyncio.get_running_loop().time() + timeout
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, "it never came to hold"
        await asyncio.sleep(0.01)
