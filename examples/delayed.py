"""Jobs for later: after a while, at a moment, taken back before they run, and never twice.

python examples/delayed.py
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from place import redis_url

from chasquimq import Job, Queue, Worker

JOBS = 5


async def main(url: str) -> None:
    begin, now = time.monotonic(), datetime.now(UTC)
    ran: list[str] = []

    async def handle(job: Job) -> None:
        print(f"  {time.monotonic() - begin:.1f} s  {job.name}")
        ran.append(job.name)
        if len(ran) == JOBS:
            await worker.close()

    worker = Worker("delayed", handle, redis_url=url)
    async with Queue("delayed", redis_url=url) as queue:
        await queue.add("now", None)
        await queue.add("half a second", None, delay_ms=500)
        await queue.add("one second", None, delay=timedelta(seconds=1))
        await queue.add("at a moment", None, delay=now + timedelta(seconds=1.5))

        # With an id of its own a delayed job comes in only once; any can be taken back by its id.
        report, reminder = f"report:{now:%H%M%S.%f}", f"reminder:{now:%H%M%S.%f}"
        for _ in range(2):
            await queue.add("once", None, delay_ms=800, job_id=report)
        await queue.add("never", None, delay_ms=900, job_id=reminder)
        print(f"cancelled: {await queue.cancel_delayed(reminder)}")
        print(f"cancelled again: {await queue.cancel_delayed(reminder)}")

        await worker.run()
    print(f"{len(ran)} jobs ran")


with redis_url() as url:
    asyncio.run(main(url))
