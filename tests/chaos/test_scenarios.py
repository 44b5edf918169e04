"""Our own workers under the faults that processes and servers die of.

Each scenario ends with a verdict on the ledger and on what the server holds; the invariants it
checks are named by `problems`. `test_kit.py` shows that careless workers fail the same verdict.
"""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.chaos.kit.dice import vary, vary_s
from tests.chaos.kit.handler import Behaviour
from tests.chaos.kit.ledger import open_runs
from tests.chaos.kit.stage import CONCURRENCY, LEASE_MS, Stage
from tests.chaos.kit.wait import eventually


def test_kill_9_in_the_middle_of_handlers(stage: Stage) -> None:
    jobs = vary("jobs", 800, 400, 2_000)
    told = stage.orders(Behaviour(sleep_ms=vary("sleep", 5, 1, 15), fail_every=50))
    asyncio.run(stage.add(range(jobs)))
    # Each slot may have a run under way, and have ended one whose ack is not written yet.
    at_risk = 2 * 2 * CONCURRENCY
    for _ in range(2):
        stage.fleet.kill_at_work(stage.fleet.start(told))
    stage.fleet.start_many([told, told])
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems(duplicates_allowed=at_risk, charged_only=True) == [], str(verdict)
    assert len(verdict.completed) == len(verdict.accepted) == jobs


def test_kill_9_between_handler_and_ack(stage: Stage) -> None:
    fatal = vary("fatal", 7, 0, 39)
    told = stage.orders(Behaviour(kill_on=fatal))
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
    assert verdict.runs[f"job-{fatal}"] == 2
    assert len(verdict.completed) == 40


@pytest.mark.timeout(180)
def test_kill_9_of_those_who_promote_retry_and_bury(seeded_stage: Stage) -> None:
    """I1, I3, I5 and I6: half of the jobs are delayed, every tenth fails until it is buried."""
    stage, half, kills = seeded_stage, vary("jobs", 100, 60, 300), 2
    told = stage.orders(Behaviour(sleep_ms=10, fail_every=10, fails=99), max_attempts=kills + 2)
    asyncio.run(stage.add(range(half)))
    asyncio.run(stage.add(range(half, 2 * half), delay_ms=vary("delay", 500, 100, 1_500)))
    for nth in range(1, kills + 1):
        one = stage.fleet.start(told)
        eventually(lambda least=nth * half // 4: stage.ended() >= least)  # type: ignore[misc]
        stage.fleet.kill_at_work(one)
    stage.fleet.start_many([told, told])
    stage.drained()
    verdict = stage.verdict()
    at_risk = kills * 2 * CONCURRENCY
    problems = verdict.problems(
        duplicates_allowed=at_risk, charged_only=True, max_attempts=kills + 2
    )
    assert problems == [], str(verdict)
    assert set(verdict.scan.dead) == {f"job-{number}" for number in range(0, 2 * half, 10)}
    assert len(verdict.completed) + len(verdict.scan.dead) == 2 * half


@pytest.mark.timeout(180)
def test_the_server_is_killed_and_comes_back_under_load(stage: Stage) -> None:
    told = stage.orders(Behaviour(sleep_ms=3, fail_every=40))
    stage.fleet.start_many([told, told])

    async def load_and_kill() -> None:
        adding = asyncio.ensure_future(stage.add(range(3000), chunk=10, pause_s=0.005))
        for at_least in (vary("first", 300, 20, 800), vary("second", 900, 900, 1_500)):
            while stage.ended() < at_least:
                assert not adding.done()
                await asyncio.sleep(0.02)
            stage.ledger.fault("kill -9 of the server")
            stage.server.server.kill()
            await asyncio.sleep(vary_s("away", 0.3, 0.0, 0.9))
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
    asyncio.run(asyncio.sleep(vary_s("away", 1.5, 1.1, 2.2) * LEASE_MS / 1000))
    stage.server.server.start()
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert len(verdict.completed) == 16


def test_sigterm_under_load_loses_nothing_and_doubles_nothing(stage: Stage) -> None:
    told = stage.orders(Behaviour(sleep_ms=vary("sleep", 4, 2, 8), slow_every=40, slow_ms=800))
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
    told = stage.orders(Behaviour(sleep_ms=2, fail_every=vary("fail", 10, 3, 30)))
    stage.fleet.start_many([told, told])
    faults = 0

    async def load_and_break() -> None:
        nonlocal faults
        adding = asyncio.ensure_future(stage.add(range(1500), chunk=10, pause_s=0.005))
        client = stage.server.client()
        while not stage.ended():  # a first connection that is killed would be an error
            assert not adding.done()
            await asyncio.sleep(0.01)
        while not adding.done():
            await asyncio.sleep(vary_s("every", 0.05, 0.02, 0.2))
            client.script_flush()
            client.client_kill_filter(_type="normal", skipme=True)
            faults += 1
        await adding

    asyncio.run(load_and_break())
    stage.drained()
    verdict = stage.verdict()
    assert faults >= 3
    assert verdict.problems() == [], str(verdict)
    assert verdict.accepted <= verdict.completed
    assert len(verdict.accepted) > 1000
