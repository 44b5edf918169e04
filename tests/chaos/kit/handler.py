"""The handler of every chaos run: writes the ledger, and misbehaves on order.

A job's data is its number. Standard library only: the reference's workers run it too.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.kit.ledger import Ledger


@dataclass(frozen=True)
class Behaviour:
    sleep_ms: float = 0
    slow_every: int = 0
    """Every n-th job sleeps `slow_ms` instead."""
    slow_ms: float = 0
    fail_every: int = 0
    """The first attempts of every n-th job raise,"""
    fails: int = 1
    """... so many of them."""
    hang_on: int | None = None
    """This job never returns."""
    exit_on: int | None = None
    """This job ends its process in the middle of the handler."""
    kill_on: int | None = None
    """This job's process is killed (-9) after its work and before its ack."""
    times: int = 1
    """How often, in all processes together, to hang, exit or kill; 0 means always."""
    by_data: bool = False
    """The ledger knows jobs by their data, `job-<n>`: those of schedules have ids of their own."""


class Handler:
    def __init__(self, ledger: Ledger, behaviour: Behaviour) -> None:
        self._ledger = ledger
        self._does = behaviour

    async def __call__(self, job: Any) -> None:
        number = int(job.data)
        name = f"job-{number}" if self._does.by_data else job.id
        run = self._ledger.start(name)
        try:
            await self._work(number, job.attempt)
        except BaseException:
            self._ledger.failed(name, run)
            raise
        self._ledger.end(name, run)
        if self._now_is_the_time(self._does.kill_on, number, "kill"):
            self._ledger.dead(os.getpid())
            os.kill(os.getpid(), signal.SIGKILL)

    async def _work(self, number: int, attempt: int) -> None:
        does = self._does
        if self._now_is_the_time(does.exit_on, number, "exit"):
            self._ledger.dead(os.getpid())
            os._exit(1)
        if self._now_is_the_time(does.hang_on, number, "hang"):
            await asyncio.Event().wait()
        slow = does.slow_every and number % does.slow_every == 0
        await asyncio.sleep((does.slow_ms if slow else does.sleep_ms) / 1000)
        if does.fail_every and attempt < does.fails and number % does.fail_every == 0:
            raise RuntimeError(f"job {number} fails its attempt {attempt}, as ordered")

    def _now_is_the_time(self, chosen: int | None, number: int, deed: str) -> bool:
        """True for the chosen job, at most `times` times among all processes."""
        if chosen != number:
            return False
        if not self._does.times:
            return True
        return any(self._is_first(f"{deed}-{nth}") for nth in range(self._does.times))

    def _is_first(self, deed: str) -> bool:
        marker = Path(f"{self._ledger.path}.{deed}")
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
