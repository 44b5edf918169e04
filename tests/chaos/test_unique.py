"""Ids that are unique until done, with several processes that add, run and die."""

from __future__ import annotations

import time
from collections import Counter

from chasquimq import wire
from tests.chaos.kit.fleet import Orders
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.wait import eventually

LEASE_MS = 600
KEYS = 12
SECONDS = 4.0  # at the least
PATIENCE_S = 60.0


def live(stage: Stage) -> Counter[str]:
    """Everything that waits, runs or is delayed, at one moment."""
    at_once = stage.redis.pipeline(transaction=True)
    at_once.xrange(stage.keys.stream)
    at_once.zrange(stage.keys.delayed, 0, -1)
    entries, members = at_once.execute()
    bodies = [fields[b"d"] for _, fields in entries]
    bodies += [wire.split_member(member)[1] for member in members]
    return Counter(wire.unpack_envelope(body).id for body in bodies)


def every_id_came_twice(stage: Stage) -> bool:
    accepted = Counter(fact.job for fact in stage.facts("accepted"))
    return len(accepted) == KEYS and min(accepted.values()) > 1


def test_there_is_never_more_than_one_live_job_per_id(shared_stage: Stage) -> None:
    stage = shared_stage
    first, _ = stage.sentries(2, LEASE_MS)
    told = {"url": stage.server.url, "dialect": stage.server.forced_dialect}
    orders = [
        Orders(
            queue=stage.queue,
            ledger=str(stage.ledger.path),
            options={"keys": KEYS, "seed": seed},
            **told,  # type: ignore[arg-type]
        )
        for seed in range(3)
    ]
    adders = stage.fleet.start_many(orders, module="tests.chaos.kit.adder")
    looks, killed, began = 0, False, time.monotonic()
    while not (killed and time.monotonic() > began + SECONDS and every_id_came_twice(stage)):
        assert time.monotonic() < began + PATIENCE_S, "an id was never freed"
        for job_id, count in live(stage).items():
            assert count == 1, f"{count} live jobs {job_id!r}"
        looks += 1
        if looks == 100:
            stage.fleet.kill(first)  # its jobs go on elsewhere when their leases are over
            stage.sentry(LEASE_MS)
            killed = True
    stage.open("enough")
    for adder in adders:
        eventually(lambda one=adder: not one.is_alive, or_say=lambda: stage.fleet.errors)
    stage.drained()
    accepted = Counter(fact.job for fact in stage.facts("accepted"))
    ended = Counter(fact.job for fact in stage.facts("end"))
    assert stage.facts("refused"), "nobody ever came second: nothing was tried"
    # Every accepted job ran to its end, some twice: what the dead one held. Then its id is free.
    assert all(ended[job] >= count for job, count in accepted.items())
    markers = [stage.redis.get(stage.keys.unique(job)) or b"-" for job in accepted]
    assert all(marker.startswith(b"-") for marker in markers)
