"""Our own workers under the faults that processes and servers die of.

Each scenario ends with a verdict on the ledger and on what the server holds; the invariants it
checks are named by `problems`. `test_kit.py` shows that careless workers fail the same verdict.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

import pytest
import redis

from chasquimq import Queue, StoreError, UnconfirmedError
from tests.chaos.kit.fleet import Fleet, Orders
from tests.chaos.kit.handler import Behaviour
from tests.chaos.kit.history import Verdict, check
from tests.chaos.kit.ledger import Ledger, open_runs, tally
from tests.chaos.kit.scan import scan
from tests.chaos.kit.wait import eventually
from tests.servers import DialectServer

LEASE_MS = 1000
CONCURRENCY = 8


class Stage:
    """One queue on a server of its own, with a fleet and a ledger."""

    def __init__(self, server: DialectServer, queue: str, ledger: Ledger, fleet: Fleet) -> None:
        self.server = server
        self.queue = queue
        self.ledger = ledger
        self.fleet = fleet

    def orders(self, behaviour: Behaviour, *, max_attempts: int = 25) -> Orders:
        return Orders(
            self.server.url,
            self.queue,
            str(self.ledger.path),
            concurrency=CONCURRENCY,
            max_attempts=max_attempts,
            claim_min_idle_ms=LEASE_MS,
            dialect=self.server.forced_dialect,
            behaviour=behaviour,
        )

    async def add(self, numbers: range, chunk: int = 100, pause_s: float = 0) -> None:
        """Add jobs and note what we were told of each."""
        async with Queue(
            self.queue, redis_url=self.server.url, dialect=self.server.forced_dialect
        ) as queue:
            for at in range(numbers.start, numbers.stop, chunk):
                some = range(at, min(at + chunk, numbers.stop))
                for number in some:
                    self.ledger.attempted(f"job-{number}")
                jobs = [{"name": "c", "data": n, "job_id": f"job-{n}"} for n in some]
                try:
                    for job in await queue.add_bulk(jobs):
                        self.ledger.accepted(job.id)
                except UnconfirmedError:
                    pass  # attempted, and no more is known
                await asyncio.sleep(pause_s)

    def drained(self, timeout: float = 30.0) -> None:
        def look() -> bool:
            try:
                return scan(self.server.url, self.queue).drained
            except redis.ConnectionError:
                return False

        eventually(look, timeout, every=0.1, or_say=lambda: self.fleet.errors[-2000:])

    def verdict(self) -> Verdict:
        return check(self.ledger.path, scan(self.server.url, self.queue))

    def ended(self) -> int:
        return tally(self.ledger.path)["end"]


@pytest.fixture
def stage(own_server: DialectServer, queue_name: str, ledger: Ledger) -> Iterator[Stage]:
    with Fleet(ledger) as fleet:
        yield Stage(own_server, queue_name, ledger, fleet)


def test_kill_9_in_the_middle_of_handlers(stage: Stage) -> None:
    told = stage.orders(Behaviour(sleep_ms=5, fail_every=50))
    asyncio.run(stage.add(range(800)))
    at_risk = 0
    for _ in range(2):
        at_risk += stage.fleet.kill_at_work(stage.fleet.start(told))
    stage.fleet.start_many([told, told])
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems(duplicates_allowed=at_risk, charged_only=True) == [], str(verdict)
    assert len(verdict.completed) == len(verdict.accepted) == 800


def test_kill_9_between_handler_and_ack(stage: Stage) -> None:
    told = stage.orders(Behaviour(kill_on=7))
    asyncio.run(stage.add(range(40)))
    doomed = stage.fleet.start(told)
    eventually(lambda: not doomed.is_alive)
    assert doomed.exit_code == -signal.SIGKILL
    stage.fleet.bury_the_dead()
    stage.fleet.start(told)
    stage.drained()
    verdict = stage.verdict()
    # It died in one turn with everything it had ended since its last write.
    assert verdict.problems(duplicates_allowed=40, charged_only=True) == [], str(verdict)
    assert verdict.runs["job-7"] == 2
    assert len(verdict.completed) == 40


def test_a_job_that_kills_its_worker_is_buried_and_its_neighbours_are_not(stage: Stage) -> None:
    told = stage.orders(Behaviour(sleep_ms=20, exit_on=3, times=0), max_attempts=3)
    asyncio.run(stage.add(range(12)))
    for _ in range(3):
        worker = stage.fleet.start(told)
        eventually(lambda worker=worker: not worker.is_alive)  # type: ignore[misc]
        stage.fleet.bury_the_dead()
    stage.fleet.start(told)
    stage.drained()
    verdict = stage.verdict()
    assert verdict.scan.dead == ("job-3",)
    assert verdict.runs["job-3"] == 3
    assert verdict.completed == {f"job-{n}" for n in range(12) if n != 3}
    problems = verdict.problems(duplicates_allowed=12, charged_only=True, max_attempts=3)
    assert problems == [], str(verdict)


@pytest.mark.timeout(180)
def test_the_server_is_killed_and_comes_back_under_load(stage: Stage) -> None:
    told = stage.orders(Behaviour(sleep_ms=3, fail_every=40))
    stage.fleet.start_many([told, told])

    async def load_and_kill() -> None:
        adding = asyncio.ensure_future(stage.add(range(3000), chunk=10, pause_s=0.005))
        for at_least in (300, 900):
            while stage.ended() < at_least:
                assert not adding.done()
                await asyncio.sleep(0.02)
            stage.ledger.fault("kill -9 of the server")
            stage.server.server.kill()
            await asyncio.sleep(0.3)
            stage.server.server.start()
        await adding

    asyncio.run(load_and_kill())
    stage.drained()
    verdict = stage.verdict()
    # What was acked in the server's last instant may run again: at most what both held, twice.
    held = 2 * 2 * (CONCURRENCY + 256)
    assert verdict.problems(duplicates_allowed=held) == [], str(verdict)
    assert verdict.accepted <= verdict.completed
    assert len(stage.fleet.alive) == 2


@pytest.mark.timeout(180)
def test_a_server_away_for_longer_than_the_lease_costs_no_second_run(stage: Stage) -> None:
    told = stage.orders(Behaviour(sleep_ms=4 * LEASE_MS))
    asyncio.run(stage.add(range(2 * CONCURRENCY)))
    crew = stage.fleet.start_many([told, told])
    eventually(lambda: sum(open_runs(stage.ledger.path, one.pid) for one in crew) == 16)
    asyncio.run(asyncio.sleep(1.2 * LEASE_MS / 1000))  # both are steady and would claim
    stage.server.server.kill()
    asyncio.run(asyncio.sleep(1.5 * LEASE_MS / 1000))
    stage.server.server.start()
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert len(verdict.completed) == 16


def test_sigterm_under_load_loses_nothing_and_doubles_nothing(stage: Stage) -> None:
    told = stage.orders(Behaviour(sleep_ms=4, slow_every=40, slow_ms=800))
    asyncio.run(stage.add(range(1500)))
    for at_least in (100, 300, 500):
        worker = stage.fleet.start(told)
        eventually(lambda least=at_least: stage.ended() > least)  # type: ignore[misc]
        # The longest handler, a second, and what a process needs to go.
        assert stage.fleet.terminate(worker, timeout=0.8 + 1 + 1) == 0
        assert open_runs(stage.ledger.path, worker.pid) == 0
    left = stage.verdict()
    assert left.problems(drained=False) == [], str(left)
    assert left.scan.pending == ()
    last = stage.fleet.start(told)
    stage.drained()
    assert stage.fleet.terminate(last) == 0
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert len(verdict.completed) == 1500
    with stage.server.client() as client:
        consumers = client.xinfo_consumers(f"{{chasqui:{stage.queue}}}:stream", "default")
    assert consumers == []


def test_scripts_flushed_and_connections_killed_all_the_time(stage: Stage) -> None:
    told = stage.orders(Behaviour(sleep_ms=2, fail_every=10))
    stage.fleet.start_many([told, told])
    faults = 0

    async def load_and_break() -> None:
        nonlocal faults
        adding = asyncio.ensure_future(stage.add(range(1500), chunk=10, pause_s=0.005))
        client = stage.server.client()
        while not adding.done():
            await asyncio.sleep(0.05)
            client.script_flush()
            client.client_kill_filter(_type="normal", skipme=True)
            faults += 1
        with contextlib.suppress(StoreError):  # its first connection may be among the killed
            await adding

    asyncio.run(load_and_break())
    stage.drained()
    verdict = stage.verdict()
    assert faults >= 3
    assert verdict.problems() == [], str(verdict)
    assert verdict.accepted <= verdict.completed
    assert len(verdict.accepted) > 1000
