"""Replies that are lost on the way: the server acted, and we do not know. Nothing is lost, and
nothing runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from chasquimq import BackoffSpec, Job
from tests.chaos.kit.proxy import Proxy
from tests.engine.desk import Desk, eventually

FAST = BackoffSpec.fixed(1, jitter_ms=0)


@pytest.fixture
def proxy(desk: Desk) -> Iterator[Proxy]:
    with Proxy(int(desk.redis.connection_pool.connection_kwargs["port"])) as proxy:
        yield proxy


class Log:
    def __init__(self) -> None:
        self.runs: list[tuple[str, int]] = []

    async def __call__(self, job: Job) -> None:
        self.runs.append((job.id, job.attempt))
        if job.attempt == 0 and job.data % 5 == 0:
            raise ValueError("once")

    def expected(self, count: int) -> list[tuple[str, int]]:
        first = [(f"id-{n}", 0) for n in range(count)]
        return sorted(first + [(f"id-{n}", 1) for n in range(0, count, 5)])


@pytest.mark.parametrize(
    ("every", "count"),
    [(3, 50), pytest.param(3, 300, marks=pytest.mark.slow), (7, 300), (17, 300), (40, 300)],
)
async def test_every_kth_reply_is_cut(desk: Desk, proxy: Proxy, every: int, count: int) -> None:
    """Of all commands, adds and reads and acks and moves alike."""
    log = Log()
    async with (
        desk.queue(redis_url=proxy.url) as queue,
        desk.working(
            log, redis_url=proxy.url, backoff=FAST, concurrency=10, claim_min_idle_ms=60_000
        ),
    ):
        await queue.add("n", 1, job_id="id-1")  # both are connected
        await eventually(lambda: log.runs)
        cut = proxy.cut(every, every=True)
        jobs = [{"name": "n", "data": n, "job_id": f"id-{n}"} for n in range(count)]
        for at in range(0, count, 10):
            await queue.add_bulk(jobs[at : at + 10])
        proxy.heal()
        runs = log.expected(count)
        await eventually(lambda: sorted(log.runs) == runs or len(log.runs) > len(runs))
        await desk.settled()
    assert cut.done > 3
    assert sorted(log.runs) == runs
    assert desk.pending() == []


@pytest.mark.parametrize("command", ["XREADGROUP", "XACKDEL", "EVALSHA", "XADD"])
async def test_the_replies_of_one_command_are_cut(desk: Desk, proxy: Proxy, command: str) -> None:
    log = Log()
    async with (
        desk.queue(redis_url=proxy.url) as queue,
        desk.working(
            log, redis_url=proxy.url, backoff=FAST, concurrency=10, claim_min_idle_ms=60_000
        ),
    ):
        await queue.add("n", 1, job_id="id-1")
        await eventually(lambda: log.runs)
        cut = proxy.cut(2, command=command, every=True)
        jobs = [{"name": "n", "data": n, "job_id": f"id-{n}"} for n in range(60)]
        for at in range(0, 60, 6):
            await queue.add_bulk(jobs[at : at + 6])
            await asyncio.sleep(0.02)
        proxy.heal()
        await eventually(lambda: sorted(log.runs) == log.expected(60) or len(log.runs) > 72)
        await desk.settled()
    if command in proxy.commands:
        assert cut.done
    assert sorted(log.runs) == log.expected(60)


@pytest.mark.parametrize("nth", [1, 7, 40])
async def test_a_cut_within_the_events_in_front_loses_no_outcome(
    desk: Desk, proxy: Proxy, nth: int
) -> None:
    """A group begins with the events of what was started: the cut comes before the first ack."""
    log = Log()
    async with desk.working(
        log, redis_url=proxy.url, backoff=FAST, concurrency=10, claim_min_idle_ms=60_000
    ):
        desk.put("id-1", 1)
        await eventually(lambda: log.runs)
        for first in range(0, 200, 40):
            cut = proxy.cut(nth, command="XADD")
            for n in range(first, first + 40):
                desk.put(f"id-{n}", n)
            await eventually(lambda: cut.done)  # noqa: B023
        await desk.settled()
    again = sorted({run for run in log.runs if run[0] != "id-1"})
    assert again == [run for run in log.expected(200) if run[0] != "id-1"]
    assert desk.pending() == []


async def test_a_black_hole_is_noticed_and_left(desk: Desk, proxy: Proxy) -> None:
    """Half-open: nothing comes, nothing breaks. The leases go over the same dead network, so
    what runs is kept by the server's clock alone; here it stays short of the lease."""
    log = Log()
    async with (
        desk.queue() as queue,
        desk.working(
            log, redis_url=proxy.url, backoff=FAST, read_block_ms=100, claim_min_idle_ms=60_000
        ),
    ):
        await queue.add("n", 1, job_id="id-1")
        await eventually(lambda: log.runs)
        proxy.black_hole()
        await queue.add("n", 2, job_id="id-2")
        await asyncio.sleep(0.3)
        proxy.reset()
        proxy.heal()
        await eventually(lambda: ("id-2", 0) in log.runs)
        await desk.settled()
    assert sorted(log.runs) == [("id-1", 0), ("id-2", 0)]


async def test_a_line_that_breaks_within_every_write_still_lets_a_bulk_through(
    desk: Desk, proxy: Proxy
) -> None:
    """Also where the server does not know the script yet: each connection breaks before anybody
    could react to what it said."""
    desk.redis.script_flush()
    async with desk.queue(redis_url=proxy.url) as queue:
        await queue.counts()
        cut = proxy.cut(30, every=True)  # a write has 64 jobs
        jobs = [{"name": "n", "data": n, "job_id": f"id-{n}"} for n in range(300)]
        async with asyncio.timeout(30):
            await queue.add_bulk(jobs)
        proxy.heal()
    assert cut.done >= 10
    assert sorted(one.id for one in desk.envelopes()) == sorted(str(job["job_id"]) for job in jobs)


async def test_what_goes_again_goes_in_its_order_and_the_server_still_knows_it(
    desk: Desk, proxy: Proxy
) -> None:
    """A server remembers the last ids only. Were the newest sent again first, those before them
    would wait, break after break, until it has forgotten that it has them."""
    async with desk.queue(redis_url=proxy.url) as queue:
        await queue.counts()
        cut = proxy.cut(700, every=True)
        jobs = [{"name": "n", "data": n, "job_id": f"id-{n}"} for n in range(12_000)]
        async with asyncio.timeout(60):
            await queue.add_bulk(jobs)
        proxy.heal()
    assert cut.done >= 12_000 // 700
    ids = [one.id for one in desk.envelopes()]
    assert len(ids) == len(set(ids)) == len(jobs)
