"""Networks that reset, delay and swallow, clocks that are wrong, and names that come and go.

On one server in the short form, on each with a seed.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from chasquimq import Queue, wire
from tests.chaos.kit.dice import vary, vary_s
from tests.chaos.kit.fleet import Orders
from tests.chaos.kit.handler import Behaviour
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.wait import eventually
from tests.chaos.test_stops import READS_FAR_AHEAD

LEASE_MS = 500
HOUR_MS = 3_600_000


def test_resets_of_all_connections_in_a_row_lose_and_double_nothing(seeded_stage: Stage) -> None:
    """I1, I3, I4 and I6: RST, as a firewall sends it, to everybody at once."""
    stage, jobs, storms = seeded_stage, 1_000, 0
    with stage.proxy() as proxy:
        told = {"url": proxy.url, "concurrency": 4}
        stage.sentries(2, 5_000, **told)
        stage.act({f"job-{n}": {"sleep": 0.005} for n in range(jobs)})
        while stage.ended() < 0.9 * jobs:
            time.sleep(vary_s("every", 0.1, 0.03, 0.3))
            storms += proxy.reset() > 0
        stage.drained()
    verdict = stage.verdict()
    assert storms >= 3
    assert verdict.problems() == [], str(verdict)
    assert len(verdict.completed) == jobs


def test_a_slow_network_costs_no_lease_and_no_second_run(seeded_stage: Stage) -> None:
    """I3, I4 and I9: up to 200 ms for each answer, under jobs of several leases."""
    stage, jobs = seeded_stage, 12
    with stage.proxy() as proxy:
        proxy.latency(0, vary("most", 200, 50, 200))
        crew = stage.sentries(2, 1_500, url=proxy.url, concurrency=4)
        stage.act({f"job-{n}": {"sleep": 1.0} for n in range(jobs)})
        stage.drained()
        assert [stage.counters(one)["leases_lost"] for one in crew] == [0, 0]
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert verdict.runs == {f"job-{n}": 1 for n in range(jobs)}


def test_jobs_read_ahead_keep_their_lease_while_they_wait_for_a_place(seeded_stage: Stage) -> None:
    """I3 and I4: the last of them starts several leases after it was read, and another worker,
    which has nothing to do, takes none of them."""
    stage, jobs = seeded_stage, vary("jobs", 20, 15, 40)
    stage.act({f"quick-{n}": {} for n in range(1_500)})  # until it knows how fast handlers are
    first = stage.sentry(LEASE_MS, tune=READS_FAR_AHEAD, concurrency=1)
    eventually(lambda: stage.ended() == 1_500)
    stage.act({f"job-{n}": {"sleep": 0.1} for n in range(jobs)})
    eventually(lambda: len(stage.pending()) > jobs // 2)
    idle = stage.sentry(LEASE_MS)
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert stage.counters(idle)["read"] < jobs // 2
    assert stage.counters(first)["leases_lost"] == 0


def test_names_of_a_thousand_consumers_go_and_what_they_held_is_run(seeded_stage: Stage) -> None:
    """I1, I5, I6 and I10: processes that started, took a job or none, and were never seen again."""
    stage, names, holding = seeded_stage, 1_000, vary("holding", 40, 1, 200)
    asyncio.run(stage.add(range(holding), chunk=1_000))
    client = stage.redis
    client.xgroup_create(stage.keys.stream, "default", "0")
    with client.pipeline(transaction=False) as pipe:
        for number in range(names):
            if number < holding:
                pipe.xreadgroup("default", f"gone-{number}", {stage.keys.stream: ">"}, count=1)
            else:
                pipe.xgroup_createconsumer(stage.keys.stream, "default", f"gone-{number}")
        pipe.execute()
    assert len(stage.consumers()) == names
    order = {"every_ms": 20, "consumer_idle_ms": 1_000, "ghost_idle_ms": 1_000}
    worker = stage.fleet.start(_sweeping(stage, order), module="tests.chaos.kit.sweeper")
    stage.drained()
    eventually(lambda: stage.consumers() == ["sweeper"], or_say=lambda: len(stage.consumers()))
    verdict = stage.verdict()
    assert verdict.problems(max_attempts=2) == [], str(verdict)
    assert len(verdict.completed) == holding
    assert stage.fleet.terminate(worker) == 0
    assert stage.consumers() == []


def _sweeping(stage: Stage, janitor: dict[str, int]) -> Orders:
    told = stage.orders(Behaviour())
    return replace(told, consumer_id="sweeper", claim_min_idle_ms=LEASE_MS, options=janitor)


@pytest.mark.parametrize("skew_ms", [-HOUR_MS, HOUR_MS], ids=["behind", "ahead"])
async def test_a_producer_an_hour_off_delays_by_the_server_s_clock(
    seeded_stage: Stage, skew_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8: nothing runs early, and nothing an hour late."""
    stage, delay_ms, jobs = seeded_stage, vary("delay", 700, 300, 1_500), 20
    stage.sentry(LEASE_MS)
    real_ns, real = time.time_ns, time.time
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + skew_ms * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: real() + skew_ms / 1000)
    told: dict[str, Any] = {"redis_url": stage.server.url, "dialect": stage.server.forced_dialect}
    began_ns = time.monotonic_ns()
    async with Queue(stage.queue, **told) as queue:
        for number in range(jobs):
            await queue.add("n", {}, job_id=f"job-{number}", delay_ms=delay_ms)
            stage.ledger.accepted(f"job-{number}")
    starts = stage.started(jobs)
    # A millisecond is what the clocks of server and process may differ by in their rounding.
    assert min(start.at_ns for start in starts) - began_ns >= (delay_ms - 1) * 1_000_000
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert len(verdict.completed) == jobs


async def test_a_bulk_of_ten_thousand_whose_answers_are_cut_comes_in_once(
    seeded_stage: Stage,
) -> None:
    """I1, I2 and I7: the line breaks again and again, each time after some more answers; each job
    is answered with yes, and is there once."""
    stage, jobs = seeded_stage, vary("jobs", 10_000, 5_000, 15_000)
    at = vary("at", 1_500, 20, 3_000)
    told: dict[str, Any] = {"dialect": stage.server.forced_dialect}
    rows = [{"name": "n", "data": n, "job_id": f"job-{n}"} for n in range(jobs)]
    for row in rows:
        stage.ledger.attempted(str(row["job_id"]))
    with stage.proxy() as proxy:
        async with Queue(stage.queue, redis_url=proxy.url, **told) as queue:
            await queue.counts()
            cut = proxy.cut(at, every=True)
            async with asyncio.timeout(60):
                for job in await queue.add_bulk(rows):
                    stage.ledger.accepted(job.id)
            proxy.heal()
    assert cut.done >= jobs // at
    bodies = [fields[b"d"] for _, fields in stage.redis.xrange(stage.keys.stream)]
    ids = [wire.unpack_envelope(body).id for body in bodies]
    assert len(ids) == len(set(ids))
    verdict = stage.verdict()
    assert verdict.problems(drained=False) == [], str(verdict)
    assert len(verdict.accepted) == jobs
