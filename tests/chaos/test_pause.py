"""Pausing a busy queue, with real processes: what had not been read is not started, none is lost.

What had been read is what was pending at the moment of the pause; both are seen in one
transaction, so nothing can come in between.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chasquimq import wire
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.wait import eventually

LEASE_MS = 60_000
WORKERS = 3
ROUNDS = 2
BACKLOG = 400
MOMENT: dict[str, Any] = {"sleep": 0.01}


def blocked(stage: Stage) -> int:
    """Clients in a blocked read. Before Redis 7.2 those of them that got nothing yet are no
    consumers."""
    clients: dict[str, int] = stage.redis.info("clients")
    return clients["blocked_clients"]


@contextmanager
def adding(stage: Stage) -> Iterator[None]:
    """A backlog, and a producer that adds to it and does not know of pauses."""
    over = threading.Event()
    stage.act({f"job-{n}": MOMENT for n in range(BACKLOG)})

    def add() -> None:
        first = BACKLOG
        while not over.wait(0.02):
            stage.act({f"job-{first + n}": MOMENT for n in range(10)})
            first += 10

    producer = threading.Thread(target=add)
    producer.start()
    try:
        yield
    finally:
        over.set()
        producer.join()


def paused(stage: Stage) -> set[int]:
    """Pause; answers the jobs that waited at that very moment, and had been read by nobody."""
    pipe = stage.redis.pipeline(transaction=True)
    pipe.set(stage.keys.paused, "by a test")
    pipe.xpending_range(stage.keys.stream, "default", "-", "+", 100_000)
    pipe.xrange(stage.keys.stream)
    _, pending, rows = pipe.execute()
    held = {row["message_id"] for row in pending}
    return {number(fields) for entry_id, fields in rows if entry_id not in held}


def number(fields: dict[bytes, bytes]) -> int:
    return int(wire.unpack_envelope(fields[b"d"]).id.removeprefix("job-"))


def begun(stage: Stage) -> set[int]:
    return {int(fact.job.removeprefix("job-")) for fact in stage.facts("start")}


def test_a_pause_holds_for_all_that_was_not_read_and_loses_nothing(shared_stage: Stage) -> None:
    stage = shared_stage
    workers = stage.sentries(WORKERS, LEASE_MS, concurrency=4)

    def all_know() -> bool:
        return all(stage.health(worker).get("paused") for worker in workers)

    with adding(stage):
        for _ in range(ROUNDS):
            stage.started(len(stage.facts("start")) + 50)
            waiting = paused(stage)
            assert waiting, "nothing is proven where nothing waits"
            eventually(lambda: all_know() and not stage.pending())
            started = begun(stage)
            assert not started & waiting, f"{len(started & waiting)} of {len(waiting)}"
            assert max(started) < max(waiting)  # nor any that was added later
            assert all(stage.health(worker)["healthy"] for worker in workers)
            stage.redis.delete(stage.keys.paused)
    stage.drained()

    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert {row.fields["attempt"] for row in stage.events("active")} == {1}


def test_workers_that_wait_for_jobs_start_none_that_comes_after_the_pause(
    lone_stage: Stage,
) -> None:
    """All of them sit in a blocked read, on an empty queue, when it is paused by the door."""
    stage = lone_stage
    workers = stage.sentries(WORKERS, LEASE_MS, concurrency=4)
    stage.act({"first": {}})
    eventually(lambda: stage.ended() == 1 and blocked(stage) >= WORKERS)
    doorway = stage._doorway()

    async def pause_and_add() -> None:
        async with doorway as queue:
            assert await queue.pause("by a test")
            await stage._add(queue, {f"job-{n}": MOMENT for n in range(200)})

    asyncio.run(pause_and_add())
    eventually(lambda: all(stage.health(worker).get("paused") for worker in workers))
    eventually(lambda: not stage.pending())
    assert len(stage.facts("start")) == 1
    assert stage.redis.xlen(stage.keys.stream) == 200
    stage.redis.delete(stage.keys.paused)
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert {row.fields["attempt"] for row in stage.events("active")} == {1}


def test_a_killed_worker_s_jobs_wait_for_the_end_of_the_pause(lone_stage: Stage) -> None:
    """Nobody claims them meanwhile, however long their lease has run out."""
    stage = lone_stage
    one = stage.sentry(300, consumer_id="one")
    stage.act({"long": {"gate": "never"}})
    stage.started(1)
    stage.redis.set(stage.keys.paused, "")
    eventually(lambda: stage.health(one).get("paused"))
    stage.fleet.kill(one)
    two = stage.sentry(300, consumer_id="two")
    eventually(lambda: stage.health(two).get("paused"))
    eventually(lambda: stage.idle_ms() > 1_200)
    assert set(stage.pending().values()) == {"one"}
    stage.redis.delete(stage.keys.paused)
    stage.drained()
    assert [fact.pid for fact in stage.facts("start")] == [one.pid, two.pid]
