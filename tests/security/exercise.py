"""What each role does with its queue, every verb of it, as one user of the server.

The parts that somebody else plays (`set_scene`) are played before, by another user: what the
server counts during the exercise is the role's own.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from chasquimq import Queue, ResultTimeoutError, wire
from chasquimq.job import Envelope
from tests.cli.kit import Chasqui
from tests.engine.desk import Desk

MINUTE_MS = 60_000
EVERY_MINUTE = {"kind": "every", "interval_ms": MINUTE_MS}


class Role(NamedTuple):
    """A queue, the URL of the user who comes to it, and a folder for files."""

    desk: Desk
    url: str
    folder: Path

    def queue(self, **options: Any) -> Queue:
        return self.desk.queue(redis_url=self.url, reconnect_max_attempts=1, **options)


async def set_scene(desk: Desk, role: str) -> None:
    """What others left: a result; and but for a producer, who begins with an empty queue, waiting
    and dead jobs, specs, and consumers that are gone."""
    desk.redis.set(desk.keys.result("kept"), wire.encode("result"))
    if role == "producer":
        return
    for name, consumer in (("own", "stable"), ("held", "ghost"), ("lost", "ghost")):
        desk.put(name, name=name)
        [entry] = desk.abandon(1, consumer)
    desk.redis.xdel(desk.keys.stream, entry)  # pending, without a body
    desk.redis.xgroup_createconsumer(desk.keys.stream, "default", "silent")
    async with desk.queue() as queue:
        await queue.add("later", None, delay_ms=1, job_id="due")
        await queue.add("far", None, delay_ms=MINUTE_MS, job_id="far")
        await queue.add("unique", None, job_id="unique", unique="until_done")
        await queue.add("dies", None)
        await queue.add("fails", None, attempts=2, backoff=1)
        await queue.add("held", None)
        await queue.upsert_repeatable_job("tick", None, repeat=EVERY_MINUTE, key="tick", limit=1)
        await queue.upsert_repeatable_job("tock", None, repeat=EVERY_MINUTE, key="tock")
    for key in ("tick", "tock"):
        desk.redis.zadd(desk.keys.repeat, {key: 1})  # due
    body = wire.pack_envelope(Envelope("dead", wire.encode(None), 1))
    row = {"d": body, "source_id": "1-1", "reason": "retries_exhausted", "n": "dead"}
    for _ in range(3):
        desk.redis.xadd(desk.keys.dlq, row)
    desk.redis.xadd(desk.keys.events, {"e": "completed", "id": "kept"})


async def produce(role: Role) -> None:
    """Adds of every kind, second thoughts about delayed ones, and results."""
    async with role.queue(waiting_events=True) as queue:
        await queue.add("plain", 1)
        await queue.add("named", 2, job_id="named")
        await queue.add_bulk([{"name": "bulk", "data": n} for n in range(3)])
        await queue.add("one", None, job_id="one", unique="until_done")
        await queue.add("other", None, job_id="other", unique_for=10)
        await queue.add("later", None, delay_ms=MINUTE_MS)
        for job_id in ("later", "never", "soon"):
            await queue.add("later", None, delay_ms=MINUTE_MS, job_id=job_id)
        assert await queue.cancel_delayed("never")
        assert await queue.reschedule("later", delay_ms=2 * MINUTE_MS)
        assert await queue.run_now("soon")
        assert await queue.get_job_result("kept") == "result"
        assert await queue.get_job_result_bulk(["kept", "none"]) == ["result", None]
        assert await queue.wait_for_result("kept", timeout=10) == "result"
        async with asyncio.TaskGroup() as group:
            group.create_task(_wait_in_vain(queue))
            for _ in range(5):  # events, so that a read which blocks comes back and is counted
                await asyncio.sleep(0.1)
                await queue.add("heard", None)


async def _wait_in_vain(queue: Queue) -> None:
    with pytest.raises(ResultTimeoutError):
        await queue.wait_for_result("none", timeout=1)


async def look(role: Role) -> None:
    """The commands that only show: inspect, watch, jobs, dlq peek, events."""
    chasqui = Chasqui(role.desk.server)
    chasqui.env["CHASQUI_REDIS_URL"] = role.url
    name = role.desk.name
    for words in (
        ("inspect",),
        ("inspect", name),
        ("watch", name, "--count", "1", "--json"),
        ("jobs", "list", name),
        ("jobs", "list", name, "--state", "delayed"),
        ("jobs", "show", name, "far"),
        ("dlq", "peek", name),
        ("repeatable", "list", name),
        ("events", name, "--from", "0", "--count", "1"),
    ):
        ended = await asyncio.to_thread(chasqui.call, *words)
        assert ended.code == 0, (words, ended)


EXERCISES = {"producer": produce, "reader": look}
