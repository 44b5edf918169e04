"""Waits for results as tests begin and end them, and what they cost the server."""

from __future__ import annotations

import asyncio
from typing import Any

from chasquimq import Job, wire
from chasquimq.engine import listener
from tests.engine.desk import Desk, eventually

NEVER = 3600.0  # a poll interval that does not come


async def echo(job: Job) -> Any:
    return job.data


def finish(desk: Desk, *job_ids: str, value: Any = "done") -> None:
    """What a worker writes when jobs end well: their results, then the events."""
    pipe = desk.redis.pipeline(transaction=True)
    for job_id in job_ids:
        pipe.set(desk.keys.result(job_id), wire.encode(value))
    for job_id in job_ids:
        pipe.xadd(desk.keys.events, fields("completed", job_id, attempt=1, duration_us=5))
    pipe.execute()


def tell(desk: Desk, event: str, job_id: str, **extras: Any) -> None:
    desk.redis.xadd(desk.keys.events, fields(event, job_id, **extras))


def fields(event: str, job_id: str, **extras: Any) -> Any:
    flat = wire.pack_event(event, job_id, 1_700_000_000_000, "", extras)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def listening(desk: Desk) -> list[str]:
    """The connections that hear this server's events."""
    return [c["id"] for c in desk.redis.client_list() if c["cmd"] == "xread"]


def connections(desk: Desk) -> int:
    return len(desk.redis.client_list())


def calls(desk: Desk, command: str) -> int:
    return int(desk.redis.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


def listeners() -> list[listener.Listener]:
    return [it for (loop, _), it in listener._shared.items() if not loop.is_closed()]


def written_down() -> int:
    """How many wait, as the listeners know it."""
    return sum(len(them) for it in listeners() for them in it._waiting.values())


async def waiting(*waits: Any) -> list[asyncio.Task[Any]]:
    """The waits as tasks, once they are written down and somebody listens."""
    known = written_down()
    tasks = [asyncio.ensure_future(wait) for wait in waits]

    def all_wait() -> bool:
        listens = all(it._ear.listens for it in listeners())
        return listens and written_down() == known + len(tasks)

    await eventually(all_wait)
    return tasks


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() or task.exception() is None for task in tasks)
