"""The worker process of a soak: `python -m tests.soak.load <url> <queue> <dialect or ''>`, and
`<file> [trace]` to note where its memory goes.

Everything a worker does, all the time: results, retries, plain functions, time limits, delayed
jobs, events. It ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from chasquimq import BackoffSpec, InMemorySink, Job, Router, Worker
from tests.chaos.kit.fleet import obey_parent
from tests.soak.memory import watch

CONCURRENCY = 16

router = Router()


@router.on("quick")
async def quick(job: Job) -> Any:
    return job.data


@router.on("suspends")
async def suspends(job: Job) -> None:
    await asyncio.sleep(0.001)


@router.on("fails-first")
async def fails_first(job: Job) -> None:
    if job.attempt == 0:
        raise ValueError("as ordered")


@router.on("plain")
def plain(job: Job) -> int:
    return len(str(job.data))


@router.on("fills-a-thread")
def fills_a_thread(job: Job) -> None:
    """So many at once that every thread is started: they come as they are needed, and on a busy
    machine the last of them would come late and look like a leak."""
    time.sleep(0.2)


@router.on("too-long", time_limit_ms=50)
async def too_long(job: Job) -> None:
    if job.attempt == 0:
        await asyncio.sleep(60)


async def main(url: str, queue: str, dialect: Any) -> None:
    worker = Worker(
        queue,
        router,
        redis_url=url,
        dialect=dialect,
        concurrency=CONCURRENCY,
        claim_min_idle_ms=2_000,
        store_results=True,
        result_ttl_ms=2_000,
        events_max_stream_len=1_000,
        backoff=BackoffSpec.fixed(5, jitter_ms=5),
        metrics=InMemorySink(limit=100),
    )
    print("ready", flush=True)
    await worker.run()


if __name__ == "__main__":
    obey_parent()
    if len(sys.argv) > 4:
        watch(Path(sys.argv[4]), trace="trace" in sys.argv[5:])
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3] or None))
