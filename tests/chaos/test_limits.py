"""Time limits with two worker processes: a run that hangs fails in time, and runs once more."""

from __future__ import annotations

from tests.chaos.kit.stage import Stage

LEASE_MS = 500
JOBS = 6


def test_runs_that_hang_fail_in_time_and_run_once_more_without_overlap(shared_stage: Stage) -> None:
    """I4, I5 and I6. Their handlers obey cancellation, so that a run has ended before the next."""
    stage = shared_stage
    options = {"time_limit_ms": 300, "backoff": {"kind": "fixed", "delay_ms": 1, "jitter_ms": 0}}
    stage.sentries(2, LEASE_MS, concurrency=JOBS // 2, options=options)
    stage.act({f"job-{n}": {"gate": "never"} for n in range(JOBS)})
    stage.started(2 * JOBS)
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems(max_attempts=2) == [], str(verdict)
    assert verdict.runs == {f"job-{n}": 2 for n in range(JOBS)}
    assert len(verdict.completed) == JOBS
    assert sorted(fact.job for fact in stage.facts("lost")) == sorted(verdict.accepted)
    failed = stage.events("failed")
    assert sorted(str(row.job_id) for row in failed) == sorted(verdict.accepted)
    assert all("longer than 300 ms" in str(row.fields["reason"]) for row in failed)
    assert {row.fields["attempt"] for row in stage.events("completed")} == {2}
