"""How many commands a job costs, as Redis counts them: no round trip per job crept in."""

from __future__ import annotations

import asyncio
from collections import Counter

from chasquimq import Job
from tests.engine.desk import Desk, eventually

JOBS = 2_000


async def nothing(job: Job) -> None:
    pass


def calls(desk: Desk) -> Counter[str]:
    stats = desk.redis.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()})


def added(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    return dict(after - before)


async def test_a_worker_reads_and_acks_in_batches(own_desk: Desk) -> None:
    desk = own_desk
    for number in range(JOBS):
        desk.put(f"job-{number}")
    before = calls(desk)
    async with desk.working(nothing, events_enabled=False):
        await desk.settled()
        spent = added(before, calls(desk))
    reads = spent.get("xreadgroup", 0)
    acks = spent.get("xackdel", 0) + (spent.get("xack", 0) if "xackdel" not in spent else 0)
    assert reads <= JOBS / 20
    assert acks <= JOBS / 20
    assert "xadd" not in spent


async def test_events_cost_two_commands_a_job_and_no_trim_each(own_desk: Desk) -> None:
    desk = own_desk
    for number in range(JOBS):
        desk.put(f"job-{number}")
    before = calls(desk)
    async with desk.working(nothing):
        await desk.settled()
        await eventually(lambda: calls(desk)["xadd"] - before["xadd"] >= 2 * JOBS)
        spent = added(before, calls(desk))
    assert spent["xadd"] <= 2 * JOBS + 10
    assert spent["xtrim"] <= JOBS / 100


async def test_a_bulk_is_one_xadd_a_job_and_an_xlen_a_chunk(own_desk: Desk) -> None:
    async with own_desk.queue() as queue:
        await queue.add("warm", 1)
        before = calls(own_desk)
        await queue.add_bulk([{"name": "n", "data": n} for n in range(JOBS)])
        spent = added(before, calls(own_desk))
    spent.pop("info", None)
    assert spent.pop("xadd") == JOBS
    assert spent.pop("xlen") <= JOBS / 20
    assert spent == {}


async def test_concurrent_adds_share_their_writes(own_desk: Desk) -> None:
    async with own_desk.queue() as queue:
        await queue.add("warm", 1)
        before = calls(own_desk)
        reads = own_desk.redis.info("stats")["total_reads_processed"]
        async with asyncio.TaskGroup() as group:
            for number in range(JOBS):
                group.create_task(queue.add("n", number))
        spent = added(before, calls(own_desk))
        reads = own_desk.redis.info("stats")["total_reads_processed"] - reads
    spent.pop("info", None)
    assert spent.pop("xadd") == JOBS
    assert spent.pop("xlen") <= JOBS / 20
    assert spent == {}
    assert reads <= JOBS / 10


async def test_one_add_is_one_write(own_desk: Desk) -> None:
    async with own_desk.queue() as queue:
        await queue.add("warm", 1)
        before = calls(own_desk)
        for number in range(10):
            await queue.add("n", number)
        spent = added(before, calls(own_desk))
    spent.pop("info", None)
    assert spent == {"xadd": 10, "xlen": 10}


async def test_an_idle_worker_sends_at_most_two_commands_a_second(own_desk: Desk) -> None:
    async with own_desk.working(nothing):
        await eventually(lambda: calls(own_desk)["xreadgroup"] >= 0)
        await asyncio.sleep(1)  # the start is over
        before = calls(own_desk)
        await asyncio.sleep(6)
        spent = added(before, calls(own_desk))
    spent.pop("info", None)
    # Commands inside a script are the server's own affair: what travels is its EVALSHA.
    names = ("evalsha", "xreadgroup", "exists", "ping", "subscribe")
    assert sum(spent.get(name, 0) for name in names) <= 2 * 6 + 1


async def test_forgotten_scripts_are_loaded_once_for_all_that_miss_them(own_desk: Desk) -> None:
    async with own_desk.queue() as queue:
        await queue.add("warm", 1, delay_ms=3_600_000)
        before = calls(own_desk)
        own_desk.redis.script_flush()
        jobs = [{"name": "n", "data": n, "delay_ms": 3_600_000} for n in range(40)]
        await queue.add_bulk(jobs)
        spent = added(before, calls(own_desk))
    assert own_desk.delayed() == 41
    assert spent["script|load"] <= 4
