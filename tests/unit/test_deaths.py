"""What a listener remembers of jobs that died, from the events alone."""

from __future__ import annotations

from chasquimq.engine.listener import Deaths
from chasquimq.wire import EventRow


def told(*events: tuple[str, str | None, dict[str, int | str]], limit: int = 10) -> Deaths:
    deaths = Deaths(limit)
    for name, job_id, fields in events:
        deaths.hear(EventRow(name, job_id, "", fields))
    return deaths


def reason_of(deaths: Deaths, job_id: str) -> tuple[str, int, str | None] | None:
    error = deaths.of(job_id)
    return None if error is None else (error.reason, error.attempts, error.error)


FAILED = {"attempt": 1, "reason": "no such user", "duration_us": 5}
DEAD: dict[str, int | str] = {"attempt": 2, "reason": "retries_exhausted"}


def test_a_death_carries_the_last_failure() -> None:
    again = {**FAILED, "reason": "still none"}
    deaths = told(("failed", "a", FAILED), ("failed", "a", again), ("dlq", "a", DEAD))
    assert reason_of(deaths, "a") == ("retries_exhausted", 2, "still none")
    assert reason_of(deaths, "b") is None


def test_a_death_of_which_no_failure_was_seen_has_no_error() -> None:
    deaths = told(("failed", "b", FAILED), ("dlq", "a", DEAD))
    assert reason_of(deaths, "a") == ("retries_exhausted", 2, None)


def test_a_failure_is_no_death() -> None:
    assert reason_of(told(("failed", "a", FAILED), ("retry-scheduled", "a", {})), "a") is None


def test_whoever_runs_again_has_not_died() -> None:
    for event in ("active", "completed"):
        assert reason_of(told(("dlq", "a", DEAD), (event, "a", {})), "a") is None


def test_what_else_happens_changes_nothing() -> None:
    """A promoter may tell of a retry's way to the stream after the retry has died."""
    for event in ("waiting", "failed", "retry-scheduled", "drained"):
        assert reason_of(told(("dlq", "a", DEAD), (event, "a", {})), "a") is not None


def test_a_second_death_counts() -> None:
    later: dict[str, int | str] = {"attempt": 1, "reason": "unrecoverable"}
    deaths = told(("dlq", "a", DEAD), ("active", "a", {}), ("dlq", "a", later))
    assert reason_of(deaths, "a") == ("unrecoverable", 1, None)


def test_events_of_no_job_and_fields_of_other_programs_do_no_harm() -> None:
    odd: dict[str, int | str] = {"attempt": "many"}
    deaths = told(("dlq", None, DEAD), ("drained", None, {}), ("dlq", "a", odd), ("", "a", {}))
    assert reason_of(deaths, "a") == ("", 0, None)


def test_memory_is_bounded_and_the_newest_stay() -> None:
    events = [(name, f"job-{n}", fields) for n in range(50) for name, fields in PAIR]
    deaths = told(
        *events, ("failed", "x", FAILED), *[("failed", f"y-{n}", FAILED) for n in range(9)]
    )
    remembered = [n for n in range(50) if deaths.of(f"job-{n}")]
    assert remembered == list(range(40, 50))
    assert len(deaths._deaths) == 10 and len(deaths._errors) == 10


PAIR: list[tuple[str, dict[str, int | str]]] = [("failed", FAILED), ("dlq", DEAD)]
