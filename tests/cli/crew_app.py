"""A program as users write it, for `chasqui worker`: its handlers leave word in Redis.

`<queue>:seen` is a list of "<pid> <job id> <name>", one per run that began; `<queue>:ended` the
same of runs that came to their end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import redis

from chasquimq import Job, Worker

QUEUE = os.environ.get("CREW_QUEUE", "crew")
client = redis.Redis.from_url(os.environ["CHASQUI_REDIS_URL"])
kept: list[bytearray] = []


async def handle(job: Job) -> None:
    word = f"{os.getpid()} {job.id} {job.name}"
    client.rpush(f"{QUEUE}:seen", word)
    match job.name:
        case "hold":  # until the test lets go
            while not client.exists(f"{QUEUE}:go"):
                await asyncio.sleep(0.02)
        case "block":  # ... and let nothing else run meanwhile
            while not client.exists(f"{QUEUE}:go"):
                time.sleep(0.02)
        case "nap":
            await asyncio.sleep(0.02)
        case "grow":
            kept.append(bytearray(os.urandom(1024) * job.data))
        case "exit" if not client.exists(f"{QUEUE}:spared"):
            client.set(f"{QUEUE}:spared", 1)
            print("the very last words", file=sys.stderr, flush=True)
            os._exit(7)
        case "kill" if not client.exists(f"{QUEUE}:spared"):
            client.set(f"{QUEUE}:spared", 1)
            os.kill(os.getpid(), signal.SIGKILL)
    client.rpush(f"{QUEUE}:ended", word)


def make(**options: object) -> Worker:
    return Worker(QUEUE, handle, **{"claim_min_idle_ms": 1_000, "concurrency": 4, **options})  # type: ignore[arg-type]


worker = make()
calm = make(claim_min_idle_ms=30_000)  # no warning about its lease
named = make(consumer_id="desk", claim_min_idle_ms=60_000)


async def factory() -> list[Worker]:
    return [make(), make()]
