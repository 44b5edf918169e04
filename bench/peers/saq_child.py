"""SAQ: its worker takes one job a time by BLMOVE, in as many tasks as it has concurrency."""

from __future__ import annotations

from typing import Any

from drive import Handler, drive
from kit import CannotError, Orders
from saq import Queue, Worker

KEPT_S = 600  # its own default
NOT_KEPT = -1


class Saq:
    threads = False

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._settings = {"ttl": KEPT_S if orders.handler == "result" else NOT_KEPT}
        if orders.what == "retry":
            self._settings["retries"] = 2

    async def open(self) -> None:
        self._queue = Queue.from_url(self._orders.url, name=self._orders.queue)
        await self._queue.connect()

    async def add(self, data: Any) -> None:
        await self._queue.enqueue("handle", data=data, **self._settings)

    async def add_at(self, data: Any, moment: float) -> None:
        await self._queue.enqueue("handle", data=data, scheduled=moment, **self._settings)

    async def add_many(self, data: Any, count: int) -> None:
        raise CannotError("it has no bulk call: its `batch` adds one by one")

    async def left(self) -> int:
        return await self._queue.count("incomplete")  # until a job is finished, whatever it does

    async def work(self, handler: Handler) -> None:
        if self._orders.handler == "def":

            def handle(context: Any, *, data: Any) -> Any:
                return handler(data)
        else:

            async def handle(context: Any, *, data: Any) -> Any:
                return await handler(data)

        # A worker sweeps as it starts, and may take a job that another of its tasks has just popped
        # for a stuck one, unless somebody has swept within the last minute.
        await self._queue.sweep()
        functions = [("handle", handle)]
        await Worker(self._queue, functions, concurrency=self._orders.concurrency).start()

    def again(self) -> Exception:
        return RuntimeError("the first run fails")


if __name__ == "__main__":
    drive(Saq, ("saq", "redis", "hiredis", "uvloop"))
