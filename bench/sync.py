"""The synchronous Queue beside the async one: `python bench/sync.py`.

Each round runs every way of adding once, one after the other, on a Redis of our own. The table
shows the median of the rounds' ratios to the async Queue on asyncio's own event loop.

    async                           the async Queue, by tasks instead of threads
    sync                            chasquimq.sync.Queue
    sync, run_coroutine_threadsafe  the same by the standard library's way to call a loop's thread
    sync, on uvloop                 the same on another event loop
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from typing import Any

import redis
import uvloop
from arena import wait_for_quiet
from scenarios import PAYLOAD

from chasquimq import Queue, sync
from chasquimq.server import Server, find_server

BULK = 10_000
OPTIONS = {"max_stream_len": 1_000_000}
Figures = dict[str, tuple[float, float]]  # scenario: jobs per second, CPU s per 100,000 jobs


class Slower(sync.LoopThread):
    def call(self, queue: Any, coroutine: Any, closes: bool) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def by_tasks(url: str, jobs: int) -> Figures:
    async def some(queue: Queue, count: int) -> None:
        for _ in range(count):
            await queue.add("a", PAYLOAD)

    async def all_of(queue: Queue) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(some(queue, jobs // 8))

    with asyncio.Runner() as runner:
        queue = Queue("bench", redis_url=url, **OPTIONS)
        runner.run(some(queue, 100))
        figures = {
            "add, one": timed(jobs, lambda: runner.run(some(queue, jobs))),
            "add, eight": timed(jobs, lambda: runner.run(all_of(queue))),
            "bulk": timed(BULK, lambda: runner.run(queue.add_bulk(bulk()))),
        }
        runner.run(queue.close())
    return figures


def by_threads(url: str, jobs: int) -> Figures:
    def some(count: int) -> None:
        for _ in range(count):
            queue.add("a", PAYLOAD)

    with sync.Queue("bench", redis_url=url, **OPTIONS) as queue, ThreadPoolExecutor(8) as threads:
        some(100)
        return {
            "add, one": timed(jobs, lambda: some(jobs)),
            "add, eight": timed(jobs, lambda: list(threads.map(some, [jobs // 8] * 8))),
            "bulk": timed(BULK, lambda: queue.add_bulk(bulk())),
        }


def bulk() -> list[dict[str, Any]]:
    return [{"name": "a", "data": PAYLOAD} for _ in range(BULK)]


def timed(jobs: int, work: Callable[[], object]) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    cpu = time.process_time() - cpu
    return jobs / (time.perf_counter() - began), cpu / jobs * 1e5


@contextmanager
def on(kind: type[sync.LoopThread], loop: Callable[[], Any]) -> Iterator[None]:
    """Have the synchronous Queue use this thread, and this event loop in it."""
    before, sync.Loop = sync.Loop, loop  # type: ignore[assignment, misc]
    thread = sync._threads[os.getpid()] = kind()
    try:
        yield
    finally:
        sync.Loop = before  # type: ignore[misc]
        del sync._threads[os.getpid()]
        thread.tell()
        thread.join(5)


def measure(way: str, url: str, jobs: int) -> Figures:
    if way == "async":
        return by_tasks(url, jobs)
    kind = Slower if "run_coroutine" in way else sync.LoopThread
    with on(kind, uvloop.new_event_loop if "uvloop" in way else sync.Loop):
        return by_threads(url, jobs)


WAYS = ("async", "sync", "sync, run_coroutine_threadsafe", "sync, on uvloop")
SCENARIOS = {"add, one": "one at a time", "add, eight": "8 at a time", "bulk": f"bulk of {BULK:,}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--patience", type=float, default=30.0)
    told = parser.parse_args()
    found: dict[str, list[Figures]] = {way: [] for way in WAYS}
    patience = told.patience
    with Server(find_server(kind="redis", at_least=(8, 6, 2))) as server:
        client = redis.Redis.from_url(server.url)
        for number in range(told.rounds):
            for way in WAYS[number % len(WAYS) :] + WAYS[: number % len(WAYS)]:
                patience = wait_for_quiet(patience)
                client.flushall()
                found[way].append(measure(way, server.url, told.jobs))
                expected = 100 + 2 * told.jobs + BULK
                assert client.xlen("{chasqui:bench}:stream") == expected, way
    print("| what | way | ratio to async | min–max | jobs/s | CPU s/100k |")
    print("|---|---|---:|---:|---:|---:|")
    for scenario, title in SCENARIOS.items():
        for way in WAYS:
            pairs = zip(found[way], found["async"], strict=True)
            ratios = [ours[scenario][0] / theirs[scenario][0] for ours, theirs in pairs]
            rate, cpu = (median(one[scenario][n] for one in found[way]) for n in (0, 1))
            spread = f"{min(ratios):.2f}–{max(ratios):.2f}"
            print(
                f"| {title} | {way} | {median(ratios):.2f}x | {spread} | {rate:,.0f} | {cpu:.1f} |"
            )


if __name__ == "__main__":
    main()
