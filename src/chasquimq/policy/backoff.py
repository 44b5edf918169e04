"""How long to wait before run number `retry + 1`. Pure: the dice come in as an argument."""

from __future__ import annotations

from collections.abc import Callable

from chasquimq.config import MAX_MS, RetryOptions
from chasquimq.job import BackoffSpec

Jitter = Callable[[int], int]  # jitter(n) returns 0..n-1


def backoff_ms(retry: int, spec: BackoffSpec | None, options: RetryOptions, jitter: Jitter) -> int:
    """`retry` is 1 for the first retry. The jitter comes on top of the cap, as on the wire's
    other readers, so that capped jobs spread too."""
    if spec is None:
        spec = BackoffSpec("exponential", options.delay_ms, multiplier=options.multiplier)
    spread = options.jitter_ms if spec.jitter_ms is None else spec.jitter_ms
    return _base_ms(retry, spec, options) + (jitter(spread) if spread > 0 else 0)


def _base_ms(retry: int, spec: BackoffSpec, options: RetryOptions) -> int:
    if spec.kind == "fixed":
        # A fixed delay says itself how long it wants to be; only its own cap cuts it.
        cap = MAX_MS if spec.max_delay_ms is None else spec.max_delay_ms
        return min(spec.delay_ms, cap)
    cap = options.max_delay_ms if spec.max_delay_ms is None else spec.max_delay_ms
    multiplier = options.multiplier if spec.multiplier is None else spec.multiplier
    try:
        base = spec.delay_ms * multiplier ** (retry - 1)
    except OverflowError:
        return cap
    # Not `min(base, cap)`: a NaN from a foreign multiplier compares false and gets the cap.
    return int(max(base, 0)) if base <= cap else cap
