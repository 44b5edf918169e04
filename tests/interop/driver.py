"""All doors of one queue, driven from outside by JSON lines: ours or the reference's.

Which of the two depends on the interpreter that runs this; they have the same names, so the
same program does for both.

`python -m tests.interop.driver <url> <queue>`; a line in is a request, a line out its answer:

    {"do": "add", "with": {...}}   ->   {"value": ...} or {"error": "RuntimeError: ..."}

Bytes travel as {"hex": "..."}, tuples as {"tuple": [...]}.

End of input ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import chasquimq
from chasquimq import (
    BackoffSpec,
    Consumer,
    Producer,
    Queue,
    QueueEvents,
    RepeatPattern,
    Scheduler,
    UnrecoverableError,
    Worker,
    version,
)


class Driver:
    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._name = queue
        self._queue = Queue(queue, redis_url=url)
        self._seen: list[dict[str, Any]] = []
        self._added: dict[str, Any] = {}
        self._worker: Worker | None = None
        self._running: asyncio.Task[None] | None = None
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._scheduler: Scheduler | None = None
        self._told: list[dict[str, Any]] = []
        self._following: asyncio.Task[None] | None = None

    async def about(self) -> dict[str, str]:
        return {"version": str(version()), "file": str(chasquimq.__file__)}

    async def add(self, name: str, data: Any, **options: Any) -> dict[str, Any]:
        job = await self._queue.add(name, data, **_options(options))
        self._added[job.id] = job
        return _shown(job)

    async def add_unique(self, name: str, data: Any, **options: Any) -> dict[str, Any]:
        return _shown(await self._queue.add_unique(name, data, **_options(options)))

    async def add_bulk(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [_shown(job) for job in await self._queue.add_bulk([_options(j) for j in jobs])]

    async def cancel_delayed(self, job_id: str) -> bool:
        return bool(await self._queue.cancel_delayed(job_id))

    async def reschedule(self, job_id: str, delay_ms: int) -> bool:
        """Of a delayed job, as only ours can; and so with `run_now`."""
        return bool(await self._queue.reschedule(job_id, delay_ms))

    async def run_now(self, job_id: str) -> bool:
        return bool(await self._queue.run_now(job_id))

    async def peek_dlq(self, limit: int) -> list[dict[str, Any]]:
        return list(await self._queue.peek_dlq(limit))

    async def replay_dlq(self, limit: int) -> int:
        return int(await self._queue.replay_dlq(limit))

    async def get_job_result(self, job_id: str) -> Any:
        return await self._queue.get_job_result(job_id)

    async def get_job_result_bulk(self, ids: list[str]) -> list[Any]:
        return list(await self._queue.get_job_result_bulk(ids))

    async def wait_for_result(self, job_id: str, **options: Any) -> Any:
        """Of a job that `add` returned here."""
        return await self._added[job_id].wait_for_result(**options)

    async def work(
        self,
        fail_below: int = 0,
        unrecoverable: bool = False,
        echo: bool = False,
        **options: Any,
    ) -> None:
        """Start a worker. Attempts below `fail_below` raise; `unrecoverable` raises for good;
        `echo` returns the data."""

        async def handle(job: Any) -> Any:
            self._seen.append(_shown(job))
            if unrecoverable:
                raise UnrecoverableError("as ordered")
            if job.attempt < fail_below:
                raise RuntimeError(f"attempt {job.attempt} fails, as ordered")
            return job.data if echo else None

        self._worker = Worker(self._name, handle, redis_url=self._url, **options)
        self._running = asyncio.ensure_future(self._worker.run())

    async def seen(self) -> list[dict[str, Any]]:
        """Every run so far, in order, as the handler saw its job."""
        return self._seen

    async def produce(self, method: str, arguments: list[Any]) -> Any:
        """A call of the native producer."""
        if self._producer is None:
            self._producer = Producer(self._url, self._name)
        return await getattr(self._producer, method)(*arguments)

    async def consume(
        self, returns: list[tuple[bytes, Any]], fail_below: int = 0, **options: Any
    ) -> None:
        """Start a native consumer. Attempts below `fail_below` raise; what the others return
        goes by their payload."""

        async def handle(job: Any) -> Any:
            self._seen.append(_native(job))
            if job.attempt < fail_below:
                raise RuntimeError(f"attempt {job.attempt} fails, as ordered")
            return dict(returns).get(job.payload)

        self._consumer = Consumer(self._url, self._name, **options)
        self._running = asyncio.ensure_future(self._consumer.run(handle))

    async def promote(self, **options: Any) -> None:
        """Start a promoter, which only ours has."""
        promoter = chasquimq.Promoter(self._url, self._name, **options)
        self._running = asyncio.ensure_future(promoter.run())

    async def upsert(self, name: str, data: Any, **options: Any) -> str:
        """Write a spec; `repeat` is the dict form of its pattern."""
        told = dict(_options(options))
        repeat = dict(told.pop("repeat"))
        make = getattr(RepeatPattern, repeat.pop("kind"))
        pattern = make(*(repeat.pop(a) for a in ("expression", "interval_ms") if a in repeat))
        if repeat:
            pattern = RepeatPattern.cron(pattern.expression, **repeat)
        job = await self._queue.upsert_repeatable_job(name, data, repeat=pattern, **told)
        return str(job.id)

    async def repeatables(self) -> list[dict[str, Any]]:
        """The specs as both sides list them, and what ours tells besides, where it is ours."""
        return [_listed(meta) for meta in await self._queue.get_repeatable_jobs()]

    async def remove_repeatable(self, key: str) -> bool:
        return bool(await self._queue.remove_repeatable_by_key(key))

    async def pause_repeatable(self, key: str) -> bool:
        """As only ours can; and so with `resume_repeatable` and `run_repeatable_now`."""
        return bool(await self._queue.pause_repeatable(key))

    async def resume_repeatable(self, key: str) -> bool:
        return bool(await self._queue.resume_repeatable(key))

    async def run_repeatable_now(self, key: str) -> str:
        return str((await self._queue.run_repeatable_now(key)).id)

    async def schedule(self, **options: Any) -> None:
        """Start a native scheduler."""
        self._scheduler = Scheduler(self._url, self._name, **options)
        self._running = asyncio.ensure_future(self._scheduler.run())

    async def rest_scheduler(self) -> None:
        """Stop it as a user would, and wait until it has ended."""
        if self._scheduler is not None and self._running is not None:
            self._scheduler.shutdown()
            await self._running
            self._scheduler = self._running = None

    async def ended(self) -> str | None:
        """How the scheduler ended by itself: what it raised, or nothing. None: it runs."""
        if self._running is None or not self._running.done():
            return None
        return repr(self._running.exception() or "")

    async def follow(self, **options: Any) -> None:
        """Follow the queue's events from now on, or from where the options say."""

        async def listen() -> None:
            async for event in QueueEvents(self._name, redis_url=self._url, **options):
                self._told.append(_told(event))

        self._following = asyncio.ensure_future(listen())

    async def told(self) -> list[dict[str, Any]]:
        """Every event so far, in order."""
        return self._told

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


