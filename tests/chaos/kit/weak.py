"""Workers that are wrong on purpose, to show that the kit can tell.

`python -m tests.chaos.kit.weak <orders as JSON>`: a bare worker on redis-py. It promotes, buries
and retries nothing, and is careful otherwise, unless its orders name a weakness:

    ack_first   acknowledge what was read before it is run: a crash loses it
    trim        keep the stream at a length, whatever was read or not: a backlog is lost
    no_lease    never renew, never look at what is running already: slow jobs run twice at once
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import msgspec
import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff

from chasquimq import wire
from chasquimq.job import Envelope
from tests.chaos.kit.fleet import Orders, obey_parent
from tests.chaos.kit.handler import Handler
from tests.chaos.kit.ledger import Ledger

GROUP = "default"
TRIMMED_TO = 50
PATIENCE = Retry(ConstantBackoff(0.1), 600)  # a server that is away for a minute is waited for


def stream_key(queue: str) -> str:
    return f"{{chasqui:{queue}}}:stream"


def add(url: str, queue: str, numbers: Iterable[int], ledger: Ledger) -> None:
    """Add a job for each number, `job-<n>`, and note that the server took it."""
    jobs = {f"job-{number}": msgspec.msgpack.encode(number) for number in numbers}
    with redis.Redis.from_url(url) as client:
        pipe = client.pipeline(transaction=False)
        for job, payload in jobs.items():
            envelope = wire.pack_envelope(Envelope(job, payload, time.time_ns() // 1_000_000))
            pipe.execute_command("XADD", stream_key(queue), "*", "d", envelope)
        pipe.execute()
    for job in jobs:
        ledger.accepted(job)


class WeakWorker:
    def __init__(self, orders: Orders) -> None:
        self._redis: Any = Redis.from_url(orders.url, protocol=2, retry=PATIENCE)
        self._stream = stream_key(orders.queue)
        self._orders = orders
        self._weak = frozenset(orders.weakness)
        self._handler = Handler(Ledger(orders.ledger), orders.behaviour)
        self._name = orders.consumer_id or f"weak-{time.monotonic_ns()}"
        self._running: dict[bytes, asyncio.Task[None]] = {}

    async def run(self) -> None:
        with suppress(redis.ResponseError):
            await self._redis.xgroup_create(self._stream, GROUP, "0", mkstream=True)
        async with asyncio.TaskGroup() as tasks:
            if "no_lease" not in self._weak:
                tasks.create_task(self._renew())
            while True:
                for entry, fields in await self._read():
                    if entry not in self._running or "no_lease" in self._weak:
                        self._running[entry] = tasks.create_task(self._one(entry, fields))

    async def _read(self) -> list[tuple[bytes, dict[bytes, bytes]]]:
        free = self._orders.concurrency - len(self._running)
        if free <= 0:
            await asyncio.sleep(0.002)
            return []
        if "trim" in self._weak:
            await self._redis.xtrim(self._stream, maxlen=TRIMMED_TO, approximate=False)
        lease = self._orders.claim_min_idle_ms
        _, claimed, *_ = await self._redis.xautoclaim(
            self._stream, GROUP, self._name, lease, count=free
        )
        new = await self._redis.xreadgroup(
            GROUP, self._name, {self._stream: ">"}, count=free, block=50
        )
        read = [*claimed, *(new[0][1] if new else [])]
        if read and "ack_first" in self._weak:
            await self._settle([entry for entry, _ in read])
        return read

    async def _one(self, entry: bytes, fields: dict[bytes, bytes]) -> None:
        envelope = wire.unpack_envelope(fields[b"d"])
        number = msgspec.msgpack.decode(envelope.payload, type=int)
        try:
            await self._handler(SimpleNamespace(id=envelope.id, data=number, attempt=0))
        except RuntimeError:
            return
        finally:
            self._running.pop(entry, None)
        await self._settle([entry])

    async def _settle(self, entries: list[bytes]) -> None:
        pipe = self._redis.pipeline(transaction=True)
        pipe.xack(self._stream, GROUP, *entries)
        pipe.xdel(self._stream, *entries)
        await pipe.execute()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._orders.claim_min_idle_ms / 3000)
            if self._running:
                held = list(self._running)
                await self._redis.xclaim(self._stream, GROUP, self._name, 0, held, justid=True)


async def main(orders: Orders) -> None:
    worker = WeakWorker(orders)
    print("ready", flush=True)
    await worker.run()


if __name__ == "__main__":
    obey_parent()
    asyncio.run(main(Orders.from_json(sys.argv[1])))
