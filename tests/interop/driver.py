"""A Queue and a Worker, driven from outside by JSON lines: ours or the reference's.

Which of the two depends on the interpreter that runs this; they have the same names, so the
same program does for both.

`python -m tests.interop.driver <url> <queue>`; a line in is a request, a line out its answer:

    {"do": "add", "with": {...}}   ->   {"value": ...} or {"error": "RuntimeError: ..."}

End of input ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import chasquimq
from chasquimq import BackoffSpec, Queue, UnrecoverableError, Worker, version


class Driver:
    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._name = queue
        self._queue = Queue(queue, redis_url=url)
        self._seen: list[dict[str, Any]] = []
        self._worker: Worker | None = None
        self._running: asyncio.Task[None] | None = None

    async def about(self) -> dict[str, str]:
        return {"version": str(version()), "file": str(chasquimq.__file__)}

    async def add(self, name: str, data: Any, **options: Any) -> dict[str, Any]:
        return _shown(await self._queue.add(name, data, **_options(options)))

    async def add_unique(self, name: str, data: Any, **options: Any) -> dict[str, Any]:
        return _shown(await self._queue.add_unique(name, data, **_options(options)))

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [_shown(job) for job in await self._queue.add_bulk([_options(j) for j in jobs])]

    async def cancel_delayed(self, job_id: str) -> bool:
        return bool(await self._queue.cancel_delayed(job_id))

    async def peek_dlq(self, limit: int) -> list[dict[str, Any]]:
        entries = await self._queue.peek_dlq(limit)
        return [{**entry, "payload": bytes(entry["payload"]).hex()} for entry in entries]

    async def replay_dlq(self, limit: int) -> int:
        return int(await self._queue.replay_dlq(limit))

    async def work(self, fail_below: int = 0, unrecoverable: bool = False, **options: Any) -> None:
        """Start a worker. Attempts below `fail_below` raise; `unrecoverable` raises for good."""

        async def handle(job: Any) -> None:
            self._seen.append(_shown(job))
            if unrecoverable:
                raise UnrecoverableError("as ordered")
            if job.attempt < fail_below:
                raise RuntimeError(f"attempt {job.attempt} fails, as ordered")

        self._worker = Worker(self._name, handle, redis_url=self._url, **options)
        self._running = asyncio.ensure_future(self._worker.run())

    async def seen(self) -> list[dict[str, Any]]:
        """Every run so far, in order, as the handler saw its job."""
        return self._seen

    async def rest(self) -> None:
        """Stop the worker."""
        if self._worker is not None and self._running is not None:
            await self._worker.close()
            await self._running
            self._worker = self._running = None


def _shown(job: Any) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "data": job.data,
        "attempt": job.attempt,
        "created_at_ms": job.created_at_ms,
    }


def _options(options: dict[str, Any]) -> dict[str, Any]:
    """JSON has no BackoffSpec: a dict with a `curve` becomes one, everything else stays."""
    backoff = options.get("backoff")
    if isinstance(backoff, dict) and "curve" in backoff:
        told = dict(backoff)
        make = getattr(BackoffSpec, told.pop("curve"))
        return {**options, "backoff": make(**told)}
    return options


async def main(url: str, queue: str) -> None:
    driver = Driver(url, queue)
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        try:
            answer = {"value": await getattr(driver, request["do"])(**request["with"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
