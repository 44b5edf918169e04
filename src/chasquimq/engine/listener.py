"""Wait for results: one connection hears a queue's events for everybody who waits.

1. whoever waits is written down, and looked for at once;
2. `completed` and `dlq`, heard of a job that is waited for, make it due;
3. a look asks for all that are due in one MGET. Besides, all are due each poll interval: events
   may be off, or dropped, or (a reference worker's) ahead of their result;
4. when nobody waits any more, the connection stays a moment for whoever comes next.

There is a task only while somebody waits, and whoever leaves last sees it end: an event loop
that is closed after a wait has nothing of ours left to run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from chasquimq.errors import (
    ArgumentError,
    ChasquiError,
    ConfigError,
    JobFailedError,
    ShutdownError,
    StoreError,
    StoreUnavailableError,
)
from chasquimq.flow.pause import pause
from chasquimq.store import Event, Events, Results, Store
from chasquimq.wire import EventRow

log = logging.getLogger("chasquimq.queue")

RECENT = 1_000  # events heard when it begins, and failures and deaths kept in mind
BATCH = 500
BLOCK_MS = 5_000
LINGER_S = 2.0
AGAIN_S = 0.2
LISTEN_AGAIN_S = 1.0

Place = tuple[object, ...]  # equal for all who wait in the same queue on the same server
_shared: dict[tuple[asyncio.AbstractEventLoop, Place], Listener] = {}


class Waiter:
    __slots__ = ("completed", "job_id", "outcome", "owner", "poll_s", "results")

    def __init__(self, job_id: str, poll_s: float) -> None:
        self.job_id = job_id
        self.poll_s = poll_s
        self.completed = False  # as far as the events told
        self.outcome: asyncio.Future[bytes | Exception]
        self.results: Results
        self.owner: object

    def tell(self, outcome: bytes | Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


async def listen(place: Place, waiter: Waiter, store: Store, owner: object) -> bytes:
    """Wait for a result together with all who wait at this place, on behalf of an owner."""
    loop = asyncio.get_running_loop()
    for key in list(_shared):
        if key[0].is_closed():  # nobody closed what was open there, and nobody can any more
            _shared.pop(key, None)
    listener = _shared.get((loop, place))
    if listener is None:
        listener = _shared[loop, place] = Listener(place, store)
    waiter.outcome, waiter.results, waiter.owner = loop.create_future(), store.results, owner
    return await listener.wait(waiter)


async def dismiss(place: Place, owner: object) -> None:
    """Send away who waits on behalf of this owner; where nobody else waits, nothing stays open."""
    listener = _shared.get((asyncio.get_running_loop(), place))
    if listener is not None:
        await listener.dismiss(owner)


class Listener:
    """Belongs to the event loop it was made in."""

    def __init__(self, place: Place, store: Store) -> None:
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, list[Waiter]] = {}
        self._due: set[str] = set()
        self._poll_at = float("inf")
        self._listen_at = 0.0
        self._nudge = asyncio.Event()
        self._deaths = Deaths()
        self._ear = Ear(store, self._hear, self._give_up)
        self._task: asyncio.Task[None] | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._closed = False

    async def wait(self, waiter: Waiter) -> bytes:
        self._enter(waiter)
        try:
            outcome = await waiter.outcome
        finally:
            self._strike(waiter)
            if not self._waiting:
                await self._rest()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def dismiss(self, owner: object) -> None:
        for waiter in [one for waiters in self._waiting.values() for one in waiters]:
            if waiter.owner is owner:
                self._strike(waiter)
                waiter.tell(
                    ShutdownError(f"the queue was closed while job {waiter.job_id!r} was awaited")
                )
        if not self._waiting:
            self._forget()
            await self._end_task()
            await self._ear.close()

    # -- who comes and goes ----------------------------------------------------------------------

    def _enter(self, waiter: Waiter) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        self._waiting.setdefault(waiter.job_id, []).append(waiter)
        self._due.add(waiter.job_id)
        self._poll_at = min(self._poll_at, self._loop.time() + waiter.poll_s)
        self._nudge.set()
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def _strike(self, waiter: Waiter) -> None:
        waiters = self._waiting.get(waiter.job_id, [])
        if waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[waiter.job_id]

    async def _rest(self) -> None:
        await self._end_task()
        if self._waiting or self._closed or self._lingering is not None:
            return
        if self._ear.listens:
            self._lingering = self._loop.call_later(LINGER_S, self._retire)
        else:
            self._forget()
            await self._ear.close()

    def _retire(self) -> None:
        self._lingering = None
        self._forget()
        self._task = self._loop.create_task(self._ear.close())

    async def _end_task(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _forget(self) -> None:
        """Whoever comes next begins anew."""
        self._closed = True
        if self._lingering is not None:
            self._lingering.cancel()
        if _shared.get((self._loop, self._place)) is self:
            del _shared[self._loop, self._place]

    # -- looking ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._turn()
        except Exception as error:  # also a refusal: waiting on would look like a job that lasts
            self._end_all(error)
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _turn(self) -> None:
        self._nudge.clear()
        now = self._loop.time()
        if now >= self._poll_at:
            self._due.update(self._waiting)
            everyone = self._waiting.values()
            self._poll_at = now + min(waiter.poll_s for waiters in everyone for waiter in waiters)
        if self._due:
            await self._look()
        if not self._ear.listens and self._waiting and now >= self._listen_at:
            self._listen_at = now + LISTEN_AGAIN_S
            if await self._ear.listen():
                # It may have come between the look and the listening.
                self._due.update(self._waiting)
        if not self._due:
            until = self._poll_at if self._ear.listens else min(self._poll_at, self._listen_at)
            await pause(self._nudge, until - self._loop.time())

    async def _look(self) -> None:
        """One question for all that are due: is there a result, or at least a death?"""
        asked = {id_: tuple(self._waiting[id_]) for id_ in self._due if id_ in self._waiting}
        self._due.clear()
        if not asked:
            return
        results = next(iter(asked.values()))[0].results  # any will do: it is the same server
        try:
            found = await results.get(list(asked))
        except StoreUnavailableError as error:
            log.warning("looking for results again in %.1f s: %s", AGAIN_S, error)
            self._due.update(asked)
            await asyncio.sleep(AGAIN_S)
            return
        for (job_id, waiters), stored in zip(asked.items(), found, strict=True):
            outcome = stored if stored is not None else self._deaths.of(job_id)
            if outcome is not None:
                for waiter in waiters:
                    self._strike(waiter)
                    waiter.tell(outcome)

    def _hear(self, events: Iterable[Event]) -> None:
        for _, event in events:
            self._deaths.hear(event)
            if event.job_id in self._waiting and event.name in ("completed", "dlq"):
                self._due.add(event.job_id)
                for waiter in self._waiting[event.job_id]:
                    waiter.completed = event.name == "completed"
        if self._due:
            self._nudge.set()

    def _give_up(self, error: ChasquiError) -> None:
        self._forget()
        self._end_all(error)

    def _end_all(self, error: Exception) -> None:
        everyone, self._waiting = self._waiting, {}
        for waiters in everyone.values():
            for waiter in waiters:
                waiter.tell(error)


class Ear:
    """Hears a queue's events over a connection of its own, by callbacks: it needs no task."""

    def __init__(
        self,
        store: Store,
        hear: Callable[[Iterable[Event]], None],
        given_up: Callable[[ChasquiError], None],
    ) -> None:
        self.listens = False
        self._hear = hear
        self._link = store.new_link(extra_reply_ms=BLOCK_MS)
        self._link.on_given_up = given_up
        self._events = Events(store.keys, self._link)
        self._opened = False
        self._last = "0-0"
        self._ahead: asyncio.Future[list[Event]] | None = None  # the read that is on its way

    async def listen(self) -> bool:
        """Begin with the last events there are; False if it has to be tried again."""
        try:
            if not self._opened:
                await self._link.open()
                self._opened = True
            past = await self._events.last(RECENT)
        except StoreUnavailableError as error:
            log.warning("cannot listen for results yet: %s", error)
            return False
        except StoreError as error:
            self._deaf(error)
        else:
            self._link.on_up = self._read
            self._heard(past)
        self.listens = True
        return True

    async def close(self) -> None:
        await self._link.close()

    def _read(self) -> None:
        pipe = self._link.pipe
        if pipe is not None and self._ahead is None:
            self._ahead = self._events.ahead(self._last, BATCH, BLOCK_MS, pipe)
            self._ahead.add_done_callback(self._landed)

    def _landed(self, ahead: asyncio.Future[list[Event]]) -> None:
        self._ahead = None
        error = ahead.exception()
        if error is None:
            self._heard(ahead.result())
        elif isinstance(error, StoreUnavailableError):
            # A broken connection reads on when it is mended; what a server says passes, too.
            asyncio.get_running_loop().call_later(AGAIN_S, self._read)
        else:
            self._deaf(error)

    def _heard(self, events: list[Event]) -> None:
        if events:
            self._last = events[-1][0]
            self._hear(events)
        self._read()

    def _deaf(self, error: BaseException) -> None:
        log.warning("results are looked for each poll interval only: %s", error)


