"""Many jobs in one call, checked before any is sent; and what a full queue answers.

python examples/bulk.py
"""

from __future__ import annotations

import asyncio
import time

from place import redis_url

from chasquimq import ConfigError, Job, Queue, QueueFullError, Worker

JOBS = 10_000


async def main(url: str) -> None:
    done = 0

    async def handle(job: Job) -> None:
        nonlocal done
        done += 1
        if done == JOBS:
            await worker.close()

    worker = Worker("bulk", handle, redis_url=url)
    async with Queue("bulk", redis_url=url, max_stream_len=JOBS) as queue:
        begin = time.perf_counter()
        added = await queue.add_bulk(
            [{"name": "resize", "data": {"image": number}} for number in range(JOBS)]
        )
        print(f"added {len(added)} jobs in {time.perf_counter() - begin:.2f} s")

        try:
            await queue.add_bulk([{"name": "fine", "data": 1}, {"name": "wrong", "dta": 2}])
        except ConfigError as error:
            print(f"refused: {error} ({error.__notes__[0]})")
        try:
            await queue.add("one too many", None)
        except QueueFullError as error:
            print(f"refused: {error}")

        begin = time.perf_counter()
        await worker.run()
        print(f"ran {done} jobs in {time.perf_counter() - begin:.2f} s")


with redis_url() as url:
    asyncio.run(main(url))
