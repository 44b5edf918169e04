"""A tick that one process at a time performs. Loop and tick are apart, so tests call `tick()`.

The tick acquires or renews its own lock, does its work and says how long to wait; whoever does
not lead says so by waiting its interval. Redis being away is waited out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from chasquimq.errors import StoreError
from chasquimq.flow.pause import pause

log = logging.getLogger(__name__)

Tick = Callable[[], Awaitable[float]]


async def lead(tick: Tick, interval_s: float, nudge: asyncio.Event, stop: asyncio.Event) -> None:
    """Call `tick` until `stop`; `nudge` cuts a wait short (and must be set on stop, too)."""
    while not stop.is_set():
        nudge.clear()
        if stop.is_set():
            return
        try:
            wait_s = min(await tick(), interval_s)
        except StoreError as error:
            # A lock we could not renew expires on its own; the interval is our backoff.
            log.warning("tick failed, trying again in %.1f s: %s", interval_s, error)
            wait_s = interval_s
        if wait_s > 0:
            await pause(nudge, wait_s)
