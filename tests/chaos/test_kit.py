"""The kit as a whole tells careful workers from careless ones, on real servers."""

from __future__ import annotations

import signal
from functools import partial

import pytest

from chasquimq.server import Server
from tests.chaos.kit.fleet import OUR_WORKER, WEAK_WORKER, Fleet, Orders, Process
from tests.chaos.kit.handler import Behaviour
from tests.chaos.kit.history import Verdict, check
from tests.chaos.kit.ledger import Ledger, open_runs, tally
from tests.chaos.kit.scan import scan
from tests.chaos.kit.wait import eventually
from tests.chaos.kit.weak import add

LEASE_MS = 1000


def orders(server: Server, queue: str, ledger: Ledger, *weakness: str, **more: object) -> Orders:
    return Orders(
        server.url,
        queue,
        str(ledger.path),
        claim_min_idle_ms=LEASE_MS,
        weakness=weakness,
        **more,  # type: ignore[arg-type]
    )


def drained(server: Server, queue: str) -> None:
    eventually(lambda: scan(server.url, queue).drained, or_say=lambda: scan(server.url, queue))


def under_kill_9(
    server: Server, queue: str, ledger: Ledger, *weakness: str, module: str = WEAK_WORKER
) -> Verdict:
    """600 jobs; a worker dies in the middle of some, and two others take its place."""
    told = orders(server, queue, ledger, *weakness, behaviour=Behaviour(sleep_ms=5))
    add(server.url, queue, range(600), ledger)
    with Fleet(ledger) as fleet:
        assert fleet.kill_at_work(fleet.start(told, module=module))
        successors = fleet.start_many([told, told], module=module)
        drained(server, queue)
        eventually(lambda: not any(open_runs(ledger.path, one.pid) for one in successors))
    return check(ledger.path, scan(server.url, queue))


@pytest.mark.parametrize("module", [WEAK_WORKER, OUR_WORKER], ids=["a bare one", "ours"])
def test_a_careful_worker_loses_nothing(
    server: Server, queue_name: str, ledger: Ledger, module: str
) -> None:
    verdict = under_kill_9(server, queue_name, ledger, module=module)
    assert verdict.problems(duplicates_allowed=8, charged_only=True) == []
    assert len(verdict.completed) == 600


def test_a_worker_that_acks_first_loses_jobs(
    server: Server, queue_name: str, ledger: Ledger
) -> None:
    verdict = under_kill_9(server, queue_name, ledger, "ack_first")
    assert verdict.lost
    assert [problem[:7] for problem in verdict.problems()] == ["I1 lost"]


@pytest.mark.parametrize("module", [WEAK_WORKER, OUR_WORKER], ids=["one that trims", "ours"])
def test_only_a_worker_that_trims_loses_a_backlog(
    server: Server, queue_name: str, ledger: Ledger, module: str
) -> None:
    add(server.url, queue_name, range(600), ledger)
    with Fleet(ledger) as fleet:
        fleet.start(orders(server, queue_name, ledger, "trim"), module=module)
        drained(server, queue_name)
        eventually(lambda: tally(ledger.path)["end"] == tally(ledger.path)["start"])
    verdict = check(ledger.path, scan(server.url, queue_name))
    careless = module == WEAK_WORKER
    assert bool(verdict.lost) == careless
    assert [problem[:7] for problem in verdict.problems()] == (["I1 lost"] if careless else [])


@pytest.mark.parametrize(
    ("module", "weakness"),
    [(WEAK_WORKER, ()), (WEAK_WORKER, ("no_lease",)), (OUR_WORKER, ())],
    ids=["a bare one", "one without leases", "ours"],
)
def test_only_a_worker_without_leases_overlaps_itself(
    server: Server, queue_name: str, ledger: Ledger, module: str, weakness: tuple[str, ...]
) -> None:
    """Ten jobs that take two leases each, on two workers."""
    behaviour = Behaviour(sleep_ms=2 * LEASE_MS)
    told = orders(server, queue_name, ledger, *weakness, behaviour=behaviour)
    add(server.url, queue_name, range(10), ledger)
    with Fleet(ledger) as fleet:
        fleet.start_many([told, told], module=module)
        drained(server, queue_name)
    verdict = check(ledger.path, scan(server.url, queue_name))
    assert kinds(verdict.problems(charged_only=True)) == ({"I3", "I4"} if weakness else set())
    assert bool(verdict.uncharged) == bool(weakness)


def test_a_worker_that_dies_between_handler_and_ack_runs_the_job_again(
    server: Server, queue_name: str, ledger: Ledger
) -> None:
    told = orders(server, queue_name, ledger, concurrency=1, behaviour=Behaviour(kill_on=3))
    add(server.url, queue_name, range(6), ledger)
    with Fleet(ledger) as fleet:
        doomed = fleet.start(told, module=WEAK_WORKER)
        eventually(partial(_is_gone, doomed))
        assert doomed.exit_code == -signal.SIGKILL
        assert fleet.bury_the_dead() == [doomed]
        fleet.start(told, module=WEAK_WORKER)
        drained(server, queue_name)
    verdict = check(ledger.path, scan(server.url, queue_name))
    assert verdict.duplicated == {"job-3": 2}
    assert verdict.problems(duplicates_allowed=1, charged_only=True) == []


def test_a_worker_that_exits_in_the_middle_of_a_job_is_seen(
    server: Server, queue_name: str, ledger: Ledger
) -> None:
    behaviour = Behaviour(exit_on=2, times=2)
    told = orders(server, queue_name, ledger, concurrency=1, behaviour=behaviour)
    add(server.url, queue_name, range(4), ledger)
    with Fleet(ledger) as fleet:
        for _ in range(2):
            doomed = fleet.start(told, module=WEAK_WORKER)
            eventually(partial(_is_gone, doomed))
            assert doomed.exit_code == 1
        fleet.start(told, module=WEAK_WORKER)
        drained(server, queue_name)
    verdict = check(ledger.path, scan(server.url, queue_name))
    assert verdict.runs["job-2"] == 3
    assert kinds(verdict.problems(duplicates_allowed=1, charged_only=True, max_attempts=2)) == {
        "I5"
    }


def kinds(problems: list[str]) -> set[str]:
    return {problem[:2] for problem in problems}


def _is_gone(process: Process) -> bool:
    return not process.is_alive


def test_a_process_that_cannot_start_shows_why(ledger: Ledger) -> None:
    nowhere = Orders("redis://127.0.0.1:1/0", "q", str(ledger.path))
    with Fleet(ledger) as fleet, pytest.raises(AssertionError, match="No module named"):
        fleet.start(nowhere, module="tests.chaos.kit.no_such_program")


def test_nothing_of_a_fleet_outlives_it(server: Server, queue_name: str, ledger: Ledger) -> None:
    told = orders(server, queue_name, ledger)
    fleet = Fleet(ledger)
    members = fleet.start_many([told, told, told], module=WEAK_WORKER)
    assert fleet.alive == members
    with pytest.raises(RuntimeError, match="the test broke"), fleet:
        raise RuntimeError("the test broke")
    assert not fleet.alive
    assert tally(ledger.path)["dead"] == 3
