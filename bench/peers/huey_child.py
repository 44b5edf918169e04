"""huey: each of its threads pops one job by BRPOP, runs it, and forgets it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from drive import Handler, Threaded, drive
from huey import RedisHuey
from kit import CannotError, Orders

SPARE_CONNECTIONS = 10  # for the producer and the scheduler


class Huey(Threaded):
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        # A thread keeps its connection while it waits for a job, and redis-py allows but 100.
        connections = orders.concurrency + SPARE_CONNECTIONS
        self._huey = RedisHuey(
            orders.queue,
            results=orders.handler == "result",
            url=f"{orders.url}?max_connections={connections}",
        )
        self._task = self._huey.task(retries=int(orders.what == "retry"), name="handle")(self._run)

    async def add(self, data: Any) -> None:
        self._task(data)

    async def add_at(self, data: Any, moment: float) -> None:
        self._task.schedule(args=(data,), eta=datetime.fromtimestamp(moment, UTC))

    async def add_many(self, data: Any, count: int) -> None:
        raise CannotError("it has no bulk call: its `map` adds one by one")

    async def left(self) -> int:
        """What is in progress stands nowhere: it was popped."""
        return int(self._huey.pending_count() + self._huey.scheduled_count())

    async def work(self, handler: Handler) -> None:
        self._handler = handler
        consumer = self._huey.create_consumer(
            workers=self._orders.concurrency, worker_type="thread", periodic=False
        )
        consumer.start()
        await asyncio.Event().wait()  # its threads work on

    def _run(self, data: Any) -> Any:
        return self._handler(data)


if __name__ == "__main__":
    drive(Huey, ("huey", "redis", "hiredis"))
