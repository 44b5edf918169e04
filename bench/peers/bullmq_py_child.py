"""BullMQ's Python package: the same Lua scripts as BullMQ on Node, one job at a time each."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bullmq import Queue, Worker
from drive import Handler, drive
from kit import Orders


class BullMQ:
    threads = False

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._settings: dict[str, Any] = {"removeOnComplete": orders.handler != "result"}
        if orders.what == "retry":
            self._settings["attempts"] = 2

    async def open(self) -> None:
        self._queue = Queue(self._orders.queue, {"connection": self._orders.url})
        await self.left()

    async def add(self, data: Any) -> None:
        await self._queue.add("handle", data, self._settings)

    async def add_at(self, data: Any, moment: float) -> None:
        delay = round((moment - time.time()) * 1000)
        await self._queue.add("handle", data, self._settings | {"delay": delay})

    async def add_many(self, data: Any, count: int) -> None:
        job = {"name": "handle", "data": data, "opts": self._settings}
        await self._queue.addBulk([job] * count)

    async def left(self) -> int:
        counts = await self._queue.getJobCounts("waiting", "active", "delayed", "prioritized")
        return sum(counts.values())

    async def work(self, handler: Handler) -> None:
        orders, loop = self._orders, asyncio.get_running_loop()

        async def handle(job: Any, token: str) -> Any:
            return await handler(job.data)

        async def in_thread(job: Any, token: str) -> Any:  # it takes coroutine functions only
            return await loop.run_in_executor(None, handler, job.data)

        options = {
            "connection": orders.url,
            "concurrency": orders.concurrency,
            "autorun": False,
        }
        processor = in_thread if orders.handler == "def" else handle
        await Worker(orders.queue, processor, options).run()

    def again(self) -> Exception:
        return RuntimeError("the first run fails")


if __name__ == "__main__":
    drive(BullMQ, ("bullmq", "redis", "hiredis", "uvloop"))
