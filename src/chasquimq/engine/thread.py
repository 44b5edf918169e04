"""Plain functions run in threads; the event loop hands over and takes back in batches.

A thread of our own instead of an executor's future per job: what one turn of the loop brings is
handed over together, and what ended meanwhile comes back by one wake-up.

A function cannot be cancelled. One whose run was given up (its time is over, its lease is lost)
keeps its thread until it ends; with `busy` at the `limit` no thread is free for another.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from queue import SimpleQueue
from typing import Any

log = logging.getLogger("chasquimq.worker")

Function = Callable[[Any], Any]


class Errand:
    """One run of a function: `value` is what it returned, or raised if `raised`."""

    __slots__ = ("context", "done", "function", "given_up", "job", "raised", "value")

    def __init__(self, function: Function, job: Any, done: asyncio.Future[None]) -> None:
        self.function = function
        self.job = job
        self.done = done
        self.context = contextvars.copy_context()
        self.given_up = False
        self.raised = False
        self.value: Any = None

    def run(self) -> None:
        if self.done.cancelled():
            return  # given up before it came to run
        try:
            self.value = self.context.run(self.function, self.job)
        except BaseException as error:  # whatever it is, the event loop's side decides
            self.raised, self.value = True, error


class Threads:
    """Belongs to one event loop. Threads are started as they are needed, up to `limit`."""

    def __init__(self, limit: int) -> None:
        self.busy = 0  # errands handed over whose end we have not heard of
        self.stuck = 0  # those of them that were given up
        self.limit = limit
        self._full_since: float | None = None  # when the last thread was lost to such a function
        self._started = 0
        self._loop = asyncio.get_running_loop()
        self._going: list[Errand] = []
        self._given: SimpleQueue[Errand | None] = SimpleQueue()
        self._ended: deque[Errand] = deque()
        self._told = False  # the event loop knows that something ended
        self.freed = asyncio.Event()  # something ended

    def wrap(self, function: Function) -> Callable[[Any], Awaitable[Any]]:
        """The function as a coroutine function that runs it in a thread."""

        async def run(job: Any) -> Any:
            done: asyncio.Future[None] = self._loop.create_future()
            errand = Errand(function, job, done)
            if not self._going:
                self._loop.call_soon(self._hand_over)
            self._going.append(errand)
            self.busy += 1
            try:
                await done
            except asyncio.CancelledError:
                errand.given_up = True
                self.stuck += 1
                if self.stuck >= self.limit and self._full_since is None:
                    self._full_since = self._loop.time()
                raise
            value, errand.value = errand.value, None
            if errand.raised:
                try:
                    raise value
                finally:
                    del value  # or error, traceback and this frame hold on to each other
            # A function that returns an awaitable (a wrapped coroutine) is async after all.
            return await value if inspect.isawaitable(value) else value

        return run

    def full_s(self) -> float:
        """For how long all threads have been kept by functions that were given up."""
        return 0.0 if self._full_since is None else self._loop.time() - self._full_since

    def stop(self) -> None:
        """Let idle threads end. One that is stuck ends with its function, or the process."""
        for _ in range(self._started):
            self._given.put(None)

    def _hand_over(self) -> None:
        going, self._going = self._going, []
        try:
            while self._started < min(self.busy, self.limit):
                self._start()
        except RuntimeError as error:  # the system has no more threads for us
            if not self._started:
                self._refuse(going, error)
                return
            log.warning("%d threads have to do: %s", self._started, error)
        for errand in going:
            self._given.put(errand)

    def _start(self) -> None:
        name = f"chasqui-job-{self._started + 1}"
        # A daemon, because a function that is stuck must not hold up the process's end.
        threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._started += 1

    def _refuse(self, errands: Iterable[Errand], error: Exception) -> None:
        """They cannot run, and fail: nobody else would ever end them."""
        for errand in errands:
            errand.raised, errand.value = True, error
            self._ended.append(errand)
        self._take_back()

    def _serve(self) -> None:
        """A thread's life."""
        given, ended = self._given, self._ended
        while (errand := given.get()) is not None:
            errand.run()
            ended.append(errand)
            if not self._told:
                self._told = True
                try:
                    self._loop.call_soon_threadsafe(self._take_back)
                except RuntimeError:
                    return  # the event loop is closed: nobody waits

    def _take_back(self) -> None:
        self._told = False  # first: what ends from now on tells again
        ended = self._ended
        while ended:
            errand = ended.popleft()
            self.busy -= 1
            self.stuck -= errand.given_up
            if self.stuck < self.limit:
                self._full_since = None
            if not errand.done.done():
                errand.done.set_result(None)
        self.freed.set()


def is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )
