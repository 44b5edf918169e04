"""How full queues are, asked when somebody looks: from any thread, and never for long.

One thread with an event loop of its own keeps the connections. What Redis does not answer in
time is left out: a figure of some minutes ago would look like one of now. What came is good
for a second, so that however many look at once, Redis is asked once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from chasquimq.errors import ChasquiError
from chasquimq.store import Dialer, Link
from chasquimq.store.hold import Hold
from chasquimq.store.inspect import Inspect
from chasquimq.wire import Keys

log = logging.getLogger("chasquimq.worker")

LIMIT_S = 2.0
FRESH_S = 1.0


class Depths(msgspec.Struct, frozen=True, kw_only=True):
    """How full a queue is, as a group of workers sees it. Can be sent as JSON."""

    queue: str
    group: str = "default"
    waiting: int = 0
    pending: int = 0
    delayed: int = 0
    dead: int = 0
    repeatables: int = 0
    oldest_waiting_s: float = 0.0  # how long the next one to run has waited; 0: nothing waits
    paused: bool = False
    limit: int | None = None  # of the stream's length, where it is known


class Target(NamedTuple):
    """A queue, and how to reach it."""

    queue: str
    dialer: Dialer
    group: str = "default"
    limit: int | None = None


async def depths(
    link: Link, queue: str, group: str = "default", limit: int | None = None
) -> Depths:
    keys = Keys(queue)
    counts = await Inspect(keys, link).counts(group)
    paused = await Hold(keys, link).look()
    return Depths(
        queue=queue,
        group=group,
        waiting=counts.waiting,
        pending=counts.running,
        delayed=counts.delayed,
        dead=counts.dead,
        repeatables=counts.repeatables,
        oldest_waiting_s=(counts.oldest_waiting_ms or 0) / 1000,
        paused=paused,
        limit=limit,
    )


class Probe:
    """Asks about some queues, each on a connection that is kept."""

    def __init__(
        self, targets: Iterable[Target], *, limit_s: float = LIMIT_S, fresh_s: float = FRESH_S
    ) -> None:
        self._targets = list(dict.fromkeys(targets))
        self._limit_s = limit_s
        self._fresh_s = fresh_s
        self._links: dict[Target, Link] = {}
        self._found: list[Depths] = []
        self._found_at = float("-inf")
        self._quiet: set[Target] = set()  # of which was said that they do not answer
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def look(self) -> list[Depths]:
        """What was answered in time; blocks for as long at most."""
        with self._lock:
            if not self._closed and time.monotonic() - self._found_at > self._fresh_s:
                self._found = self._ask()
                self._found_at = time.monotonic()
            return self._found

    def close(self) -> None:
        with self._lock:
            self._closed, self._found = True, []
            if self._loop is None or self._thread is None:
                return
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._bye(), self._loop).result(self._limit_s)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(self._limit_s)

    # -- inside --------------------------------------------------------------------------------

    def _ask(self) -> list[Depths]:
        loop = self._loop or self._start()
        asked = asyncio.run_coroutine_threadsafe(self._look(), loop)
        try:
            return asked.result(self._limit_s + 1.0)
        except Exception:  # whatever it is: the other figures are worth a page without these
            log.exception("how full the queues are cannot be said")
            asked.cancel()
            return []

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = asyncio.new_event_loop()

        def live() -> None:
            loop.run_forever()
            loop.close()

        self._thread = threading.Thread(target=live, name="chasqui-probe", daemon=True)
        self._thread.start()
        return loop

    async def _look(self) -> list[Depths]:
        found: list[Depths] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limit_s), asyncio.TaskGroup() as group:
                for target in self._targets:
                    group.create_task(self._look_at(target, found))
        return found

    async def _look_at(self, target: Target, found: list[Depths]) -> None:
        try:
            link = self._links.get(target)
            if link is None:
                link = Link(target.dialer)
                await link.open()
                self._links[target] = link
            found.append(await depths(link, target.queue, target.group, target.limit))
            self._quiet.discard(target)
        except ChasquiError as error:
            if target not in self._quiet:
                self._quiet.add(target)
                log.warning("how full %s is cannot be said: %s", target.queue, error)

    async def _bye(self) -> None:
        for link in self._links.values():
            await link.close()
        self._links.clear()
