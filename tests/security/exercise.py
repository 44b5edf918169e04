"""What each role does with its queue, every verb of it, as one user of the server.

The parts that somebody else plays (`set_scene`) are played before, by another user: what the
server counts during the exercise is the role's own.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import AsyncMock, patch
from urllib.request import urlopen

import msgspec
import pytest

from chasquimq import Job, Queue, ResultTimeoutError, UnrecoverableError, Worker, wire
from chasquimq.cli import doctor
from chasquimq.config import JanitorOptions
from chasquimq.errors import StoreError
from chasquimq.job import Envelope
from chasquimq.observe.endpoint import serve
from chasquimq.store.exam.server import ServerFacts
from tests.cli.kit import Chasqui, Ended
from tests.engine.desk import Desk, eventually

MINUTE_MS = 60_000
EVERY_MINUTE = {"kind": "every", "interval_ms": MINUTE_MS}
LEASE_MS = 300
MENDED = {"queue.ghosts", "queue.dead-consumers", "queue.lock-forever"}
MENDED |= {"queue.spec-empty", "queue.index-lost"}
SOON = JanitorOptions(every_ms=50, ghost_idle_ms=100, consumer_idle_ms=100)


class Role(NamedTuple):
    """A queue, the URL of the user who comes to it, and a folder for files."""

    desk: Desk
    url: str
    folder: Path

    def queue(self, **options: Any) -> Queue:
        return self.desk.queue(redis_url=self.url, reconnect_max_attempts=1, **options)

    def worker(self, handler: Any, **options: Any) -> Worker:
        worker = self.desk.worker(
            handler,
            redis_url=self.url,
            reconnect_max_attempts=1,
            drain_ms=1,
            **({"claim_min_idle_ms": LEASE_MS, "store_results": True} | options),
        )
        worker._options = msgspec.structs.replace(worker._options, janitor=SOON)
        return worker

    async def call(self, *commands: tuple[str, ...]) -> None:
        """Commands of `chasqui`, one after another; each must do what it says."""
        for words in commands:
            ended = await self.ask(*words)
            assert ended.code == 0, (words, ended)

    async def ask(self, *words: str) -> Ended:
        chasqui = Chasqui(self.desk.server)
        chasqui.env["CHASQUI_REDIS_URL"] = self.url
        return await asyncio.to_thread(chasqui.call, *words)


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
        await queue.add("unique", None, job_id="unique", unique="until_done", backoff=1)
        await queue.add("dies", None)
        await queue.add("fails", None, attempts=2, backoff=1)
        await queue.add("held", None)
        await queue.upsert_repeatable_job("tick", None, repeat=EVERY_MINUTE, key="tick", limit=1)
        await queue.upsert_repeatable_job("tock", None, repeat=EVERY_MINUTE, key="tock")
    seconds, micros = desk.redis.time()
    for key in ("tick", "tock"):
        desk.redis.zadd(desk.keys.repeat, {key: seconds * 1000 + micros // 1000})  # due
    body = wire.pack_envelope(Envelope("dead", wire.encode(None), 1))
    row = {"d": body, "source_id": "1-1", "reason": "retries_exhausted", "n": "dead"}
    for _ in range(3):
        desk.redis.xadd(desk.keys.dlq, row)
    desk.redis.xadd(desk.keys.events, {"e": "completed", "id": "kept"})
    if role == "operator":  # what doctor mends
        desk.redis.set(desk.keys.scheduler_lock, "ghost")
        desk.redis.zadd(desk.keys.repeat, {"bare": 1e13})
        desk.redis.set(desk.keys.didx("gone"), "1")
        desk.redis.set(desk.keys.didx("copy"), "12345 x")


async def produce(role: Role) -> None:
    """Adds of every kind, second thoughts about delayed ones, and results."""
    async with role.queue(waiting_events=True) as queue:
        await queue.add("plain", 1)
        await queue.add("named", 2, job_id="named")
        assert (await queue.add("named", 2, job_id="named")).duplicate
        await queue.add_bulk([{"name": "bulk", "data": n} for n in range(3)])
        await queue.add("one", None, job_id="one", unique="until_done")
        await queue.add("other", None, job_id="other", unique_for=10)
        await queue.add("later", None, delay_ms=MINUTE_MS)
        for job_id in ("later", "never", "soon"):
            await queue.add("later", None, delay_ms=MINUTE_MS, job_id=job_id)
        assert await queue.cancel_delayed("never")
        assert await queue.reschedule("later", delay_ms=2 * MINUTE_MS)
        assert await queue.run_now("soon")
        minted = await queue.add("later", None, delay_ms=MINUTE_MS)  # found in another way
        assert await queue.reschedule(minted.id, delay_ms=2 * MINUTE_MS)
        assert await queue.cancel_delayed(minted.id)
        assert await queue.get_job_result("kept") == "result"
        assert await queue.get_job_result_bulk(["kept", "none"]) == ["result", None]
        assert await queue.wait_for_result("kept", timeout=10) == "result"
        async with asyncio.TaskGroup() as group:
            group.create_task(_wait_in_vain(queue))
            for _ in range(5):  # events, so that a read which blocks comes back and is counted
                await asyncio.sleep(0.1)
                await queue.add("heard", None)
    async with role.queue() as queue:  # the stream is there already
        await queue.add("plain", 2)


async def _wait_in_vain(queue: Queue) -> None:
    with pytest.raises(ResultTimeoutError):
        await queue.wait_for_result("none", timeout=1)


async def look(role: Role) -> None:
    """The commands that only show: inspect, watch, jobs, dlq peek, events."""
    name = role.desk.name
    await role.call(
        ("inspect",),
        ("inspect", name),
        ("watch", name, "--count", "1", "--json"),
        ("jobs", "list", name),
        ("jobs", "list", name, "--state", "delayed"),
        ("jobs", "show", name, "far"),
        ("dlq", "peek", name),
        ("repeatable", "list", name),
        ("events", name, "--from", "0", "--count", "1"),
    )


class Shift:
    """A handler for the scene: some jobs fail, and those called `held` last until the stop."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self.held = 0

    async def __call__(self, job: Job) -> str | None:
        if job.name == "dies":
            raise UnrecoverableError("no")
        if job.name in ("fails", "unique") and job.attempt == 0:
            raise ValueError("not yet")
        if job.name == "held":
            self.held += 1
            await asyncio.Event().wait()
        self.done.add(job.name)
        return "done" if job.name == "own" else None


