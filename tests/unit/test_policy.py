"""Decisions: how long to wait, whether to run again, whether there is room."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.config import MAX_MS, RetryOptions
from chasquimq.errors import RetryError, UnrecoverableError
from chasquimq.job import Again, BackoffSpec, Dead, Envelope, Reason, RetryOverride
from chasquimq.policy.admission import fits
from chasquimq.policy.backoff import backoff_ms
from chasquimq.policy.verdict import budget, judge, runs_so_far

WORKER = RetryOptions()  # 100 ms, doubling up to 30 s, jitter below 100 ms
CALM = RetryOptions(jitter_ms=0)
fixed, exponential = BackoffSpec.fixed, BackoffSpec.exponential


def least(n: int) -> int:
    """The least that `jitter(n)` may return; it is never asked for a jitter of 0."""
    assert n > 0
    return 0


def most(n: int) -> int:
    assert n > 0
    return n - 1


WAITS = [  # (the job's own backoff, which retry, waits at least, at the most)
    (None, 1, 100, 199),
    (None, 2, 200, 299),
    (None, 5, 1_600, 1_699),
    (None, 9, 25_600, 25_699),
    (None, 10, 30_000, 30_099),  # the cap; the jitter comes on top of it
    (None, 4_000_000_000, 30_000, 30_099),
    (fixed(50), 1, 50, 149),
    (fixed(50), 7, 50, 149),
    (fixed(0), 1, 0, 99),
    (fixed(50, jitter_ms=0), 3, 50, 50),
    (fixed(50, jitter_ms=1), 3, 50, 50),
    (fixed(60_000), 1, 60_000, 60_099),  # deliberately different: the reference cuts to 30 s
    (fixed(60_000, jitter_ms=0), 1, 60_000, 60_000),
    (BackoffSpec("fixed", 60_000, 45_000, None, 0), 1, 45_000, 45_000),
    (BackoffSpec("fixed", 5, None, 100.0, 0), 3, 5, 5),
    (BackoffSpec("fixed", 2**64 - 1, None, None, 0), 1, MAX_MS, MAX_MS),
    (exponential(250, multiplier=3.0, max_ms=10_000, jitter_ms=50), 1, 250, 299),
    (exponential(250, multiplier=3.0, max_ms=10_000, jitter_ms=50), 3, 2_250, 2_299),
    (exponential(250, multiplier=3.0, max_ms=10_000, jitter_ms=50), 5, 10_000, 10_049),
    (exponential(100, max_ms=60_000, jitter_ms=0), 11, 60_000, 60_000),
    (exponential(100, jitter_ms=0), 11, 30_000, 30_000),
    (exponential(3, multiplier=1.5, jitter_ms=0), 2, 4, 4),  # 4.5 is cut, not rounded
    (exponential(100, multiplier=0.5, jitter_ms=0), 3, 25, 25),
    (exponential(100, multiplier=0.0, jitter_ms=0), 1, 100, 100),
    (exponential(100, multiplier=0.0, jitter_ms=0), 2, 0, 0),
    (BackoffSpec("exponential", 100, None, None, 0), 3, 400, 400),  # the worker's multiplier
    (BackoffSpec("of tomorrow", 100, None, 2.0, 0), 3, 400, 400),  # unknown: exponential
    (exponential(100, multiplier=math.nan, jitter_ms=0), 2, 30_000, 30_000),
    (exponential(100, multiplier=math.nan, max_ms=7, jitter_ms=0), 2, 7, 7),
    (exponential(100, multiplier=math.inf, jitter_ms=0), 2, 30_000, 30_000),
    (exponential(0, multiplier=math.inf, jitter_ms=0), 2, 30_000, 30_000),
    (exponential(100, multiplier=-2.0, jitter_ms=0), 2, 0, 0),
    (exponential(100, multiplier=-2.0, jitter_ms=0), 3, 400, 400),
    (exponential(100, multiplier=1e308, jitter_ms=0), 3, 30_000, 30_000),
]


@pytest.mark.parametrize(("spec", "retry", "low", "high"), WAITS)
def test_a_retry_waits_as_documented(
    spec: BackoffSpec | None, retry: int, low: int, high: int
) -> None:
    assert backoff_ms(retry, spec, WORKER, least) == low
    assert backoff_ms(retry, spec, WORKER, most) == high


def test_the_worker_sets_the_curve_for_jobs_that_bring_none() -> None:
    options = RetryOptions(delay_ms=10, multiplier=3.0, max_delay_ms=80, jitter_ms=0)
    assert [backoff_ms(n, None, options, most) for n in (1, 2, 3, 4)] == [10, 30, 80, 80]


@given(
    retry=st.integers(1, 2**32),
    kind=st.sampled_from(["fixed", "exponential", "unknown"]),
    delay=st.integers(0, 2**64 - 1),
    cap=st.none() | st.integers(0, 2**64 - 1),
    multiplier=st.none() | st.floats(),
    jitter=st.none() | st.integers(0, 2**64 - 1),
)
def test_whatever_the_wire_brings_there_is_a_wait(
    retry: int,
    kind: str,
    delay: int,
    cap: int | None,
    multiplier: float | None,
    jitter: int | None,
) -> None:
    wait_ms = backoff_ms(retry, BackoffSpec(kind, delay, cap, multiplier, jitter), WORKER, most)
    assert isinstance(wait_ms, int)
    assert 0 <= wait_ms <= 2 * 2**64


# -- verdicts ------------------------------------------------------------------------------------


def job(attempt: int = 0, attempts: int | None = None, spec: BackoffSpec | None = None) -> Envelope:
    retry = None if attempts is None and spec is None else RetryOverride(attempts, spec)
    return Envelope("a", b"", 0, attempt, retry)


RUNS = [  # (attempt in the envelope, deliveries the server counted before, runs so far)
    (0, 0, 0),
    (0, 1, 1),  # a crash counts as a run
    (3, 0, 3),  # a retry is a new entry: the server counts anew
    (3, 1, 4),  # ... and what it counts comes on top
    (3, 5, 8),
]


@pytest.mark.parametrize(("attempt", "deliveries", "runs"), RUNS)
def test_failures_and_crashes_are_runs(attempt: int, deliveries: int, runs: int) -> None:
    assert runs_so_far(job(attempt), deliveries) == runs


@pytest.mark.parametrize(
    ("attempts", "expected"), [(None, 25), (1, 1), (0, 0), (2**32 - 1, 2**32 - 1)]
)
def test_a_job_may_bring_its_own_budget(attempts: int | None, expected: int) -> None:
    assert budget(job(attempts=attempts), WORKER) == expected
    assert budget(job(attempts=attempts, spec=fixed(5)), WORKER) == expected


BOOM, NEVER = RuntimeError("boom"), UnrecoverableError("never")
VERDICTS = [  # (job, runs including the failed one, its error, what follows)
    (job(), 1, BOOM, Again(1, 100)),
    (job(), 2, BOOM, Again(2, 200)),
    (job(), 24, BOOM, Again(24, 30_000)),
    (job(), 25, BOOM, Dead(25, Reason.RETRIES_EXHAUSTED)),
    (job(attempts=1), 1, BOOM, Dead(1, Reason.RETRIES_EXHAUSTED)),
    (job(attempts=3), 2, BOOM, Again(2, 200)),
    (job(attempts=3), 3, BOOM, Dead(3, Reason.RETRIES_EXHAUSTED)),
    (job(attempts=3), 9, BOOM, Dead(9, Reason.RETRIES_EXHAUSTED)),
    (job(attempts=0), 1, BOOM, Dead(1, Reason.RETRIES_EXHAUSTED)),
    (job(attempts=100), 30, BOOM, Again(30, 30_000)),
    (job(spec=fixed(7)), 4, BOOM, Again(4, 7)),
    (job(), 1, NEVER, Dead(1, Reason.UNRECOVERABLE)),
    (job(attempts=1), 1, NEVER, Dead(1, Reason.UNRECOVERABLE)),
    (job(), 1, RetryError("later", delay=5_000), Again(1, 5_000)),
    (job(), 1, RetryError("now", delay=0), Again(1, 0)),
    (job(spec=fixed(7)), 2, RetryError("later", delay=99_999), Again(2, 99_999)),
    (job(spec=fixed(7)), 2, RetryError("as usual"), Again(2, 7)),
    (job(attempts=2), 2, RetryError("later", delay=5), Dead(2, Reason.RETRIES_EXHAUSTED)),
    (job(), 1, RetryError("never", delay=10**400), Again(1, MAX_MS)),  # Redis would say `inf`
    (job(), 1, KeyboardInterrupt(), Again(1, 100)),
]


@pytest.mark.parametrize(("envelope", "ran", "error", "expected"), VERDICTS)
def test_a_failed_run_is_judged(
    envelope: Envelope, ran: int, error: BaseException, expected: Again | Dead
) -> None:
    assert judge(envelope, ran, error, CALM, most) == expected


def test_a_class_that_only_has_the_name_is_an_ordinary_failure() -> None:
    lookalike = type("UnrecoverableError", (RuntimeError,), {})
    assert judge(job(), 1, lookalike(), CALM, most) == Again(1, 100)


@given(attempts=st.integers(1, 40), worker=st.integers(1, 40), own=st.booleans())
def test_a_job_that_always_fails_runs_exactly_its_budget(
    attempts: int, worker: int, own: bool
) -> None:
    options = RetryOptions(max_attempts=worker, jitter_ms=0)
    envelope = job(attempts=attempts if own else None)
    runs = 0
    while True:
        runs = runs_so_far(envelope, 0) + 1
        verdict = judge(envelope, runs, BOOM, options, most)
        if isinstance(verdict, Dead):
            break
        envelope = Envelope("a", b"", 0, verdict.attempt, envelope.retry)
    assert runs == (attempts if own else worker)


@pytest.mark.parametrize(
    ("reason", "code"),
    list(zip(Reason, ["CMQ-020", "CMQ-021", "CMQ-022", "CMQ-023", "CMQ-024"], strict=True)),
)
def test_a_reason_has_its_code(reason: Reason, code: str) -> None:
    assert reason.code == code


# -- admission -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "sent", "wanted", "limit", "expected"),
    [
        (0, 0, 1, 1, True),
        (0, 0, 2, 1, False),
        (9, 0, 1, 10, True),
        (10, 0, 1, 10, False),
        (8, 1, 1, 10, True),
        (8, 2, 1, 10, False),
        (15, 0, 1, 10, False),
    ],
)
def test_jobs_come_in_while_there_is_room(
    known: int, sent: int, wanted: int, limit: int, expected: bool
) -> None:
    assert fits(known, sent, wanted, limit) is expected
