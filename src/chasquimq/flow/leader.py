"""A tick that one process at a time performs. Loop and tick are apart, so tests call `tick()`.

The tick acquires or renews its own lock, does its work and says how long to wait; whoever does
not lead says so by waiting its interval. Redis being away is waited out, and so is a Redis that
refuses: how often in a row, and why, is noted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from chasquimq.errors import ChasquiError, StoreError, StoreUnavailableError
from chasquimq.flow.pause import pause

Tick = Callable[[], Awaitable[float]]


class Rounds:
    """How many Redis has refused since one last went well, and in which words. That it was away
    does not count: its connections tell of that."""

    def __init__(self) -> None:
        self.failed = 0
        self.why = ""

    def went_well(self) -> None:
        self.failed = 0

    def has_failed(self, error: ChasquiError) -> None:
        if not isinstance(error, StoreUnavailableError):
            self.failed += 1
            self.why = str(error)


async def lead(
    tick: Tick,
    interval_s: float,
    nudge: asyncio.Event,
    stop: asyncio.Event,
    log: logging.Logger,
    rounds: Rounds | None = None,
) -> None:
    """Call `tick` until `stop`; `nudge` cuts a wait short (and must be set on stop, too), unless
    Redis has refused: what wakes us may come with every job."""
    rounds = rounds or Rounds()
    while not stop.is_set():
        nudge.clear()
        if stop.is_set():
            return
        try:
            wait_s = min(await tick(), interval_s)
            rounds.went_well()
        except StoreError as error:
            # A lock we could not renew expires on its own; the interval is our backoff.
            log.warning("tick failed, trying again in %.1f s: %s", interval_s, error)
            rounds.has_failed(error)
            wait_s = interval_s
        if wait_s > 0:
            await pause(stop if rounds.failed else nudge, wait_s)
