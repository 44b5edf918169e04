"""A thread with an event loop, for what must go on while the event loops of others are kept busy.

One for all who need it: a process with a thousand workers has one such thread. It is there while
somebody is in it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any

Stay = concurrent.futures.Future[None]


class Backroom:
    def __init__(self, name: str) -> None:
        self._name = name
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._inside: set[Stay] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def enter(self, life: Coroutine[Any, Any, None]) -> Stay:
        """Have it run there. Whoever enters leaves, too, once it has ended."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_keep, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            stay = asyncio.run_coroutine_threadsafe(life, self._loop)
            self._inside.add(stay)
            return stay

    def leave(self, stay: Stay) -> None:
        """The last one out ends the thread; waits until it has. To leave twice is nothing."""
        stay.cancel()  # it has ended, unless its owner was cut off while it waited for that
        with self._lock:
            if stay not in self._inside:
                return
            self._inside.remove(stay)
            if self._inside:
                return
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _keep(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()


backroom = Backroom("chasqui-backroom")

if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(after_in_child=backroom._reset)  # threads do not come along
