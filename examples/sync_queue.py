"""A synchronous program: threads that serve requests add jobs, and so do forked processes.

python examples/sync_queue.py
"""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from place import redis_url

from chasquimq import Job, Worker
from chasquimq.sync import Queue

USERS = ["ada", "grace", "edsger", "mallory"]


class Transaction:
    """What `django.db.transaction` does: functions that run once it is committed, or never."""

    def __init__(self) -> None:
        self._afterwards: list[Callable[[], object]] = []

    def on_commit(self, function: Callable[[], object]) -> None:
        self._afterwards.append(function)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            for function in self._afterwards:
                function()


def sign_up(queue: Queue, user: str) -> str:
    """A view, served by one of many threads."""
    try:
        with Transaction() as transaction:
            transaction.on_commit(partial(queue.add, "welcome", {"user": user}))
            if user == "mallory":
                raise ValueError("no such mailbox")
    except ValueError as error:
        return f"{user}: rolled back, {error}"
    return f"{user}: signed up"


def import_users(queue: Queue, number: int) -> None:
    """What a forked worker process does, with the queue that its parent had open."""
    queue.add_bulk([{"name": "import", "data": [number, row]} for row in range(100)])


def main(url: str) -> None:
    queue = Queue("sync-queue", redis_url=url)  # one for the whole program, made once

    with ThreadPoolExecutor(4) as threads:
        for line in threads.map(partial(sign_up, queue), USERS):
            print(line)

    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=import_users, args=(queue, number)) for number in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    print(f"two processes imported: {queue.counts().waiting} jobs wait")

    report = queue.add("report", "users")
    worker = threading.Thread(target=work, args=(url,))  # usually a process elsewhere
    worker.start()
    print(f"the report has {report.wait_for_result(timeout=30)} users")
    worker.join()
    # Nothing to close: that happens by itself when the program ends.


def work(url: str) -> None:
    imported = 0

    async def handle(job: Job) -> int | None:
        nonlocal imported
        if job.name == "welcome":
            print(f"  a mail to {job.data['user']}")
        imported += job.name == "import"
        return imported if job.name == "report" else None

    worker = Worker("sync-queue", handle, redis_url=url, store_results=True, burst=True)
    asyncio.run(worker.run())


if __name__ == "__main__":
    with redis_url() as url:
        main(url)
