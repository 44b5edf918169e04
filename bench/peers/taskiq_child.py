"""taskiq with its Redis Streams broker: a consumer group, a task for each job, an ack each.

Its delayed jobs wait with a scheduler that looks at them each second; it runs beside the worker,
in the same process.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import redis.asyncio
from drive import Handler, drive
from kit import CannotError, Orders
from taskiq import SimpleRetryMiddleware, TaskiqScheduler
from taskiq.api import run_receiver_task, run_scheduler_task
from taskiq_redis import ListRedisScheduleSource, RedisAsyncResultBackend, RedisStreamBroker

PREFETCH = 100
EACH_SECOND = timedelta(seconds=1)  # the finest that its scheduler knows


class Taskiq:
    threads = False

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._client = redis.asyncio.Redis.from_url(orders.url)
        self._broker = _broker(orders)
        self._schedules = ListRedisScheduleSource(orders.url)
        self._handler: Handler

        async def handle(data: Any) -> Any:
            return await self._handler(data)

        def handle_plain(data: Any) -> Any:
            return self._handler(data)

        self._task = self._broker.register_task(
            handle_plain if orders.handler == "def" else handle,
            task_name="handle",
            retry_on_error=orders.what == "retry",
        )

    async def open(self) -> None:
        await self._broker.startup()

    async def add(self, data: Any) -> None:
        await self._task.kiq(data)

    async def add_at(self, data: Any, moment: float) -> None:
        due = datetime.fromtimestamp(moment, UTC)
        await self._task.schedule_by_time(self._schedules, due, data)

    async def add_many(self, data: Any, count: int) -> None:
        raise CannotError("it has no bulk call")

    async def left(self) -> int:
        """It deletes no entries: what counts is what its group has not read or not acked."""
        [group] = await self._client.xinfo_groups(self._orders.queue)
        return int(group["lag"] + group["pending"]) or len(await self._client.keys("schedule:*"))

    async def work(self, handler: Handler) -> None:
        self._handler = handler
        working = run_receiver_task(
            self._broker,
            max_async_tasks=self._orders.concurrency,
            sync_workers=self._orders.concurrency,
            max_prefetch=PREFETCH,
        )
        if self._orders.what not in ("delayed", "punctual"):
            await working
        scheduler = TaskiqScheduler(self._broker, [self._schedules])
        await asyncio.gather(
            working, run_scheduler_task(scheduler, interval=EACH_SECOND, loop_interval=EACH_SECOND)
        )

    def again(self) -> Exception:
        return RuntimeError("the first run fails")


def _broker(orders: Orders) -> RedisStreamBroker:
    connections = max(orders.concurrency, orders.size) + 10  # one for each ack that is under way
    broker = RedisStreamBroker(
        orders.url, queue_name=orders.queue, max_connection_pool_size=connections
    )
    if orders.handler == "result":
        broker = broker.with_result_backend(RedisAsyncResultBackend(orders.url))
    if orders.what == "retry":
        broker = broker.with_middlewares(SimpleRetryMiddleware())
    return broker


if __name__ == "__main__":
    drive(Taskiq, ("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop"))
