"""One run, in a process of its own: ours or the reference's, by the interpreter that runs this.

    python bench/child.py '<orders as JSON>'

It imports, connects and warms up, says `ready`, waits for a line, measures, and answers with
one line of JSON. It imports nothing of the project but the package it measures.

worker      the queue is full already. The clock runs from the start of the handler on the job
            at 10 %, past the last one, until Redis says that nothing is left or pending
producers   the clock runs around the calls; each is awaited, so all are in when it stops
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import redis.asyncio

from chasquimq import Queue, Worker

GIVE_UP_S = 90.0
PACKAGES = ("chasquimq", "chasquimq-py", "redis", "hiredis", "msgspec", "msgpack", "uvloop")


class Clock:
    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()  # of all threads, and of nothing but this process

    def result(self, jobs: int) -> dict[str, float]:
        seconds, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {"rate": jobs / seconds, "seconds": seconds, "cpu_per_100k": cpu / jobs * 1e5}


async def ordered() -> None:
    """Say that everything is ready, and wait for the starting signal."""
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def work(url: str, queue: str, jobs: int, options: dict[str, Any]) -> dict[str, Any]:
    client = redis.asyncio.Redis.from_url(url)
    await client.ping()
    stream = f"{{chasqui:{queue}}}:stream"
    first = jobs // 10
    all_started = asyncio.Event()
    seen = 0
    clock: Clock | None = None

    async def handle(job: Any) -> None:
        nonlocal seen, clock
        seen += 1
        if seen == first:
            clock = Clock()
        elif seen == jobs:
            all_started.set()

    if options.get("metrics") == "record":
        from chasquimq.observe.record import Recorder

        options["metrics"] = Recorder(queue)
    worker = Worker(queue, handle, redis_url=url, **options)
    await ordered()
    running = asyncio.ensure_future(worker.run())
    async with asyncio.timeout(GIVE_UP_S):
        await asyncio.wait(
            [running, asyncio.ensure_future(all_started.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        if running.done():
            await running
            raise RuntimeError("the worker ended before its queue was empty")
        assert clock is not None
        await emptied(client, stream)
    return {**clock.result(jobs - first), "handled": seen}


async def emptied(client: Any, stream: str) -> None:
    """Wait until every job is acked and gone."""
    while True:
        pending = await client.xpending(stream, "default")
        if not pending["pending"] and not await client.xlen(stream):
            return
        await asyncio.sleep(0.001)


async def produce(
    url: str, queue: str, jobs: int, kind: str, size: int, payload: Any
) -> dict[str, Any]:
    producer = Queue(queue, redis_url=url)
    many = [{"name": "job", "data": payload} for _ in range(size)]

    async def call() -> None:
        if kind == "bulk":
            await producer.add_bulk(many)
        elif kind == "concurrent":
            await asyncio.gather(*[producer.add("job", payload) for _ in range(size)])
        else:
            await producer.add("job", payload)

    warm_up = max(200 // size, 2)
    for _ in range(warm_up):
        await call()
    await ordered()
    clock = Clock()
    if kind == "add":
        for _ in range(jobs):
            await producer.add("job", payload)
    else:
        calls = jobs // size
        jobs = calls * size
        for _ in range(calls):
            await call()
    return {**clock.result(jobs), "added": jobs + warm_up * size}


async def main(orders: dict[str, Any]) -> None:
    run = work if orders.pop("what") == "worker" else produce
    result = await run(**orders)
    result["loop"] = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    result["packages"] = dict(installed())
    print(json.dumps(result), flush=True)
    os._exit(0)  # a worker's goodbye is not what is measured here


def installed() -> list[tuple[str, str]]:
    found = []
    for package in PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            pass
    return found


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    if told.pop("uvloop"):
        import uvloop

        uvloop.install()
    asyncio.run(main(told))
