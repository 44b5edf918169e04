"""Time limits: a due time per slot, and one sweep for all; a timer per job would cost more.

1. a run whose time is over is cancelled, and fails when it has ended;
2. one that does not end within a grace fails all the same: what it does then counts no longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from chasquimq.engine.outcome import Opened
from chasquimq.errors import TimeLimitError
from chasquimq.store import Row
from chasquimq.trace import Running

SWEEP_S = 0.05
GRACE_S = 5.0


class Slot:
    """One worker's place: what runs there now, and what befell it from outside."""

    __slots__ = (
        *("begun", "cancelled", "due", "expired", "opened", "row", "task", "trace", "void"),
        "void_since",
    )

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.row: Row | None = None  # None: nothing runs here
        self.opened: Opened | None = None
        self.trace: Running | None = None  # of what runs here, where there is a tracer
        self.begun = 0.0
        self.due = 0.0  # 0: no limit
        self.cancelled = False  # by us, and not by a stop
        self.void = False  # however it ends, it counts no longer
        self.void_since = 0.0
        self.expired: TimeLimitError | None = None

    def limit(self, now: float, limit_s: float) -> None:
        self.begun = now
        self.due = now + limit_s if limit_s else 0.0

    def cancel(self) -> None:
        """Tell the handler that its run is over; once, so that it can tidy up in peace."""
        if self.cancelled or self.task is None or self.opened is None:
            return
        self.cancelled = True
        self.opened[4].lease_lost = True
        self.task.cancel()

    def give_up(self, now: float) -> None:
        self.void = True
        self.void_since = now

    def recover(self) -> None:
        """The handler has ended, and its worker lives on."""
        if self.cancelled and self.task is not None:
            self.task.uncancel()
        self.cancelled = self.void = False
        self.expired = None


class Limits:
    """`give_up` settles the failure of a run that would not end."""

    def __init__(self, slots: Sequence[Slot], give_up: Callable[[Slot, int], None]) -> None:
        self._slots = slots
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        now = time.perf_counter()
        for slot in self._slots:
            if slot.row is not None and slot.due and now >= slot.due and not slot.void:
                self._overdue(slot, now)
        self.start()

    def _overdue(self, slot: Slot, now: float) -> None:
        if slot.expired is None:
            limit_ms = round((slot.due - slot.begun) * 1000)
            slot.expired = TimeLimitError(f"the handler ran for longer than {limit_ms} ms")
            slot.due = now + GRACE_S
            slot.cancel()
            return
        slot.give_up(now)
        self._give_up(slot, int((now - slot.begun) * 1e6))