async def work(role: Role) -> None:
    """What a worker does from its start to its stop: jobs, retries, burials, results, leases, due
    jobs and specs, sweeping, a pause, a group that is gone, metrics; and what it gives back."""
    desk, shift = role.desk, Shift()
    worker = role.worker(shift, consumer_id="stable")
    with serve(worker, "127.0.0.1:0") as endpoint:
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            await eventually(
                lambda: {"own", "later", "unique", "fails", "tick", "tock"} <= shift.done
            )
            await eventually(lambda: shift.held == 2 and len(desk.dead()) == 4)
            await eventually(lambda: _names(desk) == {b"stable"})  # the silent are swept
            async with desk.queue() as queue:
                await queue.pause()
                await eventually(lambda: worker.health().paused)
                await queue.resume()
                await eventually(lambda: not worker.health().paused)
            page = f"http://127.0.0.1:{endpoint.port}/metrics"
            shown = await asyncio.to_thread(lambda: urlopen(page, timeout=10).read())
            assert b"chasqui" in shown
            desk.redis.xgroup_destroy(desk.keys.stream, "default")
            desk.put("after", name="after")
            await eventually(lambda: "after" in shift.done)
            await worker.close()
    assert desk.waiting() >= 2  # what was held, given back
    short = role.worker(shift, store_results=False, claim_min_idle_ms=MINUTE_MS)
    desk.put("plain", name="plain")
    async with asyncio.TaskGroup() as group:  # under a name for this run only, which goes with it
        group.create_task(short.run())
        await eventually(lambda: "plain" in shift.done)
        await short.close()
    assert short._consumer_id.encode() not in _names(desk)


def _names(desk: Desk) -> set[bytes]:
    return {row["name"] for row in desk.redis.xinfo_consumers(desk.keys.stream, "default")}


async def operate(role: Role) -> None:
    """What people do with a queue beside looking at it: pause it, move delayed, dead and
    repeatable jobs, look for trouble and mend it."""
    name, file = role.desk.name, str(role.folder / "dead.jsonl")
    await look(role)
    await role.call(
        ("pause", name, "--reason", "trial"),
        ("resume", name),
        ("add", "new", "first", "1"),
        ("jobs", "reschedule", name, "far", "--in", "5m"),
        ("jobs", "cancel", name, "far"),
        ("repeatable", "add", name, "new", "--every", "1h", "--key", "new"),
        ("repeatable", "pause", name, "new"),
        ("repeatable", "resume", name, "new"),
        ("repeatable", "run", name, "new"),
        ("repeatable", "next", name, "new"),
        ("repeatable", "remove", name, "new"),
        ("dlq", "export", name, file),
        ("dlq", "replay", name, "--limit", "1", "--yes"),
        ("dlq", "purge", name, "--everything", "--yes"),
        ("dlq", "import", name, file),
    )
    # Doctor's questions about the server itself, and what others may, are beyond an operator, and
    # it says so; what it finds in a queue, and mends there, is not.
    with (
        patch.object(doctor.server, "look", AsyncMock(return_value=ServerFacts(hidden=[]))),
        patch.object(doctor.right, "look", AsyncMock(side_effect=StoreError("not asked"))),
    ):
        ended = await role.ask("doctor", name, "--silent-ms", "0", "--fix", "--yes", "--json")
    found = {one["code"]: one["done"] for one in json.loads(ended.out) if one["done"]}
    assert set(found) == MENDED, ended
    assert not [done for done in found.values() if not done.startswith("removed")]


EXERCISES = {"producer": produce, "reader": look, "worker": work, "operator": operate}
