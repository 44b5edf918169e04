"""Two of our workers and two of the reference's drain one queue while both kinds are killed."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.kit.fleet import Fleet, Orders, Process
from tests.chaos.kit.handler import Behaviour
from tests.chaos.kit.history import check
from tests.chaos.kit.ledger import Ledger, tally
from tests.chaos.kit.scan import scan
from tests.chaos.kit.wait import eventually
from tests.interop.conftest import MakeSide
from tests.interop.reference import interpreter
from tests.interop.side import Side
from tests.servers import DialectServer

KINDS = ["ours", "reference", "ours", "reference"]
PORTION = 2_500
CONCURRENCY = 10
# A reference worker that is killed takes with it what it runs, what it has queued (twice its
# concurrency) and the batch of 64 it was queueing. Ours holds less.
AT_RISK = 64 + 3 * CONCURRENCY


def test_a_mixed_fleet_loses_nothing_under_kill_9(
    native_server: DialectServer, queue_name: str, side: MakeSide, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger")
    orders = Orders(
        native_server.url,
        queue_name,
        str(ledger.path),
        concurrency=CONCURRENCY,
        claim_min_idle_ms=1500,
        behaviour=Behaviour(sleep_ms=20, fail_every=500),
    )

    with Fleet(ledger) as fleet:
        crew = [start(fleet, kind, orders) for kind in KINDS]
        for victim, kind in enumerate(KINDS):
            # Work of its own for each kill: however slowly workers start here, the others
            # cannot be done with it before this one is caught.
            enqueue(side("ours"), PORTION // 2, ledger)
            enqueue(side("reference"), PORTION // 2, ledger)
            assert fleet.kill_at_work(crew[victim])
            crew[victim] = start(fleet, kind, orders)
        eventually(
            lambda: scan(native_server.url, queue_name).drained,
            40,
            every=0.2,
            or_say=lambda: tally(ledger.path),
        )
        assert len(fleet.alive) == len(KINDS)

    verdict = check(ledger.path, scan(native_server.url, queue_name))
    assert verdict.problems(duplicates_allowed=AT_RISK * len(KINDS)) == [], str(verdict)
    assert len(verdict.accepted) == len(verdict.completed) == PORTION * len(KINDS)


def enqueue(side: Side, jobs: int, ledger: Ledger) -> None:
    for job in side.add_bulk([{"name": "mixed", "data": number} for number in range(jobs)]):
        ledger.accepted(job.id)


def start(fleet: Fleet, kind: str, orders: Orders) -> Process:
    return fleet.start(orders, python=None if kind == "ours" else str(interpreter()))
