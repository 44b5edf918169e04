"""A job that kills its process: it is buried after its attempts, and its neighbours live on."""

from __future__ import annotations

import signal
from functools import partial

from tests.chaos.kit.fleet import Process
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.wait import eventually

LEASE_MS = 500
ATTEMPTS = 3


def supervise(stage: Stage, lease_ms: int, **more: object) -> list[int | None]:
    """Start a worker, and another one each time it has died, until nothing is left to do; answers
    how those that died ended."""
    ended: list[int | None] = []
    while not stage.is_drained():
        worker = stage.sentry(lease_ms, max_attempts=ATTEMPTS, **more)
        eventually(partial(_is_over, stage, worker), every=0.05, or_say=lambda: stage.fleet.errors)
        ended += [dead.exit_code for dead in stage.fleet.bury_the_dead()]
    return ended


def _is_over(stage: Stage, worker: Process) -> bool:
    return not worker.is_alive or stage.is_drained()


def crowd(neighbours: int, then: str) -> dict[str, dict[str, object]]:
    """Jobs of a moment each, and among the first that run together one that kills its process."""
    moment: dict[str, object] = {"sleep": 0.02, "always": True}
    jobs = {f"job-{n}": moment for n in range(neighbours)}
    return {"job-0": moment, "bad": {"then": then, "always": True}, **jobs}


def buried_alone(stage: Stage, neighbours: int) -> None:
    """I1, I3 and I5: exactly its attempts. Neighbours pay for the first crash, at which all of them
    ran, and those that were taken up again beside the killer for a second one, and then no more."""
    verdict = stage.verdict()
    problems = verdict.problems(
        duplicates_allowed=2 * neighbours, charged_only=True, max_attempts=ATTEMPTS
    )
    assert problems == [], str(verdict)
    assert verdict.scan.dead == ("bad",)
    assert verdict.runs["bad"] == ATTEMPTS
    assert verdict.completed == {f"job-{n}" for n in range(neighbours)}
    assert max(runs for job, runs in verdict.runs.items() if job != "bad") <= 3


def test_a_job_that_kills_its_worker_is_buried_and_its_neighbours_are_not(
    shared_stage: Stage,
) -> None:
    shared_stage.act(crowd(50, "exit"))
    assert supervise(shared_stage, LEASE_MS) == [1] * ATTEMPTS
    buried_alone(shared_stage, 50)


def test_a_job_that_fails_and_then_kills_has_its_attempts_and_no_more(
    shared_stage: Stage,
) -> None:
    """I5: one run is in its envelope, the others are known to the server alone."""
    shared_stage.act({"bad": {"then": "fail", "later": "exit"}})
    assert supervise(shared_stage, LEASE_MS) == [1] * (ATTEMPTS - 1)
    verdict = shared_stage.verdict()
    assert verdict.problems(duplicates_allowed=1, max_attempts=ATTEMPTS) == [], str(verdict)
    assert verdict.runs["bad"] == ATTEMPTS
    assert verdict.scan.dead == ("bad",)


def test_a_worker_with_a_lasting_name_goes_on_at_once_and_a_crash_loop_still_ends(
    shared_stage: Stage,
) -> None:
    """Restarted in place it does not wait for its leases to run out: that would take minutes."""
    shared_stage.act(crowd(20, "kill"))
    died = supervise(shared_stage, 60_000, consumer_id="in-place")
    assert died == [-signal.SIGKILL] * ATTEMPTS
    buried_alone(shared_stage, 20)
