"""The server freezes, or nothing reaches it, for longer than leases last, under workers with jobs.

When it is back everybody's jobs look abandoned; their owners live, and nobody takes them over.
That it is killed and comes back is in `test_scenarios.py`.
"""

from __future__ import annotations

import time

from chasquimq import lua
from tests.chaos.kit.dice import vary_s
from tests.chaos.kit.fleet import Process
from tests.chaos.kit.ledger import open_runs
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.wait import eventually

LEASE_MS = 500
LEASE_S = LEASE_MS / 1000
RENEWAL = lua.SHA["renew"]
CLAIM = lua.SHA["claim"]


def at_work(stage: Stage, jobs: int, **more: object) -> list[Process]:
    """Two workers that run jobs until the gate `over` opens, and three that have nothing to do.
    All would take over what is abandoned, and look for it once in a lease, not at the same time."""
    crew = stage.sentries(2, LEASE_MS, concurrency=jobs // 2, **more)
    stage.act({f"job-{n}": {"gate": "over"} for n in range(jobs)})
    stage.started(jobs)
    assert [open_runs(stage.ledger.path, one.pid) for one in crew] == [jobs // 2] * 2
    for _ in range(3):
        crew.append(stage.sentry(LEASE_MS, **more))
        time.sleep(LEASE_S / 4)
    time.sleep(1.3 * LEASE_S)  # their renewals have been without a gap for a lease
    return crew


def one_run_each(stage: Stage, crew: list[Process], jobs: int) -> None:
    """I1, I3 and I4, after time enough for a worker to take over what looks abandoned."""
    eventually(lambda: all(stage.health(one)["healthy"] for one in crew))
    time.sleep(2.5 * LEASE_S)
    stage.open("over")
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert verdict.runs == {f"job-{n}": 1 for n in range(jobs)}
    assert [stage.counters(one)["leases_lost"] for one in crew] == [0] * len(crew)


def test_a_server_frozen_for_two_leases_costs_no_second_run(stage: Stage) -> None:
    crew = at_work(stage, 6)
    stage.server.server.pause()
    time.sleep(vary_s("away", 2, 1.2, 4) * LEASE_S)
    stage.server.server.resume()
    one_run_each(stage, crew, 6)


def test_a_network_that_is_away_for_two_leases_costs_no_second_run(lone_stage: Stage) -> None:
    """What was sent meanwhile arrives late, as it does on a network. One dialect is enough: how
    claims are held back is the same in all."""
    stage = lone_stage
    with stage.proxy() as proxy:
        crew = at_work(stage, 6, url=proxy.url)
        proxy.black_hole()
        time.sleep(vary_s("away", 2, 1.2, 4) * LEASE_S)
        proxy.heal()
        one_run_each(stage, crew, 6)


def test_a_claim_that_was_on_its_way_when_the_server_froze_takes_nothing(stage: Stage) -> None:
    """I4: it was sent in good faith, and is executed two leases later, ahead of any renewal."""
    stage.redis.script_load(lua.SOURCES["claim"])  # or the answer is only that it is not known
    with stage.proxy() as proxy:
        stage.act({"job-0": {"gate": "over"}})
        owner = stage.sentry(LEASE_MS, url=proxy.url, consumer_id="owner")
        stage.started(1)
        rival = stage.sentry(LEASE_MS, url=proxy.url, consumer_id="rival")
        claim = proxy.hold(CLAIM, "rival")
        owner.pause()  # until it looks dead
        eventually(lambda: claim.seen)
        owner.resume()
        renewal = proxy.watch(RENEWAL, "owner")
        eventually(lambda: renewal.seen, every=0.002)
        stage.server.server.pause()
        proxy.heal()  # the claim is the next that reaches the server
        time.sleep(2 * LEASE_S)
        stage.server.server.resume()
        one_run_each(stage, [owner, rival], 1)
