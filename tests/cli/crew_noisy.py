"""A program whose handlers write to stderr, past Python's own: `data` is what, and how often."""

from __future__ import annotations

import asyncio
import os

from chasquimq import Job, Worker
from tests.cli.crew_app import QUEUE, client

BLOCK = 65_536


async def handle(job: Job) -> None:
    client.rpush(f"{QUEUE}:seen", f"{os.getpid()} {job.id} {job.name}")
    what, often = job.data
    rest = memoryview(what * often)
    while rest:  # as a library in C does: a blocked write blocks the event loop
        rest = rest[os.write(2, rest[:BLOCK]) :]
    if job.name == "die":
        os._exit(7)
    while job.name == "hold" and not client.exists(f"{QUEUE}:go"):
        await asyncio.sleep(0.02)
    client.rpush(f"{QUEUE}:ended", f"{os.getpid()} {job.id} {job.name}")


worker = Worker(QUEUE, handle, claim_min_idle_ms=30_000, concurrency=1)
