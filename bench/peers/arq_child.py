"""arq: jobs in a sorted set that its worker polls, each marked while it is in progress."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from arq import Retry, Worker, create_pool, func
from arq.connections import RedisSettings
from arq.constants import in_progress_key_prefix
from drive import Handler, drive
from kit import CannotError, Orders

KEPT_S = 3600  # its own default
POLL_S = 0.01  # the default is 0.5: a worker that has read its fill would wait for the rest of it


class Arq:
    threads = False

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._settings = RedisSettings.from_dsn(orders.url)

    async def open(self) -> None:
        self._pool = await create_pool(self._settings, default_queue_name=self._orders.queue)

    async def add(self, data: Any) -> None:
        await self._pool.enqueue_job("handle", data)

    async def add_at(self, data: Any, moment: float) -> None:
        due = datetime.fromtimestamp(moment, UTC)
        await self._pool.enqueue_job("handle", data, _defer_until=due)

    async def add_many(self, data: Any, count: int) -> None:
        raise CannotError("it has no bulk call")

    async def left(self) -> int:
        """A job leaves the set together with its mark, or later."""
        waiting = int(await self._pool.zcard(self._orders.queue))
        return waiting or len(await self._pool.keys(f"{in_progress_key_prefix}*"))

    async def work(self, handler: Handler) -> None:
        async def handle(context: Any, data: Any) -> Any:
            return await handler(data)

        async def handle_in_thread(context: Any, data: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(None, handler, data)

        chosen = handle_in_thread if self._orders.handler == "def" else handle
        worker = Worker(
            [func(chosen, name="handle")],
            queue_name=self._orders.queue,
            redis_settings=self._settings,
            max_jobs=self._orders.concurrency,
            poll_delay=POLL_S,
            keep_result=KEPT_S if self._orders.handler == "result" else 0,
            handle_signals=False,
            log_results=False,
        )
        await worker.async_run()

    def again(self) -> Exception:
        return Retry()


if __name__ == "__main__":
    drive(Arq, ("arq", "redis", "hiredis", "uvloop"))
