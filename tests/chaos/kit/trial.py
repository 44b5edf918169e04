"""One kind of workers under one scenario of the comparison, and the wait until nothing moves.

Subjects differ in their program, their interpreter or some settings, and in nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.chaos.kit.fleet import OUR_WORKER, WEAK_WORKER, Orders, Process
from tests.chaos.kit.handler import Behaviour
from tests.chaos.kit.ledger import open_runs, tally
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.wait import eventually
from tools.reference_env import interpreter

QUIET_S = 25.0  # without anything new for so long, what is left is stuck


@dataclass(frozen=True)
class Subject:
    name: str
    module: str = OUR_WORKER
    weakness: tuple[str, ...] = ()
    reference: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    """Orders that differ from the scenario's."""


OURS = Subject("ours")
REFERENCE = Subject("reference 1.3.0", reference=True)
PATIENT = replace(
    REFERENCE, name="reference 1.3.0, lease 15 s", settings={"claim_min_idle_ms": 15_000}
)
FRUGAL = replace(
    REFERENCE, name="reference 1.3.0, `read_count=1`", settings={"options": {"read_count": 1}}
)
ACKS_FIRST = Subject("careless: acks first", WEAK_WORKER, ("ack_first",))
NO_LEASE = Subject("careless: no lease", WEAK_WORKER, ("no_lease",))
TRIMS = Subject("careless: trims", WEAK_WORKER, ("trim",))
CARELESS = (ACKS_FIRST, NO_LEASE, TRIMS)


class Trial:
    def __init__(self, stage: Stage, subject: Subject, max_attempts: int) -> None:
        self.stage = stage
        self._subject = subject
        self._max_attempts = max_attempts
        self._rested = False

    def start(self, count: int, behaviour: Behaviour, **more: Any) -> list[Process]:
        told = self.stage.orders(behaviour, max_attempts=self._max_attempts)
        differs = {**more, **self._subject.settings}
        orders: Orders = replace(told, weakness=self._subject.weakness, **differs)
        python = str(interpreter()) if self._subject.reference else None
        module = self._subject.module
        return self.stage.fleet.start_many([orders] * count, module=module, python=python)

    def add(self, jobs: int, *, first: int = 0, delay_ms: int | None = None) -> None:
        asyncio.run(self.stage.add(range(first, first + jobs), delay_ms=delay_ms))

    def works(self, handlers: int, *members: Process) -> None:
        """Wait until they are in the middle of so many handlers."""
        ledger = self.stage.ledger.path
        eventually(
            lambda: sum(open_runs(ledger, one.pid) for one in members) >= handlers,
            or_say=lambda: self.stage.fleet.errors,
        )

    def tried(self, happened: object) -> None:
        assert happened, "the fault did not take place: nothing was tried"

    def comes_to(self, ended: int) -> bool:
        """Whether so many runs end, before nothing has happened for long."""
        return until(lambda: self.stage.ended() >= ended, QUIET_S)

    def rests(self) -> None:
        """Wait until all is done, or nothing has happened for long, or nobody is left."""
        if self._rested:
            return
        self._rested = True
        known, since = -1, time.monotonic()

        def over() -> bool:
            nonlocal known, since
            ended = tally(self.stage.ledger.path)["end"]
            if ended != known:
                known, since = ended, time.monotonic()
            asleep = time.monotonic() - since > QUIET_S
            return self._is_done() or asleep or not self.stage.fleet.alive

        eventually(over, 180.0, every=0.1)

    def _is_done(self) -> bool:
        alive = self.stage.fleet.alive
        idle = not any(open_runs(self.stage.ledger.path, one.pid) for one in alive)
        return idle and self.stage.is_drained()


def until(ask: Callable[[], bool], timeout: float, *, every: float = 0.05) -> bool:
    """The same as `eventually`, for what not every subject comes to."""
    try:
        return eventually(ask, timeout, every=every)
    except AssertionError:
        return False
