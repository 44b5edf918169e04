"""What the two processes that lead have in common: they connect, lead in turns, and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from chasquimq import wire
from chasquimq.address import CredentialProvider, read_url
from chasquimq.config import (
    ConnectOptions,
    DialectName,
    EventOptions,
    StreamOptions,
    given,
)
from chasquimq.engine.leader import Leader
from chasquimq.engine.writer import LinkWriter
from chasquimq.errors import ChasquiError
from chasquimq.happening import Announce, EventsDropped, Reconnected
from chasquimq.observe.announce import announcer
from chasquimq.observe.metrics import attached
from chasquimq.observe.stream import EventStream
from chasquimq.store import Dialer, Store, build, open_stream
from chasquimq.wire.right import Calls


class Leading:
    """A leader that is a process of its own. Of all that run for a queue, one leads."""

    _role: str
    _needs: Calls

    def __init__(
        self,
        redis_url: str,
        queue_name: str,
        *,
        events_enabled: bool,
        events_max_stream_len: int | None,
        metrics: object | Sequence[object] | None,
        tls: bool,
        reconnect_max_attempts: int | None,
        credential_provider: CredentialProvider | None,
        dialect: DialectName | None,
    ) -> None:
        wire.check_queue_name(queue_name)
        self._keys = wire.Keys(queue_name)
        self._events: EventOptions = given(
            EventOptions, enabled=events_enabled, max_len=events_max_stream_len
        )
        self._metrics = attached(metrics)
        connect = given(ConnectOptions, max_retries=reconnect_max_attempts)
        address = read_url(redis_url, tls=tls, secret_elsewhere=credential_provider is not None)
        self._dialer = Dialer(address, credential_provider, connect)
        self._forced = dialect
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None
        self._leader: Leader | None = None
        self._failure: ChasquiError | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self._dialer.address}', {self._keys.queue!r})"

    async def run(self) -> None:
        """Run until `shutdown`, then release the lock. Called again meanwhile, it waits, too."""
        if self._ended is not None:
            await asyncio.shield(self._ended)
        elif not self._closed:
            self._loop = asyncio.get_running_loop()
            self._ended = self._loop.create_future()
            try:
                await self._run()
            finally:
                self._ended.set_result(None)
                self._ended = None

    def shutdown(self) -> None:
        """Ask it to stop; from any thread, and from a signal handler, too."""
        self._closed = True
        leader = self._leader
        if leader is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(leader.stop)

    async def _run(self) -> None:
        self._failure = None
        store = Store(self._keys, self._dialer, self._forced)
        store.link.on_given_up = self._given_up
        await store.open()
        async with AsyncExitStack() as open_things:
            open_things.push_async_callback(store.close)
            who = f"a {self._role} of queue {self._keys.queue!r} needs; nothing was moved"
            await store.check_rights(self._needs, who)
            # A stream that we bring into being has the settings that producers count on.
            dialect = build(store.dialect_name, self._keys)
            await open_stream(store.link, self._keys, dialect, StreamOptions())
            announce = await self._observe(store, open_things)
            store.link.on_mended = lambda: announce(Reconnected(self._role))
            self._leader = self._make(store, announce)
            try:
                if not self._closed:
                    await self._leader.run()
            finally:
                self._leader = None
        if self._failure is not None:
            raise self._failure

    def _make(self, store: Store, announce: Announce) -> Leader:
        raise NotImplementedError

    async def _observe(self, store: Store, open_things: AsyncExitStack) -> Announce:
        sinks = list(self._metrics)
        if not self._events.enabled:
            return announcer(sinks)
        writer = LinkWriter(store.new_link(), self._events.max_waiting)
        sinks.append(EventStream(self._keys, writer, self._events).hear)
        announce = announcer(sinks)
        writer.on_dropped = lambda count: announce(EventsDropped(count))
        await writer.link.open()
        open_things.push_async_callback(writer.close)
        return announce

    def _given_up(self, error: ChasquiError) -> None:
        self._failure = error
        if self._leader is not None:
            self._leader.stop()
