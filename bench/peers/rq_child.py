"""RQ: a SimpleWorker, which runs one job at a time in its own process, whatever is asked.

It wants the main thread for its time limits, so all else happens in another. Delayed jobs wait
with a scheduler, a process of its own, which drops the fractions of their seconds.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import traceback
from datetime import UTC, datetime
from typing import Any

import redis
from drive import Handler, Threaded, drive
from kit import Orders
from rq import Queue, Retry, SimpleWorker

NOT_KEPT, KEPT_S = 0, 500  # the second is its own default
HANDLE = "rq_child.handle"


class Rq(Threaded):
    current: Rq  # jobs find their handler by the names of this module
    starting = threading.Event()

    def __init__(self, orders: Orders) -> None:
        Rq.current = self
        self.handler: Handler
        self._schedules = orders.what in ("delayed", "punctual")
        client = redis.Redis.from_url(orders.url)
        self._queue = Queue(orders.queue, connection=client)
        self._worker = SimpleWorker([self._queue], connection=client)
        self._options: dict[str, Any] = {
            "result_ttl": KEPT_S if orders.handler == "result" else NOT_KEPT,
            "retry": Retry(max=1) if orders.what == "retry" else None,
        }

    async def add(self, data: Any) -> None:
        self._queue.enqueue(HANDLE, data, **self._options)

    async def add_at(self, data: Any, moment: float) -> None:
        due = datetime.fromtimestamp(moment, UTC)
        self._queue.enqueue_at(due, HANDLE, data, **self._options)

    async def add_many(self, data: Any, count: int) -> None:
        jobs = [Queue.prepare_data(HANDLE, (data,), **self._options) for _ in range(count)]
        self._queue.enqueue_many(jobs)

    async def left(self) -> int:
        running, waiting = self._queue.started_job_registry, self._queue.scheduled_job_registry
        return len(self._queue) + running.get_job_count(cleanup=False) + waiting.get_job_count()

    async def work(self, handler: Handler) -> None:
        self.handler = handler
        Rq.starting.set()
        await asyncio.Event().wait()  # the main thread works on

    def work_here(self) -> None:
        os.register_at_fork(after_in_child=_end_with_parent)
        self._worker.work(with_scheduler=self._schedules)


def handle(data: Any) -> Any:
    return Rq.current.handler(data)


def _end_with_parent() -> None:
    """A scheduler that nobody ends would go on asking Redis."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _drive() -> None:
    try:
        drive(Rq, ("rq", "redis", "hiredis"))  # ends the process
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    threading.Thread(target=_drive, daemon=True).start()
    Rq.starting.wait()
    Rq.current.work_here()


if __name__ == "__main__":
    import rq_child  # by this name, as jobs do

    rq_child.main()
