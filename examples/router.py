"""Handlers by the name of the job: time limits of their own, plain functions, unknown names.

python examples/router.py
"""

from __future__ import annotations

import asyncio
import time

from place import redis_url

from chasquimq import Job, Queue, Router, Worker
from chasquimq.job import Again, Dead

router = Router()


@router.on("welcome", "goodbye")
async def mail(job: Job) -> None:
    print(f"  {job.name}: a mail to {job.data}")


@router.on("report", time_limit_ms=300)
async def report(job: Job) -> None:
    """Hangs on its first run, and is cancelled for it."""
    if job.attempt == 0:
        await asyncio.sleep(60)
    print(f"  report: done on run {job.attempt_number}")


loaded = 0  # rows; a real import would keep this where its rows are


@router.on("import", time_limit_ms=700)
def load(job: Job) -> None:
    """A plain function runs in a thread, which nobody can cancel: so it looks for itself."""
    global loaded
    print(f"  import: goes on at row {loaded // 10 * 10}")
    while loaded < 100:
        if job.lease_lost:  # its time is over, or another worker has the job
            return
        time.sleep(0.05)
        loaded += 5


def tell(job: Job, error: BaseException, verdict: Again | Dead) -> None:
    """Hears of every run that failed, and of what follows from it."""
    then = f"again in {verdict.delay_ms} ms" if isinstance(verdict, Again) else verdict.reason
    print(f"  {job.name}: {type(error).__name__}, {then}")


async def main(url: str) -> None:
    async with Queue("router", redis_url=url) as queue:
        await queue.add("welcome", "ada")
        await queue.add("goodbye", "grace")
        await queue.add("report", None, backoff=100)
        await queue.add("import", None, backoff=100)
        await queue.add("invoice", 7)
        await Worker("router", router, redis_url=url, on_error=tell, max_jobs=7).run()
        print(f"imported {loaded} rows in all")

        for dead in await queue.peek_dlq():
            print(f"dead: {dead['error_type']}: {dead['error']}")

        @router.otherwise
        async def anything(job: Job) -> None:
            print(f"  {job.name}: taken by the one for all other names")

        print(f"brought back: {await queue.replay_dlq()}")
        await Worker("router", router, redis_url=url, burst=True).run()


with redis_url() as url:
    asyncio.run(main(url))
