"""A queue, a worker, three jobs: the shortest program that does something.

python examples/quickstart.py
"""

from __future__ import annotations

import asyncio

from place import redis_url

from chasquimq import Job, Queue, Worker

USERS = ["ada", "grace", "edsger"]


async def main(url: str) -> None:
    greeted: list[str] = []

    async def handle(job: Job) -> None:
        print(f"  {job.name}: hello {job.data['user']}")
        greeted.append(job.data["user"])
        if len(greeted) == len(USERS):
            await worker.close()  # an ordinary worker runs until it is told to stop

    worker = Worker("quickstart", handle, redis_url=url)
    async with Queue("quickstart", redis_url=url) as queue:
        for user in USERS:
            job = await queue.add("welcome", {"user": user})
            print(f"added {job.id}")
        await worker.run()
    print(f"greeted {len(greeted)} users")


with redis_url() as url:
    asyncio.run(main(url))