class Death(NamedTuple):
    reason: str
    attempts: int
    error: str | None


class Deaths:
    """Which jobs died lately, and of what. Whoever runs again has not died."""

    def __init__(self, limit: int = RECENT) -> None:
        self._limit = limit
        self._deaths: dict[str, Death] = {}
        self._errors: dict[str, str] = {}  # what a job failed with last

    def of(self, job_id: str) -> JobFailedError | None:
        death = self._deaths.get(job_id)
        return None if death is None else JobFailedError(job_id, *death)

    def hear(self, event: EventRow) -> None:
        job_id, told = event.job_id, event.fields
        if job_id is None:
            return
        if event.name == "failed":
            self._errors.pop(job_id, None)  # so that it becomes the newest
            self._errors[job_id] = str(told.get("reason", ""))
        elif event.name == "dlq":
            attempts = told.get("attempt", 0)
            error = self._errors.pop(job_id, None)
            self._deaths.pop(job_id, None)
            self._deaths[job_id] = Death(
                str(told.get("reason", "")), attempts if isinstance(attempts, int) else 0, error
            )
        elif event.name in ("active", "completed"):
            self._deaths.pop(job_id, None)
        for memory in (self._deaths, self._errors):
            if len(memory) > self._limit:
                del memory[next(iter(memory))]


def seconds(option: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(f"{option} is a number of seconds, got {value!r:.80}")
    if not value > 0:
        raise ConfigError(f"{option} must be more than 0 seconds, got {value}")
    return float(value)
