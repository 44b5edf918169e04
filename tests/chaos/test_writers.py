"""Events never hold up acks, nor handlers: what they cannot have is dropped, and counted.

The settler writes both over one connection, events around acks.
"""

from __future__ import annotations

from pathlib import Path

from chasquimq.config import EventOptions
from chasquimq.engine.holdings import MAX_AHEAD, UNACKED
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.wait import eventually

LEASE_MS = 30_000
MEGABYTE = 1 << 20


def test_events_that_are_refused_delay_no_ack(shared_stage: Stage) -> None:
    """I6: the events key is of another type, so that each event of each group is an error."""
    stage = shared_stage
    stage.redis.set(stage.keys.events, "in the way")
    worker = stage.sentry(LEASE_MS, options={"backoff": {"kind": "fixed", "delay_ms": 1}})
    stage.act({f"job-{n}": {"then": "fail"} if n % 10 == 0 else {} for n in range(500)})
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert len(verdict.completed) == 500
    assert stage.redis.get(stage.keys.events) == b"in the way"
    eventually(lambda: stage.health(worker)["healthy"] and stage.health(worker)["held"] == 0)
    # Two for each of 550 runs, and one for each retry, at least.
    eventually(lambda: stage.counters(worker)["events_dropped"] >= 2 * 550 + 50)


def test_events_that_pile_up_are_dropped_and_acks_land_when_the_writer_flows_again(
    lone_stage: Stage,
) -> None:
    """I3, I6 and I10. The connection that writes is held, and only that one. Handlers go on until
    as many have ended as may wait for their acks; events beyond their bound are dropped. What is
    bounded is counted in the engine, alike in all dialects: one is enough."""
    stage, places = lone_stage, 5_000
    most = places + MAX_AHEAD + UNACKED
    jobs = most + 500
    with stage.proxy() as proxy:
        stage.act({"first": {}})
        worker = stage.sentry(LEASE_MS, url=proxy.url, concurrency=places)
        stage.drained()  # acked, too: what is held from now on is none of its
        proxy.hold(stage.keys.events)
        before = resident(worker.pid)
        stage.act({f"job-{n}": {} for n in range(jobs)})
        eventually(lambda: stage.health(worker)["held"] >= places + UNACKED)
        eventually(lambda: stage.ended() >= places + UNACKED)
        assert stage.ended() <= most + 1
        assert proxy.held_connections == 1
        assert stage.redis.xlen(stage.keys.stream) == jobs  # not one is acked
        surplus = 2 * (places + UNACKED) - EventOptions().max_waiting  # two for each job
        eventually(lambda: stage.counters(worker)["events_dropped"] >= surplus)
        settler = stage.health(worker)["connections"]["settler"]
        assert (settler["up"], settler["reconnects"]) == (True, 0)  # it did not break meanwhile
        assert resident(worker.pid) - before < 100 * MEGABYTE
        proxy.heal()
        stage.drained()
        eventually(lambda: stage.health(worker)["healthy"])
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert len(verdict.completed) == jobs + 1
    events = int(stage.redis.xlen(stage.keys.events))
    assert 0 < events < 2 * (jobs + 1)


def resident(pid: int) -> int:
    """The memory a process has, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096
