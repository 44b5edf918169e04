"""Cancelling, moving and promoting at once: a job runs once, or it was cancelled and never runs."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chasquimq import Job, Queue, wire
from chasquimq.address import read_url
from chasquimq.config import PromoteOptions
from chasquimq.engine.promoter import Promoter
from chasquimq.store import Dialer, Store
from tests.engine.desk import Desk, eventually

Steps = list[tuple[int, str, int]]  # (which job, what to do with it, ms)

STEP = st.tuples(
    st.integers(0, 5), st.sampled_from(["cancel", "run now", "reschedule"]), st.integers(0, 20)
)
DELAYS = st.lists(st.integers(1, 15), min_size=1, max_size=6)
STEPS = st.lists(STEP, max_size=25)
on_a_shared_server = settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def jobs(delays: Iterable[int]) -> list[dict[str, Any]]:
    """Every second one has an id of its own."""
    return [
        {"name": "n", "data": n, "delay_ms": ms, **({"job_id": f"own-{n}"} if n % 2 else {})}
        for n, ms in enumerate(delays)
    ]


async def act(
    queue: Queue, ids: list[str], steps: Steps, cancelled: Counter[str], pace: float = 0
) -> None:
    for which, what, ms in steps:
        await asyncio.sleep(ms * pace)
        job_id = ids[which % len(ids)]
        if what == "cancel":
            if await queue.cancel_delayed(job_id):
                cancelled[job_id] += 1
        elif what == "run now":
            await queue.run_now(job_id)
        else:
            await queue.reschedule(job_id, ms)


@on_a_shared_server
@given(delays=DELAYS, one=STEPS, other=STEPS)
async def test_a_job_is_promoted_once_or_was_cancelled(
    desk: Desk, delays: list[int], one: Steps, other: Steps
) -> None:
    store = Store(desk.keys, Dialer(read_url(desk.server.url)), desk.server.forced_dialect)
    await store.open()
    promoter = Promoter(store, "holder", lambda happening: None, PromoteOptions(batch=2))
    await race(desk, delays, one, other, promoter.run(), promoter.stop)
    await store.close()


@on_a_shared_server
@given(delays=DELAYS, one=STEPS, other=STEPS)
async def test_the_same_holds_while_another_program_promotes(
    desk: Desk, delays: list[int], one: Steps, other: Steps
) -> None:
    stop = asyncio.Event()
    await race(desk, delays, one, other, promote(desk, stop), stop.set)


async def race(
    desk: Desk,
    delays: list[int],
    one: Steps,
    other: Steps,
    promoting: Coroutine[Any, Any, None],
    stop: Callable[[], None],
) -> None:
    for key in desk.redis.scan_iter(match=desk.keys.tag + b"*", count=10_000):
        desk.redis.delete(key)
    cancelled: Counter[str] = Counter()
    async with desk.queue() as here, desk.queue() as there, asyncio.TaskGroup() as group:
        ids = [job.id for job in await here.add_bulk(jobs(delays))]
        group.create_task(promoting)
        async with asyncio.TaskGroup() as rivals:
            # Slowly, so that they spread over the time of promotion.
            rivals.create_task(act(here, ids, one, cancelled, pace=0.0002))
            rivals.create_task(act(there, ids, other, cancelled, pace=0.0002))
        await eventually(lambda: desk.delayed() == 0)
        stop()
    promoted = Counter(envelope.id for envelope in desk.envelopes())
    assert {job_id: promoted[job_id] + cancelled[job_id] for job_id in ids} == dict.fromkeys(ids, 1)
    assert desk.redis.keys(desk.keys.didx("*")) == []
    taken = {key.removeprefix(desk.keys.dlid("")) for key in desk.redis.keys(desk.keys.dlid("*"))}
    assert taken == {i.encode() for i in ids if i.startswith("own") and promoted[i]}


async def promote(desk: Desk, stop: asyncio.Event) -> None:
    """As the reference does it: what is due moves at once, its indexes are removed later."""
    delayed, late = desk.keys.delayed, 0.005
    while not stop.is_set():
        due = desk.redis.zrangebyscore(delayed, 0, time.time() * 1000, 0, 2)
        for member in due:
            pipe = desk.redis.pipeline()
            pipe.watch(delayed)
            if pipe.zscore(delayed, member) is None:
                continue
            pipe.multi()
            name, envelope = wire.split_member(member)
            pipe.xadd(desk.keys.stream, {b"d": envelope, b"n": name})
            pipe.zrem(delayed, member)
            with suppress(redis.WatchError):
                pipe.execute()
                await asyncio.sleep(late)
                desk.redis.delete(desk.keys.didx(wire.unpack_envelope(envelope).id))
        await asyncio.sleep(late)


async def test_a_job_runs_once_or_was_cancelled(desk: Desk) -> None:
    """The same with workers that promote and run them, and with many jobs of one time."""
    dice = random.Random(7)
    runs: Counter[str] = Counter()
    cancelled: Counter[str] = Counter()

    async def handler(job: Job) -> None:
        runs[job.id] += 1

    def steps() -> Steps:
        whats = ("cancel", "run now", "reschedule", "reschedule")
        return [
            (dice.randrange(400), dice.choice(whats), dice.randrange(100)) for _ in range(1_200)
        ]

    async with desk.queue() as here, desk.queue() as there:
        ids = [job.id for job in await here.add_bulk(jobs([150] * 400))]
        async with desk.working(handler), desk.working(handler):
            async with asyncio.TaskGroup() as rivals:
                for queue in (here, there):
                    rivals.create_task(act(queue, ids, steps(), cancelled))
            await desk.settled()
    assert {job_id: runs[job_id] + cancelled[job_id] for job_id in ids} == dict.fromkeys(ids, 1)
    assert 0 < sum(cancelled.values()) < 400
