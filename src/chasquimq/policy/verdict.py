"""What becomes of a delivery: may it run, and if its run failed, what then. Pure."""

from __future__ import annotations

from chasquimq.config import MAX_MS, RetryOptions
from chasquimq.errors import RetryError, UnrecoverableError
from chasquimq.job import Again, Dead, Envelope, Reason
from chasquimq.policy.backoff import Jitter, backoff_ms

Verdict = Again | Dead


def runs_so_far(envelope: Envelope, deliveries: int) -> int:
    """A crash counts as a run: the server counted a delivery that no envelope knows of. A retry
    is a new entry, whose deliveries it counts anew, so what both say adds up."""
    return envelope.attempt + deliveries


def budget(envelope: Envelope, options: RetryOptions) -> int:
    own = envelope.retry.max_attempts if envelope.retry is not None else None
    return options.max_attempts if own is None else own


def judge(
    envelope: Envelope, ran: int, error: BaseException, options: RetryOptions, jitter: Jitter
) -> Verdict:
    """Decide between another run and the DLQ. `ran` counts the run that just failed."""
    if isinstance(error, UnrecoverableError):
        return Dead(ran, Reason.UNRECOVERABLE)
    if ran >= budget(envelope, options):
        return Dead(ran, Reason.RETRIES_EXHAUSTED)
    if isinstance(error, RetryError) and error.delay_ms is not None:
        return Again(ran, min(error.delay_ms, MAX_MS))
    spec = envelope.retry.backoff if envelope.retry is not None else None
    return Again(ran, backoff_ms(ran, spec, options, jitter))
