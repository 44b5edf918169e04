"""Wait for a fact, not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    ask: Callable[[], T],
    timeout: float = 20.0,
    *,
    every: float = 0.02,
    or_say: Callable[[], object] | str = "",
) -> T:
    """Ask until the answer is true and return it; past the deadline fail with what was known."""
    deadline = time.monotonic() + timeout
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            known = or_say() if callable(or_say) else or_say
            raise AssertionError(f"not within {timeout:g} s, last answer {answer!r} {known}")
        time.sleep(every)
