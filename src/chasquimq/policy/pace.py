"""So many per second, evenly. Pure: the clock comes in, how long to wait goes out."""

from __future__ import annotations

from chasquimq.errors import ArgumentError, ConfigError

SLOWEST, FASTEST = 1e-6, 1e9  # per second

STEP_S = 0.1  # a batch is what this much time is good for, and at least one


class Pace:
    def __init__(self, per_second: float | None, largest: int) -> None:
        """None: as fast as it goes. `largest` is the most that a batch may be."""
        self.batch = largest
        self._each_s = 0.0
        self._slack_s = STEP_S
        self._due_s: float | None = None
        if per_second is not None:
            _check(per_second)
            self.batch = max(1, min(largest, int(per_second * STEP_S)))
            self._each_s = 1 / per_second
            # So much lost time is made up for: sleeps that end late must not slow the pace, and
            # a long pause must not be followed by a flood.
            self._slack_s = max(STEP_S, self.batch * self._each_s)

    def wait_s(self, now_s: float) -> float:
        """How long until the next batch may go."""
        if self._due_s is None:
            self._due_s = now_s
        return max(0.0, self._due_s - now_s)

    def took(self, count: int, now_s: float) -> None:
        """So many have gone: the next batch waits until they are paid for."""
        due_s = now_s if self._due_s is None else max(self._due_s, now_s - self._slack_s)
        self._due_s = due_s + count * self._each_s


def _check(rate: object) -> None:
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise ArgumentError(f"rate is a number of jobs per second, got {rate!r:.80}")
    if not SLOWEST <= rate <= FASTEST:
        raise ConfigError(f"rate must be from {SLOWEST:g} to {FASTEST:g} per second, got {rate}")