def _native(job: Any) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "data": job.payload,
        "attempt": job.attempt,
        "created_at_ms": job.created_at_ms,
    }


def _listed(meta: Any) -> dict[str, Any]:
    missed = meta.missed_fires
    listed = {
        "key": meta.key,
        "job_name": meta.job_name,
        "pattern": meta.pattern.to_dict(),
        "next_fire_ms": meta.next_fire_ms,
        "limit": meta.limit,
        "start_after_ms": meta.start_after_ms,
        "end_before_ms": meta.end_before_ms,
        "missed_fires": None if missed is None else missed.to_dict(),
    }
    own = ("fired", "paused", "problem", "attempts")
    return listed | {name: getattr(meta, name) for name in own if hasattr(meta, name)}


def _told(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in ("name", "job_id", "job_name", "fields")}


def pack(value: Any) -> str:
    """A line of JSON."""

    def form(value: Any) -> Any:
        if isinstance(value, tuple):
            return {"tuple": [form(item) for item in value]}
        if isinstance(value, list):
            return [form(item) for item in value]
        if isinstance(value, dict):
            return {key: form(item) for key, item in value.items()}
        return {"hex": value.hex()} if isinstance(value, bytes) else value

    return json.dumps(form(value))


def unpack(line: str) -> Any:
    def read(found: dict[str, Any]) -> Any:
        if list(found) == ["hex"]:
            return bytes.fromhex(found["hex"])
        return tuple(found["tuple"]) if list(found) == ["tuple"] else found

    return json.loads(line, object_hook=read)


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
        request = unpack(line)
        try:
            answer = {"value": await getattr(driver, request["do"])(**request["with"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(pack(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
