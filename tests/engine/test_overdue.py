"""Leases that cannot be renewed while everything else works: no job runs twice at one time, and the
worker says so."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from chasquimq import Job
from tests.engine.desk import Desk, eventually
from tests.engine.vault import Vault, consumer_of, cut

LEASE_MS = 600


class Runs:
    """A handler that takes its time, and sees whether a job runs twice at one time."""

    def __init__(self, seconds: float) -> None:
        self.starts: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.overlaps: list[str] = []
        self.lost: list[str] = []
        self._seconds = seconds
        self._running: Counter[str] = Counter()

    async def __call__(self, job: Job) -> None:
        self.starts[job.id] += 1
        self._running[job.id] += 1
        if self._running[job.id] > 1:
            self.overlaps.append(job.id)
        try:
            await asyncio.sleep(self._seconds)
            self.done[job.id] += 1
        finally:
            self._running[job.id] -= 1
            if job.lease_lost:
                self.lost.append(job.id)


def fast(**more: Any) -> dict[str, Any]:
    short = {"claim_min_idle_ms": LEASE_MS, "read_block_ms": 50}
    return {**short, "concurrency": 5, **more}


async def test_a_lease_that_cannot_be_renewed_stops_what_runs_before_others_start_it(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    vault, runs = Vault(), Runs(3.0)
    ids = [f"j{n}" for n in range(5)]
    one = desk.working(runs, credential_provider=vault, **fast())
    async with desk.queue() as queue, one as worker:
        await eventually(lambda: worker.health().healthy)
        await queue.add_bulk([{"name": "n", "data": n, "job_id": n} for n in ids])
        await eventually(lambda: worker.health().running == 5)
        async with desk.working(runs, **fast()) as other:
            await eventually(lambda: other.health().healthy)
            await asyncio.sleep(LEASE_MS / 1000 * 1.5)  # its leases are steady
            vault.times = 10_000
            cut(desk, consumer_of(worker).lease.link)
            await eventually(lambda: worker.health().overdue is not None)
            problems = str(worker.health().problems)
            assert "nothing is read until a renewal succeeds" in problems
            assert "credential_provider" in problems  # the cause
            assert worker.health().counters.leases_lost == 5
            await eventually(lambda: sorted(runs.lost) == ids)
            await eventually(lambda: len(runs.starts) == 5 and set(runs.starts.values()) == {2})
            assert consumer_of(worker).pool.running == []
            [told] = [one for one in caplog.records if one.levelno == logging.ERROR]
            assert "5 running handlers are cancelled" in told.getMessage()
            await queue.add("n", 9, job_id="late")
            await desk.settled()
            vault.times = 0
            await eventually(lambda: worker.health().healthy)
            assert worker.health().overdue is None
    assert runs.overlaps == []
    assert runs.done == dict.fromkeys([*ids, "late"], 1)
    assert desk.dead() == []


@pytest.mark.parametrize("lease_ms", [150, 400, 1_500])
async def test_a_lease_connection_that_is_cut_and_refused_once_costs_no_second_run(
    desk: Desk, lease_ms: int
) -> None:
    vault, runs = Vault(), Runs(3 * lease_ms / 1000)
    options = fast(claim_min_idle_ms=lease_ms)
    one = desk.working(runs, credential_provider=vault, **options)
    async with desk.queue() as queue, one as worker, desk.working(runs, **options) as other:
        await eventually(lambda: worker.health().healthy and other.health().healthy)
        await queue.add_bulk([{"name": "n", "data": n} for n in range(5)])
        await eventually(lambda: len(runs.starts) == 5)
        for _ in range(3):
            vault.times = 1
            before = consumer_of(worker).lease.link
            assert before is not None
            made = before.reconnects
            cut(desk, before)
            await eventually(lambda made=made, link=before: link.reconnects > made)  # type: ignore[misc]
        await desk.settled()
    assert runs.overlaps == []
    assert set(runs.done.values()) == {1}


async def test_what_is_still_ours_is_run_again_and_the_run_counts(desk: Desk) -> None:
    """Nobody else is there: each outage costs a run, and never more than there are attempts."""
    vault, runs = Vault(), Runs(30.0)
    working = desk.working(runs, credential_provider=vault, **fast(max_attempts=3))
    async with desk.queue() as queue, working as worker:
        await eventually(lambda: worker.health().healthy)
        await queue.add("n", 1, job_id="a")
        for round_ in range(1, 4):
            await eventually(lambda n=round_: runs.starts["a"] == n)  # type: ignore[misc]
            vault.times = 10_000
            cut(desk, consumer_of(worker).lease.link)
            await eventually(lambda: worker.health().overdue is not None)
            assert len(desk.pending()) == 1
            vault.times = 0
            await eventually(lambda: worker.health().overdue is None)
        await eventually(lambda: len(desk.dead()) == 1)
        await desk.settled()
        await eventually(lambda: worker.health().held == 0)
    assert (runs.starts["a"], runs.done["a"]) == (3, 0)
    assert desk.dead()[0][b"reason"] == b"retries_exhausted"


async def test_a_stop_while_leases_are_overdue_gives_back_with_the_run_counted(desk: Desk) -> None:
    vault, runs = Vault(), Runs(30.0)
    working = desk.working(runs, credential_provider=vault, **fast(max_attempts=2, concurrency=2))
    async with desk.queue() as queue, working as worker:
        await eventually(lambda: worker.health().healthy)
        await queue.add_bulk([{"name": "n", "data": n, "job_id": n} for n in "abcdef"])
        await eventually(lambda: worker.health().running == 2)
        vault.times = 10_000
        cut(desk, consumer_of(worker).lease.link)
        await eventually(lambda: worker.health().overdue is not None)
        async with asyncio.timeout(15):
            await worker.close()
            await eventually(lambda: worker.health().state == "stopped")
    ran = sorted(runs.starts)
    assert len(ran) == 2
    heir = Runs(0.0)
    async with desk.working(heir, **fast(max_attempts=2)):
        await desk.settled()
    assert heir.starts == dict.fromkeys("abcdef", 1)
    again = Runs(0.0)
    assert desk.dead() == [] and not again.starts


async def test_a_handler_that_resists_keeps_its_job_from_being_run_again_here(desk: Desk) -> None:
    """What was cancelled and still runs is not taken up beside itself."""
    vault, gate, starts = Vault(), asyncio.Event(), list[str]()
    running = 0

    async def stubborn(job: Job) -> None:
        nonlocal running
        starts.append(job.id)
        running += 1
        assert running == 1
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await gate.wait()
        running -= 1

    working = desk.working(stubborn, credential_provider=vault, **fast())
    async with desk.queue() as queue, working as worker:
        await eventually(lambda: worker.health().healthy)
        await queue.add("n", 1, job_id="a")
        await eventually(lambda: starts == ["a"])
        vault.times = 10_000
        cut(desk, consumer_of(worker).lease.link)
        await eventually(lambda: worker.health().overdue is not None)
        vault.times = 0
        await eventually(lambda: worker.health().overdue is None)
        await asyncio.sleep(2 * LEASE_MS / 1000)
        assert starts == ["a"]
        gate.set()
        await eventually(lambda: starts == ["a", "a"])  # its first outcome counts for nothing
        await desk.settled()


async def test_where_nothing_answers_what_runs_goes_on(own_desk: Desk) -> None:
    """The server is away for everybody, for several leases, twice."""
    desk, runs = own_desk, Runs(6.0)
    one, two = desk.working(runs, **fast()), desk.working(runs, **fast())
    async with desk.queue() as queue, one as worker, two as other:
        await eventually(lambda: worker.health().healthy and other.health().healthy)
        await queue.add_bulk([{"name": "n", "data": n} for n in range(8)])
        await eventually(lambda: len(runs.starts) == 8)
        for _ in range(2):
            desk.server.server.pause()
            await asyncio.sleep(1.5)
            desk.server.server.resume()
            await asyncio.sleep(1.0)
        desk.server.server.kill()
        await asyncio.sleep(1.0)
        desk.server.server.start()
        await desk.settled()
    assert set(runs.starts.values()) == {1} and runs.overlaps == []
    assert runs.lost == []
