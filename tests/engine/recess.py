"""What tests of pauses use: a handler that notes, and what a worker knows of a pause."""

from __future__ import annotations

import asyncio

from chasquimq import Job, Worker
from chasquimq.engine.consumer import Consumer
from tests.engine.desk import Desk, eventually

LONG_BLOCK = 600_000


class Hand:
    """A handler that notes what it began; jobs with the data "long" wait until they may end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.over = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.begun.append(f"{job.id} {job.attempt}")
        if job.data == "long":
            await self.over.wait()
        self.ended.append(job.id)


def inside(worker: Worker) -> Consumer:
    assert worker._consumer is not None
    return worker._consumer


async def is_blocked(worker: Worker) -> None:
    """Wait until it has nothing to do but to wait for jobs."""
    await eventually(lambda: worker._consumer is not None and inside(worker).reader._blocked)


async def is_paused(*workers: Worker) -> None:
    """Wait until they know, and no read of theirs is open any more."""

    def know() -> bool:
        return all(w.health().paused and not inside(w).reader._blocked for w in workers)

    await eventually(know)


def charged(desk: Desk) -> dict[bytes, int]:
    return {row["message_id"]: row["times_delivered"] for row in desk.pending()}


def raw() -> dict[bytes, bytes]:
    return {b"d": b"not even a job"}
