"""One thing happened, one `announce`: it reaches every sink, and no sink is ever felt."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from chasquimq.happening import Announce, Happening

log = logging.getLogger("chasquimq.worker")

QUIET_S = 60.0  # between two complaints about the same sink

Clock = Callable[[], float]


def announcer(sinks: Sequence[Announce], clock: Clock = time.monotonic) -> Announce:
    """One function for many sinks. A sink that raises is logged, and the others still hear."""
    if not sinks:
        return _silence
    heard = [(sink, Complaint(clock)) for sink in sinks]
    only, only_complaint = heard[0]

    # Nothing is awaited in a sink, so a cancellation is its own, never that of a worker.
    def announce(happening: Happening) -> None:
        for sink, complaint in heard:
            try:
                sink(happening)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                complaint.about(f"sink failed on {type(happening).__name__}", error)

    def announce_to_one(happening: Happening) -> None:
        try:
            only(happening)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            only_complaint.about(f"sink failed on {type(happening).__name__}", error)

    return announce_to_one if len(heard) == 1 else announce


def tell_names(takers: Sequence[Callable[[list[str]], None]], names: list[str]) -> None:
    """Tell sinks for which names a worker has handlers; none of them is felt either."""
    for take in takers:
        try:
            take(names)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            log.exception("a sink failed on handler_names")


class Complaint:
    """Logs the first failure of a sink or a tracer, and then one a minute: it may fail on every
    job."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._next_at = float("-inf")
        self._unsaid = 0

    def about(self, what: str, error: BaseException) -> None:
        now = self._clock()
        if now < self._next_at:
            self._unsaid += 1
            return
        if self._unsaid:
            more = "a %s, and %d times more since the last report"
            log.error(more, what, self._unsaid, exc_info=error)
        else:
            log.error("a %s", what, exc_info=error)
        self._next_at, self._unsaid = now + QUIET_S, 0


def _silence(happening: Happening) -> None:
    pass
