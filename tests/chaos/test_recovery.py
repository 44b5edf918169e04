"""After a crash jobs are taken up side by side, and only what may have ended its worker pays."""

from __future__ import annotations

import pytest

from tests.chaos.kit.history import Verdict
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.wait import eventually
from tests.chaos.test_crashes import ATTEMPTS, LEASE_MS, supervise


def killed(stage: Stage, innocents: int, charged: int) -> Verdict:
    """The killer has its attempts and no more; nobody else pays more than `charged` times."""
    verdict = stage.verdict()
    problems = verdict.problems(
        duplicates_allowed=charged * innocents, charged_only=True, max_attempts=ATTEMPTS
    )
    assert problems == [], str(verdict)
    assert verdict.scan.dead == ("bad",)
    assert verdict.runs["bad"] == ATTEMPTS
    assert len(verdict.completed) == innocents
    assert max(runs for job, runs in verdict.runs.items() if job != "bad") <= 1 + charged
    return verdict


@pytest.mark.parametrize(
    ("concurrency", "before", "sleep"), [(1, 0, 0.02), (4, 0, 0.02), (10, 3, 0.1)]
)
def test_a_killer_beside_jobs_that_were_only_read_ahead(
    shared_stage: Stage, concurrency: int, before: int, sleep: float
) -> None:
    """Fast jobs have the worker read ahead. The killer dies long before any lease is renewed."""
    moment = {"sleep": sleep, "always": True}
    warm: dict[str, dict[str, object]] = {f"warm-{n}": {} for n in range(400)}
    first = {f"before-{n}": moment for n in range(before)}
    ahead = {f"ahead-{n}": moment for n in range(99 - before)}
    bad = {"bad": {"sleep": 0.05, "then": "kill", "always": True}}
    shared_stage.act({**warm, **first, **bad, **ahead})
    supervise(shared_stage, LEASE_MS, concurrency=concurrency)
    killed(shared_stage, 499, 1)


def test_a_killer_that_never_awaits_is_counted_among_jobs_whose_acks_were_not_written_yet(
    shared_stage: Stage,
) -> None:
    """It ends its process in the same turn of the loop in which others before it have ended."""
    jobs: dict[str, dict[str, object]] = {f"job-{n}": {} for n in range(300)}
    bad = {"bad": {"then": "exit", "always": True}}
    shared_stage.act({**jobs, **bad, **{f"next-{n}": {} for n in range(300)}})
    supervise(shared_stage, LEASE_MS, concurrency=1)
    killed(shared_stage, 600, 2)


def test_a_long_job_among_those_of_a_crash_holds_up_no_other(shared_stage: Stage) -> None:
    stage = shared_stage
    short = {"sleep": 0.3, "always": True}
    stage.act({"long": {"gate": "long", "always": True}, **{f"job-{n}": short for n in range(20)}})
    first = stage.sentry(LEASE_MS, concurrency=50)
    eventually(lambda: stage.health(first).get("running") == 21)
    stage.fleet.kill(first)
    second = stage.sentry(LEASE_MS, concurrency=50)
    eventually(lambda: len(stage.verdict().completed) == 20, or_say=lambda: stage.fleet.errors)
    eventually(lambda: stage.health(second).get("running") == 1)
    assert stage.verdict().completed == {f"job-{n}" for n in range(20)}
    stage.open("long")
    eventually(stage.is_drained)
    verdict = stage.verdict()
    assert verdict.problems(duplicates_allowed=21, charged_only=True) == [], str(verdict)
    assert set(verdict.runs.values()) <= {1, 2}
