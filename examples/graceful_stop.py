"""Stop on SIGTERM: running jobs end, waiting ones stay for others, nothing is lost or doubled.

python examples/graceful_stop.py
"""

from __future__ import annotations

import asyncio
import os
import signal

from place import redis_url

from chasquimq import Job, Queue, Worker, run_workers

JOBS = 8


async def main(url: str) -> None:
    ended: list[int] = []

    async def handle(job: Job) -> None:
        print(f"  job {job.data} starts")
        if job.data == 2:
            print("  (SIGTERM comes in)")
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.3)
        ended.append(job.data)
        print(f"  job {job.data} ends")

    async with Queue("graceful", redis_url=url) as queue:
        await queue.add_bulk([{"name": "sleep", "data": number} for number in range(JOBS)])
    print("first worker:")
    await run_workers(Worker("graceful", handle, redis_url=url, concurrency=3))  # until SIGTERM
    print(f"stopped with {len(ended)} of {JOBS} done")

    async def rest(job: Job) -> None:
        ended.append(job.data)

    await Worker("graceful", rest, redis_url=url, burst=True).run()
    print(f"second worker did the rest: {len(ended)} runs of {JOBS} jobs, {sorted(ended)}")


with redis_url() as url:
    asyncio.run(main(url))
