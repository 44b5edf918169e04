"""Celery on Redis: a consumer that prefetches, and a pool of threads, or none for one at a time."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import redis
from celery import Celery
from celery.worker import WorkController
from drive import Handler, Threaded, drive
from kit import CannotError, Orders


class CeleryTasks(Threaded):
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._handler: Handler
        self._client = redis.Redis.from_url(orders.url)
        results = orders.handler == "result"
        self._app = Celery("bench", broker=orders.url, backend=orders.url if results else None)
        self._app.set_default()  # or its threads would ask for another
        self._app.conf.update(task_default_queue=orders.queue, task_ignore_result=not results)

        def handle(data: Any) -> Any:
            return self._handler(data)

        again = {"autoretry_for": (RuntimeError,), "default_retry_delay": 0}
        self._task = self._app.task(
            handle, name="handle", **(again if orders.what == "retry" else {})
        )

    async def add(self, data: Any) -> None:
        self._task.delay(data)

    async def add_at(self, data: Any, moment: float) -> None:
        self._task.apply_async((data,), eta=datetime.fromtimestamp(moment, UTC))

    async def add_many(self, data: Any, count: int) -> None:
        raise CannotError("it has no bulk call: its `group` adds one by one")

    async def left(self) -> int:
        """A message is acknowledged before it is handled, so its result comes last."""
        messages = int(self._client.llen(self._orders.queue)) + int(self._client.hlen("unacked"))
        if messages or self._orders.handler != "result":
            return messages
        return self._orders.jobs - len(self._client.keys("celery-task-meta-*"))

    async def work(self, handler: Handler) -> None:
        self._handler = handler
        worker = WorkController(
            app=self._app,
            pool="solo" if self._orders.concurrency == 1 else "threads",
            concurrency=self._orders.concurrency,
            queues=[self._orders.queue],
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        threading.Thread(target=worker.start, daemon=True).start()
        await asyncio.Event().wait()  # its threads work on


if __name__ == "__main__":
    drive(CeleryTasks, ("celery", "kombu", "redis", "hiredis"))
