"""No door of ours writes to a server that was the right one, and what waits for its time outlives a
failover, through the doors for bytes, too."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chasquimq import MissedFiresPolicy, Queue, QueueEvents, RepeatPattern, Worker
from chasquimq.job import NativeJob
from chasquimq.native import Consumer, Promoter, Scheduler
from tests.engine.desk import eventually
from tests.ha.doors import EVERY, keys_of, running
from tests.ha.kit import SERVICE, Cluster, Sentinel, Watched, client, until
from tests.ha.times import QUEUE, STAGES
from tests.servers import Dialect, binary_for

DEAF = "deaf"
WORD = "n0thing-heard"  # not a secret
EVERY_MS = 250
LATER_MS = 4_000


@pytest.mark.timeout(120)
async def test_no_door_writes_to_an_old_master_that_came_back(
    sentinels: Watched, dialect: Dialect, tmp_path: Path, queue_name: str
) -> None:
    """It takes itself for the master, nobody has told it otherwise, and one Sentinel, which has
    heard of no failover, names it. The others are more, and know of a later one."""
    sentinels.master.kill()
    await asyncio.to_thread(until, lambda: sentinels.named() == sentinels.replica.port, 60.0)
    for each in sentinels.sentinels:
        each.redis.sentinel_reset(SERVICE)  # they forget it, and so will not make it a replica
    sentinels.master.start()
    old, new = client(sentinels.master.port), client(sentinels.replica.port)
    old.execute_command("ACL", "SETUSER", DEAF, "on", f">{WORD}", "~*", "resetchannels", "+@all")
    more = (f"sentinel auth-user {SERVICE} {DEAF}", f"sentinel auth-pass {SERVICE} {WORD}")
    assert sentinels.master.port is not None
    late = Sentinel(binary_for(dialect), tmp_path / "late", sentinels.master.port, more=more)
    try:
        url = sentinels.url.replace("://", f"://127.0.0.1:{late.port},")
        for door in EVERY:
            name = f"{queue_name}-{door.__name__}"
            await door(url, name, new)
            assert keys_of(name, new), door.__name__
            assert not keys_of(name, old), door.__name__
        named = late.redis.sentinel_get_master_addr_by_name(SERVICE)
        assert named[1] == sentinels.master.port
        assert old.info("replication")["role"] == "master"
    finally:
        late.close()


@pytest.mark.timeout(120)
async def test_every_door_finds_the_node_of_its_queue(nodes: Cluster, queue_name: str) -> None:
    masters = nodes.masters()
    for door in EVERY:
        name = f"{queue_name}-{door.__name__}"
        owner = nodes.owner(f"{{chasqui:{name}}}:stream")
        await door(nodes.url, name, client(owner.port))
        for master in masters:
            assert bool(keys_of(name, client(master.port))) == (master is owner), door.__name__


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["master killed, Sentinels", "master killed, cluster"])
async def test_what_waits_for_its_time_outlives_a_failover(dialect: Dialect, how: str) -> None:
    """Delayed jobs that a replica confirmed all run, and no window of a schedule is left out. What
    was fired, run or acked and had not reached the replica comes once more."""
    runs: Counter[str] = Counter()

    async def handle(job: NativeJob) -> None:
        runs[job.id] += 1

    with STAGES[how](dialect) as stage:
        url = stage.url
        plain = Consumer(url, QUEUE, delayed_enabled=False, run_scheduler=False)
        async with (
            Queue(QUEUE, redis_url=url, durability="replicated") as queue,
            running(plain, Promoter(url, QUEUE), Scheduler(url, QUEUE), handler=handle),
        ):
            every = RepeatPattern.every(EVERY_MS)
            all_of_them = MissedFiresPolicy.fire_all(max_catchup=1_000)
            await queue.add("tick", 1, repeat=every, missed_fires=all_of_them)
            rows = [{"data": n, "delay_ms": LATER_MS + n} for n in range(100)]
            delayed = {job.id for job in await queue.add_bulk(rows)}
            await eventually(lambda: len(runs) > 3)
            stage.lose()
            await asyncio.to_thread(until, stage.agreed, 60.0)
            before = len(runs)
            await eventually(lambda: delayed <= set(runs) and len(runs) > before + 8, 60.0)
    windows = sorted(int(one.rpartition("@")[2]) for one in runs if one not in delayed)
    assert windows == list(range(windows[0], windows[-1] + 1, EVERY_MS))
    assert sum(runs.values()) - len(runs) < 10


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["master killed, Sentinels", "master killed, cluster"])
async def test_who_listens_hears_what_happens_on_the_new_master(dialect: Dialect, how: str) -> None:
    """One who follows the events, and one who waits for a result and hears of it by an event: by
    its own looking it would not know before the test is over."""
    completed: set[str | None] = set()

    async def handle(job: object) -> str:
        return "done"

    async def follow(events: QueueEvents) -> None:
        async for event in events:
            if event.name == "completed":
                completed.add(event.job_id)

    with STAGES[how](dialect) as stage:
        where: Any = {"redis_url": stage.url}
        events = QueueEvents(QUEUE, **where)
        worker = Worker(QUEUE, handle, store_results=True, **where)
        async with (
            asyncio.TaskGroup() as group,
            Queue(QUEUE, durability="replicated", **where) as queue,
        ):
            group.create_task(worker.run())
            following = group.create_task(follow(events))
            first = await queue.add("a", 1)
            assert await queue.wait_for_result(first.id) == "done"
            later = await queue.add("a", 1, delay_ms=LATER_MS)
            waiting = group.create_task(queue.wait_for_result(later.id, 60.0, 3_600.0))
            await eventually(lambda: first.id in completed)
            stage.lose()
            await asyncio.to_thread(until, stage.agreed, 60.0)
            assert await waiting == "done"
            await eventually(lambda: later.id in completed)
            following.cancel()
            await worker.close()
        await events.close()
