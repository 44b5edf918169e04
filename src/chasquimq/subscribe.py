"""QueueEvents: the followers' door. One who follows a queue sees each of its events once.

1. a place in the events stream is settled once: "$" becomes the id of the newest event there is;
2. what follows that place is read, in blocks, over a connection of its own; the place moves
   with every event that is handed out or passed over;
3. a connection that breaks is mended by its link, and the next read goes on from the place.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType

from chasquimq import wire
from chasquimq.address import DEFAULT_URL, CredentialProvider, read_url
from chasquimq.config import ConnectOptions, FollowOptions, given, refuse_unknown, suggesting
from chasquimq.errors import ArgumentError, ConfigError, StoreUnavailableError
from chasquimq.store import Dialer, Event, Events, Link
from chasquimq.store.pipe import Pipe
from chasquimq.store.walk import FIRST_PAGE, next_count

log = logging.getLogger("chasquimq.queue")

AGAIN_S = 0.2
NOW = "$"
KNOWN = (
    *("waiting", "active", "completed", "failed", "retry-scheduled", "dlq", "drained", "delayed"),
    *("progress", "stalled"),  # of newer releases
)
_PLACE = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")
_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """One row of the events stream. `id` is its place: `QueueEvents(last_event_id=event.id)`
    goes on behind it."""

    name: str
    job_id: str | None
    job_name: str
    fields: dict[str, int | str]
    id: str = ""


class QueueEvents:
    """Follows the events of one queue: an async iterator of `QueueEvent`.

    It connects on first use, or by `async with`, which settles what "from now on" means before
    its block begins. It belongs to the event loop that it is first used in.
    """

    _check_name = staticmethod(wire.check_queue_name)

    @suggesting
    def __init__(
        self,
        queue_name: str,
        *,
        redis_url: str = DEFAULT_URL,
        tls: bool = False,
        last_event_id: str = NOW,
        block_ms: int = 5_000,
        count: int = 100,
        events: str | Iterable[str] | None = None,
        names: str | Iterable[str] | None = None,
        reconnect_max_attempts: int | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        self._check_name(queue_name)
        self._keys = wire.Keys(queue_name)
        self._options = FollowOptions(block_ms=block_ms, count=count)
        self._place = _check_place(last_event_id)
        self._wanted = _several("events", events)
        refuse_unknown(self._wanted or (), KNOWN, "QueueEvents(events=...)")
        self._names = _several("names", names)
        connect = given(ConnectOptions, max_retries=reconnect_max_attempts)
        address = read_url(redis_url, tls=tls, secret_elsewhere=credential_provider is not None)
        self._dialer = Dialer(address, credential_provider, connect)
        self._rows: deque[Event] = deque()  # read, and not yet handed out
        self._link: Link | None = None
        self._ahead: asyncio.Future[list[Event]] | None = None  # the read that is on its way
        # Over which it is, and how many bytes that had received before; how many rows fit into a
        # few megabytes, judged by the last read.
        self._pipe: Pipe | None = None
        self._received = 0
        self._fitting = FIRST_PAGE
        self._turn = asyncio.Lock()  # of those who wait for the next event, one asks for it
        self._waiting: asyncio.Timeout | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"QueueEvents({self.name!r}, redis_url='{self._dialer.address}')"

    @property
    def name(self) -> str:
        return self._keys.queue

    @property
    def last_event_id(self) -> str:
        """The place to go on from: the last event handed out, or passed over by a filter."""
        return self._place

    @property
    def is_closed(self) -> bool:
        return self._closed

    def __aiter__(self) -> QueueEvents:
        return self

    async def __anext__(self) -> QueueEvent:
        while not self._closed:
            event = self._next()
            if event is not None:
                return event
            await self._until_closed(self._read)
        raise StopAsyncIteration

    async def close(self) -> None:
        """Disconnect. Whoever waits for the next event is told at once that there is none."""
        if self._closed:
            return
        self._closed = True
        if self._loop is not asyncio.get_running_loop():
            return  # never used, or its event loop is gone, and the connection with it
        if self._waiting is not None:
            self._waiting.reschedule(self._loop.time())
        if self._link is not None:
            await self._link.close()

    async def __aenter__(self) -> QueueEvents:
        await self._until_closed(self._open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- inside --------------------------------------------------------------------------------

    def _next(self) -> QueueEvent | None:
        """The next event that passes the filters, of those that were read."""
        while self._rows:
            self._place, row = self._rows.popleft()
            if not row.name:
                log.warning("%s of queue %r is no event, passed over", self._place, self.name)
                continue
            if self._wanted is not None and row.name not in self._wanted:
                continue
            if self._names is not None and row.job_name not in self._names:
                continue
            return QueueEvent(row.name, row.job_id, row.job_name, row.fields, self._place)
        return None

    async def _until_closed(self, step: Callable[[], Awaitable[object]]) -> None:
        """Take a step that waits; `close` ends it wherever it is."""
        async with self._turn:
            if self._closed:
                return
            try:
                async with asyncio.timeout(None) as self._waiting:
                    await step()
            except TimeoutError:
                if not self._closed:  # nobody else sets a time
                    raise
            finally:
                self._waiting = None

    async def _open(self) -> Link:
        loop = asyncio.get_running_loop()
        if self._link is not None and self._loop is not loop:
            raise ConfigError(f"{self!r} was opened in another event loop: make one for each")
        self._loop = loop
        if self._link is None:
            link = Link(self._dialer.of(self._keys.stream), extra_reply_ms=self._options.block_ms)
            try:
                await link.open()
                if self._place == NOW:
                    # Once: asked again, "$" would pass over what came between two reads.
                    self._place = await Events(self._keys, link).tip()
            except BaseException:
                await link.close()
                raise
            self._link = link
        return self._link

    async def _read(self) -> None:
        """Get rows. There may be none: no event in time, or an error that passes."""
        link = await self._open()
        if self._rows:
            return  # somebody else has read while we waited for our turn
        if self._ahead is None:
            pipe = await link.up()
            self._pipe, self._received = pipe, pipe.received
            count = min(self._options.count, self._fitting)
            ahead = Events(self._keys, link).ahead
            self._ahead = ahead(self._place, count, self._options.block_ms, pipe)
        # Whoever is cancelled here leaves the read on its way, to be waited for again.
        await asyncio.wait([self._ahead])
        answer, self._ahead = self._ahead, None
        try:
            rows = answer.result()
            if rows and self._pipe is not None:
                self._fitting = next_count(self._pipe.received - self._received, len(rows))
            self._rows.extend(rows)
        except StoreUnavailableError as error:
            log.warning("following %r goes on after %s: %s", self.name, self._place, error)
            await asyncio.sleep(AGAIN_S)


def _check_place(place: str) -> str:
    if not isinstance(place, str):
        raise ArgumentError(f"last_event_id is a str, got {type(place).__name__}: {place!r:.80}")
    found = _PLACE.fullmatch(place)
    if place != NOW and not (found and all(int(part or 0) <= _MAX for part in found.groups())):
        raise ConfigError(
            f"last_event_id {place[:80]!r} is no place in a stream: give the id of an event "
            "('1700000000000-0'), '0' for the beginning, or '$' for what is new"
        )
    return place


def _several(option: str, given: str | Iterable[str] | None) -> frozenset[str] | None:
    """One name, several, or None for all."""
    if given is None:
        return None
    several = [given] if isinstance(given, str) else given
    if not isinstance(several, Iterable):
        raise ArgumentError(f"{option} is a name or several, got {given!r:.80}")
    names = list(several)
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"{option} holds names, got {type(name).__name__}: {name!r:.80}")
    if not names:
        raise ConfigError(f"{option} is empty, so nothing would ever pass; leave it out for all")
    return frozenset(names)
