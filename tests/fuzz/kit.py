"""What a target is, and when one takes too long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

Check = Callable[[bytes], None]  # raises where the contract is broken

LIMIT_S_PER_KIB = 0.05
TRIES = 5
AGAIN = "CHASQUI_FUZZ_AGAIN"  # in the environment: the program that libFuzzer starts for a merge


class Target(NamedTuple):
    opened: Callable[[], AbstractContextManager[Check]]
    max_bytes: int = 4096
    needs_server: bool = False


class TooSlowError(AssertionError):
    """An input takes longer than its size allows."""


def plain(check: Check) -> Callable[[], AbstractContextManager[Check]]:
    """A target that needs nothing."""

    @contextmanager
    def opened() -> Iterator[Check]:
        yield check

    return opened


def timed(check: Check) -> Check:
    """The same; an input that is too slow each time it is tried is a finding.

    Counted is what this process computes, so that a busy machine does not look like a slow input.
    """

    def run(data: bytes) -> None:
        limit_s = LIMIT_S_PER_KIB * max(1.0, len(data) / 1024)
        for _ in range(TRIES):
            began = time.process_time()
            check(data)
            took_s = time.process_time() - began
            if took_s <= limit_s:
                return
        raise TooSlowError(f"{len(data)} bytes take {took_s * 1000:.0f} ms")

    return run
