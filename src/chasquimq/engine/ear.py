"""Hear that something earlier was put in front of what a leader waits for, and of pauses.

Who hears nothing (the subscription was refused, another program wrote) looks after its interval, so
a wake-up saves time and is never needed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from chasquimq.errors import StoreError
from chasquimq.store import Store
from chasquimq.store.hold import PAUSE as PAUSE
from chasquimq.store.pipe import Pipe
from chasquimq.store.resp import pack

log = logging.getLogger("chasquimq.schedule")

SPECS = b"specs"  # what put_spec.lua and move_spec.lua say; all else is about delayed jobs
WORDS = (SPECS, PAUSE)


class Ear:
    """One subscription for all of a process that wait for something on a queue."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._link = store.new_link(prepare=self._subscribe)
        self._link.on_up = self._wake_all  # what was said meanwhile nobody has heard
        self._nudges: dict[bytes, asyncio.Event] = {}

    def wake(self, nudge: asyncio.Event, word: bytes = b"") -> None:
        """Set this event when the word comes; without one: when any other comes."""
        self._nudges[word] = nudge

    async def open(self) -> None:
        try:
            await self._link.open()
        except StoreError as error:
            log.warning("no wake-ups (%s); what is due may start a poll interval late", error)

    async def close(self) -> None:
        await self._link.close()

    async def _subscribe(self, pipe: Pipe) -> None:
        reply = (await pipe.ask(pack("SUBSCRIBE", self._store.keys.wake)))[0]
        if isinstance(reply, Exception):
            raise StoreError(f"cannot subscribe to wake-ups: {reply}")
        pipe.on_push = self._woken

    def _woken(self, message: Any) -> None:
        word = message[-1] if message[-1] in WORDS else b""
        if word in self._nudges:
            self._nudges[word].set()

    def _wake_all(self) -> None:
        for nudge in self._nudges.values():
            nudge.set()
