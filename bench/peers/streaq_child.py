"""streaQ: its worker reads ids from a stream, as many as it has concurrency ahead, and fetches
and finishes each job by a pipeline of its own."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from drive import Handler, drive
from kit import Orders
from streaq import StreaqRetry, Worker

KEPT_S = 300  # its own default
NOT_KEPT = 0


class Streaq:
    threads = False

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        # `silent` spares it to format two lines for a log that nobody reads.
        self._settings = {
            "name": "handle",
            "silent": True,
            "ttl": KEPT_S if orders.handler == "result" else NOT_KEPT,
        }
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        producer = self._new()
        self._task = producer.task(**self._settings)(_nothing)
        self._producer = await self._stack.enter_async_context(producer)

    def _new(self) -> Worker[Any]:
        orders = self._orders
        return Worker(
            redis_url=orders.url,
            queue_name=orders.queue,
            concurrency=orders.concurrency,
        )

    async def add(self, data: Any) -> None:
        await self._task.enqueue(data)

    async def add_at(self, data: Any, moment: float) -> None:
        await self._task.enqueue(data).start(schedule=datetime.fromtimestamp(moment, UTC))

    async def add_many(self, data: Any, count: int) -> None:
        await self._producer.enqueue_many([self._task.enqueue(data) for _ in range(count)])

    async def left(self) -> int:
        return await self._producer.queue_size()  # a job leaves its stream when it is finished

    async def work(self, handler: Handler) -> None:
        worker = self._new()
        worker.task(**self._settings)(handler)
        await worker.run_async()

    def again(self) -> Exception:
        return StreaqRetry("the first run fails", delay=timedelta(0))


async def _nothing(data: Any) -> None:
    """Stands for the handler where jobs are only added."""


if __name__ == "__main__":
    drive(Streaq, ("streaq", "coredis", "uvloop"))
