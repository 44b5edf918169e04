"""dramatiq: one thread fetches by Lua, worker threads run and acknowledge one by one."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

# Read when it is imported. The default is two a thread, and a thread that is alone mostly waits.
os.environ["dramatiq_queue_prefetch"] = "200"  # noqa: SIM112 - its spelling

import dramatiq
import redis
from dramatiq import Worker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from drive import Handler, Threaded, drive
from kit import CannotError, Orders

SPARE_CONNECTIONS = 10  # for the producer and for those that fetch
LOOK_MS = 50  # at the latest, when idle; the default is 1000, and delayed jobs wait for it too
SOON_MS = 1  # 0 is its word for the default, 15 s


class Dramatiq(Threaded):
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._handler: Handler
        # A thread that gets no connection pauses for 5 s, and redis-py allows but 100.
        connections = orders.concurrency + SPARE_CONNECTIONS
        self._client = redis.Redis.from_url(orders.url, max_connections=connections)
        self._broker = RedisBroker(client=self._client)
        options: dict[str, Any] = {"min_backoff": SOON_MS, "max_backoff": SOON_MS}
        if orders.handler == "result":
            self._broker.add_middleware(Results(backend=RedisBackend(client=self._client)))
            options["store_results"] = True
        self._actor = dramatiq.actor(
            self._run, broker=self._broker, actor_name="run", queue_name=orders.queue, **options
        )

    async def add(self, data: Any) -> None:
        self._actor.send(data)

    async def add_at(self, data: Any, moment: float) -> None:
        delay_ms = round((moment - time.time()) * 1000)
        self._actor.send_with_options(args=(data,), delay=delay_ms)

    async def add_many(self, data: Any, count: int) -> None:
        raise CannotError("it has no bulk call: its `group` adds one by one")

    async def left(self) -> int:
        """A message is in a hash until it is acknowledged."""
        keys = [f"dramatiq:{self._orders.queue}.msgs", f"dramatiq:{self._orders.queue}.DQ.msgs"]
        return sum(int(self._client.hlen(key)) for key in keys)

    async def work(self, handler: Handler) -> None:
        self._handler = handler
        self._worker = Worker(
            self._broker, worker_threads=self._orders.concurrency, worker_timeout=LOOK_MS
        )
        self._worker.start()
        await asyncio.Event().wait()  # its threads work on

    def _run(self, data: Any) -> Any:
        return self._handler(data)


if __name__ == "__main__":
    drive(Dramatiq, ("dramatiq", "redis", "hiredis"))
