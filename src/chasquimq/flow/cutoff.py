"""Work without a time limit, until a stop sets one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Cutoff:
    def __init__(self) -> None:
        self._running: asyncio.Timeout | None = None
        self._seconds: float | None = None

    async def run(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run it to its end; False if the limit cut it off."""
        self._running = limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                await work
        except TimeoutError:
            if limit.expired():
                return False
            raise
        finally:
            self._running = None
        return True

    def set(self, seconds: float) -> None:
        """Limit the work: it ends in `seconds`, or that long after it has begun."""
        if self._seconds is not None:
            return
        self._seconds = seconds
        if self._running is not None:
            self._running.reschedule(asyncio.get_running_loop().time() + seconds)
