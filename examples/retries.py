"""What follows from a failure: a retry with backoff, a delay of the handler's own, the DLQ.

python examples/retries.py
"""

from __future__ import annotations

import asyncio

from place import redis_url

from chasquimq import BackoffSpec, Job, Queue, RetryError, UnrecoverableError, Worker

RUNS = 8  # flaky 3, busy 2, hopeless 2, wrong 1


async def main(url: str) -> None:
    runs = 0

    async def handle(job: Job) -> None:
        nonlocal runs
        runs += 1
        print(f"  {job.name}: run {job.attempt_number}")
        if runs == RUNS:
            await worker.close()  # `run` returns when this job, too, is settled
        match job.name:
            case "flaky" if job.attempt < 2:
                raise ConnectionError("the other side hung up")
            case "busy" if job.attempt < 1:
                raise RetryError("come back later", delay=200)  # beats the backoff
            case "hopeless":
                raise TimeoutError("no answer, as always")
            case "wrong":
                raise UnrecoverableError("no such user")  # no retry can help

    quick = BackoffSpec.exponential(20, multiplier=3.0, jitter_ms=0)
    worker = Worker("retries", handle, redis_url=url, max_attempts=5, backoff=quick)
    async with Queue("retries", redis_url=url) as queue:
        await queue.add("flaky", None)
        await queue.add("busy", None)
        await queue.add("hopeless", None, attempts=2, backoff=50)  # its own rules
        await queue.add("wrong", None)
        await worker.run()

        print("dead:")
        for dead in await queue.peek_dlq():
            what = f"{dead['error_type']}: {dead['error']}"
            print(f"  {dead['name']}: {dead['reason']} after run {dead['attempt']}, {what}")


with redis_url() as url:
    asyncio.run(main(url))
