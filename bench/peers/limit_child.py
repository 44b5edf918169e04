"""The limit: what Redis can do for us at all, if the client did next to nothing.

    python bench/peers/limit_child.py '<orders as JSON>'

Every command is written down beforehand, byte by byte as our store writes it, and goes over one
blocking socket; hiredis counts the replies. That is about what a client in C would need.

worker      XREADGROUP of 256, their `active` events, XACKDEL of all, their `completed` events; the
            next 256 are on their way before the replies to these are read
producers   XADD with IDMP, as many to a round trip as one call adds
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import hiredis
import redis
from kit import CannotError, Clock, Orders, added, calls_of, ready, serve

from chasquimq import Queue, wire
from chasquimq.config import EventOptions
from chasquimq.happening import Completed, Started
from chasquimq.job import Envelope
from chasquimq.observe.stream import EventStream
from chasquimq.store.jobs import Jobs
from chasquimq.store.native import Native
from chasquimq.wire.ulid import Mint

GROUP, CONSUMER, NAME = "default", "limit", "job"
BATCH = 256
AHEAD = 2  # batches on their way
WRITE = 50  # commands in one write: as many at once are slower if there are more
RECEIVE = 1 << 18
Chunk = tuple[bytes, int]  # what is written at once, and how many replies it has


class Wire:
    """A socket, and a reader that counts."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self.send(b"SELECT %d\r\n" % int(parts.path.strip("/") or 0))
        self.take(1)

    def send(self, commands: bytes) -> None:
        self._socket.sendall(commands)

    def take(self, replies: int) -> None:
        while replies:
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(RECEIVE))
                continue
            if isinstance(reply, Exception):
                raise reply
            replies -= 1


class Collected:
    """Stands where a worker's settler does, and keeps the commands of events."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def event(self, command: bytes) -> None:
        self.commands.append(command)

    event_before = event

    def taken(self) -> list[bytes]:
        commands, self.commands = self.commands, []
        return commands


def worked(orders: Orders) -> dict[str, Any]:
    client = redis.Redis.from_url(orders.url)
    chunks = list(chunks_of_worker(orders, client))
    warm_up = max(len(chunks) // 10, 1)
    link = Wire(orders.url)
    ready()
    work(link, chunks[:warm_up])
    clock = Clock()
    work(link, chunks[warm_up:])
    result = clock.result(orders.jobs - warm_up * BATCH)
    left = client.xlen(wire.Keys(orders.queue).stream)
    return {**result, "handled": orders.jobs - left}


def work(link: Wire, chunks: list[Chunk]) -> None:
    awaited: deque[int] = deque()
    for commands, replies in chunks:
        link.send(commands)
        awaited.append(replies)
        if len(awaited) == AHEAD:
            link.take(awaited.popleft())
    for replies in awaited:
        link.take(replies)


def chunks_of_worker(orders: Orders, client: redis.Redis) -> Iterator[Chunk]:
    keys = wire.Keys(orders.queue)
    client.xgroup_create(keys.stream, GROUP, "0")
    native = Native(keys, group=GROUP, producer_id=b"", trim=0)
    read = Jobs(keys, native, None, GROUP, CONSUMER).read(BATCH, 5000)  # type: ignore[arg-type]
    collected = Collected()
    events = EventStream(keys, collected, EventOptions())
    with_events = orders.options.get("events_enabled", True)
    entries = client.xrange(keys.stream)
    for first in range(0, len(entries), BATCH):
        batch = entries[first : first + BATCH]
        before, after = [], []
        if with_events:
            jobs = [wire.unpack_envelope(fields[b"d"]) for _, fields in batch]
            for job in jobs:
                events.hear(Started(job.id, NAME, 0, job.created_at_ms))
            before = collected.taken()
            for job in jobs:
                events.hear(Completed(job.id, NAME, 0, 1))
            after = collected.taken()
        ack = native.ack([entry_id for entry_id, _ in batch])
        commands = [read, *before, ack, *after]
        yield b"".join(commands), len(commands)


def produced(orders: Orders) -> dict[str, Any]:
    calls, warm_up = calls_of(orders)
    # Our own producer warms up: it also sets up how the stream remembers ids.
    asyncio.run(open_queue(orders, warm_up * orders.size))
    sizes = [min(WRITE, orders.size - first) for first in range(0, orders.size, WRITE)]
    adds = adds_of(orders)
    prepared = [[b"".join(next(adds) for _ in range(size)) for size in sizes] for _ in range(calls)]
    link = Wire(orders.url)
    ready()
    clock = Clock()
    for writes in prepared:
        for commands in writes:
            link.send(commands)
        link.take(orders.size)
    return added(clock, orders)


async def open_queue(orders: Orders, jobs: int) -> None:
    async with Queue(orders.queue, redis_url=orders.url) as queue:
        await queue.add_bulk([{"name": NAME, "data": orders.payload}] * jobs)


def adds_of(orders: Orders) -> Iterator[bytes]:
    keys, payload = wire.Keys(orders.queue), wire.encode(orders.payload)
    native = Native(keys, group=GROUP, producer_id=b"c0ffee00-0000-4000-8000-000000000000", trim=0)
    mint, now_ms = Mint(), 1_767_225_600_000
    end = b"\r\n$1\r\nn\r\n$%d\r\n%b\r\n" % (len(NAME), NAME.encode())
    while True:
        for job_id in mint.many(now_ms, 1000):
            envelope = wire.pack_envelope(Envelope(job_id.decode(), payload, now_ms, 0))
            yield b"%b%d\r\n%b%b" % (native.add_front(job_id, 1), len(envelope), envelope, end)


def run(orders: Orders) -> dict[str, Any]:
    if orders.what == "worker" and orders.handler == "noop":
        return worked(orders)
    if orders.what in ("add", "bulk"):
        return produced(orders)
    raise CannotError("the limit is that of adding, and of a worker that does nothing")


if __name__ == "__main__":
    serve(run, ("redis", "hiredis"))
