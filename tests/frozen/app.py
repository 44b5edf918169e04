"""A program with a worker, for `chasqui worker` and by itself: it says when it is ready."""

from __future__ import annotations

import asyncio
import os

from chasquimq import Job, Worker, run_workers


async def handle(job: Job) -> None:
    pass


worker = Worker("frozen", handle)


async def main() -> None:
    worker.adjust(redis_url=os.environ["CHASQUI_REDIS_URL"])
    async with asyncio.TaskGroup() as group:
        group.create_task(run_workers(worker))
        while worker.health().state != "running":
            await asyncio.sleep(0.01)
        print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
