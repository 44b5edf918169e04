"""Sleep that an event can end early."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def pause(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, at most so long; says whether it came."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
