"""The pulse: how late the event loop is, and each second word to the metrics sinks of how we are.

1. sleep a quarter of a second; what the sleep took beyond that, something kept the loop for;
2. the worst of the last seconds is what health shows: who asks rarely shall hear of it, too;
3. each second announce the worker's health, and more often until it is well. While the loop is
   blocked nothing is announced, and that silence is what a sink in another thread goes by.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from chasquimq.flow.pause import pause
from chasquimq.happening import Announce, Pulsed
from chasquimq.health import PULSE_S, Health

BEAT_S = 0.25
MEMORY_S = 15.0  # a lag is shown for so long: as often as metrics are usually asked for


class Pulse:
    def __init__(self, worker: str, announce: Announce, health: Callable[[], Health]) -> None:
        self._worker = worker
        self._announce = announce
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + BEAT_S
        self._lags: deque[tuple[float, float]] = deque()  # when and how long; each above the next
        self._stop = asyncio.Event()

    async def run(self) -> None:
        told_at, healthy = float("-inf"), False
        while not self._stop.is_set():
            now = self._loop.time()
            if not healthy or now - told_at >= PULSE_S - BEAT_S / 2:
                health = self._health()
                self._announce(Pulsed(self._worker, health))
                told_at, healthy = now, health.healthy
            self._due = self._loop.time() + BEAT_S
            if not await pause(self._stop, BEAT_S):
                self.beat(self._loop.time())

    def stop(self) -> None:
        self._stop.set()

    def end(self, health: Health) -> None:
        """The last word."""
        self._announce(Pulsed(self._worker, health))

    def beat(self, now: float) -> None:
        """Note how late we are."""
        lag = max(now - self._due, 0.0)
        while self._lags and self._lags[-1][1] <= lag:
            self._lags.pop()
        self._lags.append((now, lag))
        self._forget(now)

    def lag_s(self) -> float:
        """The worst of the last seconds, this moment included."""
        now = self._loop.time()
        self._forget(now)
        worst = self._lags[0][1] if self._lags else 0.0
        return max(worst, now - self._due, 0.0)

    def _forget(self, now: float) -> None:
        while self._lags and self._lags[0][0] < now - MEMORY_S:
            self._lags.popleft()
