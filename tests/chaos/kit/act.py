"""What jobs do on order: each one's data says how long it takes, what it hogs and how it ends.

{"sleep": s}                 take so long
{"gate": name}               wait until the test opens that gate
{"hold_gil": s, "times": n}  keep the interpreter's lock for so long, n times with a breath between
{"block": s}                 keep the event loop for so long; {"block_until": name} likewise
{"then": how}                "fail", "bury", "exit" or "kill"; else it returns
{"always": True}             so on every run. Else a second run returns at once,
{"again": name}              ... or as soon as that gate is open,
{"later": how}               ... or ends like that, each time
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from chasquimq import Job, UnrecoverableError
from tests.chaos.kit.gate import is_open
from tests.chaos.kit.ledger import Ledger

LOOK_S = 0.01
BREATH_S = 0.05


class Actor:
    """The handler. It returns which attempt it was, so that a result tells whose it is."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # Called through PyDLL a function keeps the interpreter's lock, as some extensions do.
        self._libc = ctypes.PyDLL(None)

    async def __call__(self, job: Job) -> str:
        run = self._ledger.start(job.id)
        try:
            if job.attempt == 0 or job.data.get("always"):
                await self._play(job.data)
            elif "again" in job.data:
                await self._wait(job.data["again"])
            elif "later" in job.data:
                await self._play({"then": job.data["later"]})
        except BaseException:
            if job.lease_lost:
                self._ledger.lost(job.id, run)
            self._ledger.failed(job.id, run)
            raise
        self._ledger.end(job.id, run)
        return f"attempt {job.attempt}"

    async def _play(self, data: Mapping[str, Any]) -> None:
        await asyncio.sleep(data.get("sleep", 0))
        if "gate" in data:
            await self._wait(data["gate"])
        for _ in range(data.get("times", 0)):
            self._libc.usleep(int(data["hold_gil"] * 1e6))
            await asyncio.sleep(BREATH_S)
        # Last, and without a way for the event loop to come in between it and the end.
        time.sleep(data.get("block", 0))
        while "block_until" in data and not is_open(self._ledger.path, data["block_until"]):
            time.sleep(LOOK_S)
        match data.get("then"):
            case "fail":
                raise RuntimeError("it fails, as ordered")
            case "bury":
                raise UnrecoverableError("it fails for good, as ordered")
            case "exit" | "kill" as how:
                self._die(how)

    async def _wait(self, gate: str) -> None:
        while not is_open(self._ledger.path, gate):
            await asyncio.sleep(LOOK_S)

    def _die(self, how: str) -> NoReturn:
        self._ledger.dead(os.getpid())
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)
