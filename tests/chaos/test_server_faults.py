"""What becomes of a queue when its server forgets, loads, is busy, read-only or asleep.

On one server in the short form, on each with a seed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from chasquimq.server import Server
from tests.chaos.kit.dice import vary, vary_s
from tests.chaos.kit.handler import Behaviour
from tests.chaos.kit.stage import CONCURRENCY, LEASE_MS, Stage
from tests.chaos.kit.wait import eventually
from tests.servers import DialectServer

LEASE_S = LEASE_MS / 1000


@contextmanager
def working(stage: Stage, jobs: int) -> Iterator[None]:
    """Two workers in the middle of so many jobs; at the end each has run once."""
    told = stage.orders(Behaviour(sleep_ms=vary("sleep", 20, 5, 40), fail_every=20))
    stage.fleet.start_many([told, told])
    eventually(lambda: stage.readers() == 2)  # one that starts into a fault gives up
    asyncio.run(stage.add(range(jobs)))
    eventually(lambda: stage.ended() > jobs // 10)
    yield
    assert stage.ended() < jobs, "all was over before the fault: nothing was tried"
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert len(verdict.completed) == jobs
    assert len(stage.fleet.alive) == 2, stage.fleet.errors


def test_a_server_that_sleeps_past_the_lease_costs_no_second_run(seeded_stage: Stage) -> None:
    """I1, I3, I4 and I6."""
    stage = seeded_stage
    with working(stage, 700):
        asleep = vary_s("asleep", 1.5, 1.2, 4.0) * LEASE_S
        stage.redis.execute_command("DEBUG", "SLEEP", asleep)


def test_a_server_busy_with_a_script_costs_no_second_run(seeded_stage: Stage) -> None:
    """I1, I3, I4 and I6: it answers BUSY to everything, for longer than a lease."""
    stage = seeded_stage
    stage.redis.config_set("busy-reply-threshold", 10)
    endless = threading.Thread(target=_never_ends, args=(stage,))
    with working(stage, 700):
        endless.start()
        time.sleep(vary_s("busy", 1.3, 1.1, 3.0) * LEASE_S)
        killer = stage.server.client(socket_timeout=10)
        eventually(lambda: _is_killed(killer))
        endless.join()


def _never_ends(stage: Stage) -> None:
    with pytest.raises(redis.ResponseError, match="killed"):
        stage.server.client(socket_timeout=60).eval("while true do end", 0)


def _is_killed(client: redis.Redis) -> bool:
    try:
        return bool(client.script_kill())
    except redis.ResponseError as error:
        return "NOTBUSY" in str(error)


def test_a_server_that_turns_into_a_replica_and_back_costs_no_second_run(
    seeded_stage: Stage,
) -> None:
    """I1, I3, I4 and I6: it answers READONLY, and keeps what it has."""
    stage = seeded_stage
    with working(stage, 700):
        stage.redis.execute_command("REPLICAOF", "127.0.0.1", 1)
        time.sleep(vary_s("away", 1.3, 0.2, 3.0) * LEASE_S)
        stage.redis.execute_command("REPLICAOF", "NO", "ONE")


def test_a_server_that_loads_for_longer_than_a_lease_costs_no_second_run(
    seeded_stage: Stage,
) -> None:
    """I1 and I6: meanwhile it answers LOADING. What was acked and not heard of may run again."""
    stage, jobs = seeded_stage, 700
    # Each of its keys takes this long, in microseconds, and there are enough of them.
    slow = {"key-load-delay": 300, "enable-debug-command": "local"}
    binary = stage.server.server.binary
    with Server(binary, appendonly=True, config=slow) as server:
        stage.server = DialectServer(stage.server.name, server, stage.server.forced_dialect)
        with stage.redis.pipeline(transaction=False) as pipe:
            for number in range(vary("keys", 4_000, 3_000, 9_000)):
                pipe.set(f"in the way {number}", "x")
            pipe.execute()
        told = stage.orders(Behaviour(sleep_ms=40))
        asyncio.run(stage.add(range(jobs)))
        stage.fleet.start_many([told, told])
        eventually(lambda: stage.ended() > jobs // 10)
        server.kill()
        server.start()
        assert stage.ended() < jobs, "all was over before the fault: nothing was tried"
        stage.drained()
        verdict = stage.verdict()
        held = 2 * (CONCURRENCY + 256)
        assert verdict.problems(duplicates_allowed=held) == [], str(verdict)
        assert len(verdict.completed) == jobs
        stage.fleet.stop()
        stage.server.close()


def test_a_server_that_syncs_each_second_loses_nothing_to_kill_9(seeded_stage: Stage) -> None:
    """I1: the machine lives on, and with it what the server had handed to it."""
    stage, jobs = seeded_stage, vary("jobs", 1_000, 500, 3_000)
    told = stage.orders(Behaviour(sleep_ms=5))
    stage.fleet.start_many([told, told])
    stage.redis.config_set("appendfsync", "everysec")
    asyncio.run(stage.add(range(jobs)))
    eventually(lambda: stage.ended() > jobs // 10)
    stage.server.server.kill()
    stage.server.server.start()
    stage.drained()
    verdict = stage.verdict()
    held = 2 * (CONCURRENCY + 256)
    assert verdict.problems(duplicates_allowed=held) == [], str(verdict)
    assert len(verdict.completed) == jobs


def test_a_torn_end_of_the_append_only_file_costs_its_last_command_only(
    seeded_stage: Stage,
) -> None:
    """I1: all else is there, and what was lost can be added again under its id."""
    stage, jobs = seeded_stage, vary("jobs", 300, 50, 900)
    asyncio.run(stage.add(range(jobs), chunk=1_000))
    stage.server.server.kill()
    [file] = (stage.server.server.folder / "appendonlydir").glob("*.incr.aof")
    with file.open("r+b") as torn:
        torn.truncate(file.stat().st_size - vary("bytes", 9, 1, 20))
    stage.server.server.start()
    lost = stage.verdict().lost
    assert lost == {f"job-{jobs - 1}"}
    asyncio.run(stage.add(range(jobs - 1, jobs)))
    stage.fleet.start(stage.orders(Behaviour()))
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert len(verdict.completed) == jobs


def test_a_rewritten_append_only_file_keeps_jobs_groups_and_what_is_pending(
    seeded_stage: Stage,
) -> None:
    """I1 and I6, without the preamble that keeps more than commands can say."""
    stage, jobs = seeded_stage, vary("jobs", 400, 100, 900)
    stage.redis.config_set("aof-use-rdb-preamble", "no")
    told = stage.orders(Behaviour(sleep_ms=20))
    asyncio.run(stage.add(range(jobs)))
    stage.fleet.kill_at_work(stage.fleet.start(told))
    assert stage.pending()
    before = stage.redis.info("persistence")["aof_rewrites"]
    stage.redis.bgrewriteaof()
    eventually(lambda: stage.redis.info("persistence")["aof_rewrites"] > before)
    eventually(lambda: not stage.redis.info("persistence")["aof_rewrite_in_progress"])
    held = stage.pending()
    stage.server.server.kill()
    stage.server.server.start()
    assert stage.pending() == held
    stage.fleet.start_many([told, told])
    stage.drained()
    verdict = stage.verdict()
    problems = verdict.problems(duplicates_allowed=2 * CONCURRENCY, charged_only=True)
    assert problems == [], str(verdict)
    assert len(verdict.completed) == jobs


def test_a_server_that_forgot_deliveries_makes_them_anew_and_one_run_counts(
    seeded_stage: Stage,
) -> None:
    """I1, I5 and I6, and the limit of I4: a crash that took the last writes, or a replica that had
    not got them, knows of no reader. What runs is given to the next one at once; the first hears
    of it at its next renewal, and nothing of its outcome counts."""
    stage = seeded_stage
    jobs = {f"job-{n}": {"gate": "over"} for n in range(CONCURRENCY)}
    first = stage.sentry(LEASE_MS, consumer_id="first", concurrency=CONCURRENCY)
    eventually(lambda: stage.readers() == 1)
    first.pause()
    stage.act(jobs)
    [file] = (stage.server.server.folder / "appendonlydir").glob("*.incr.aof")
    known = file.stat().st_size
    first.resume()
    stage.started(CONCURRENCY)
    first.pause()  # else it might be the next reader itself, and know what it holds
    stage.server.server.kill()
    with file.open("r+b") as torn:
        torn.truncate(known)
    stage.server.server.start()
    second = stage.sentry(LEASE_MS, consumer_id="second", concurrency=CONCURRENCY)
    stage.started(2 * CONCURRENCY)
    first.resume()
    eventually(lambda: len(stage.facts("lost")) == CONCURRENCY)
    stage.open("over")
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems(duplicates_allowed=0, overlaps_allowed=CONCURRENCY) == [], str(verdict)
    assert {(one.first_pid, one.second_pid) for one in verdict.overlaps} == {
        (first.pid, second.pid)
    }
    assert verdict.completed == jobs.keys()
    assert {fact.pid for fact in stage.facts("end")} == {second.pid}
