"""What a producers' door has open in one event loop: the store, and producers once it adds.

There is one producer for each kind of durability that is used, because a wait holds up everything
behind it on its connection. They share their name, so that the server recognises a job that is
added again with another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from chasquimq.config import Durability, ProducerOptions, check_durability
from chasquimq.engine.deadline import Deadline
from chasquimq.engine.herald import Observe
from chasquimq.engine.order import Order
from chasquimq.engine.producer import Producer
from chasquimq.engine.timetable import Timetable
from chasquimq.errors import (
    QueueFullError,
    ShutdownError,
    StoreError,
    StoreUnavailableError,
    UnconfirmedError,
)
from chasquimq.happening import Reconnected
from chasquimq.job import Draft
from chasquimq.repeat import StoredSpec
from chasquimq.store import Store, Witness
from chasquimq.trace import Batch, Tracing
from chasquimq.wire import decode_name


class Session:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        options: ProducerOptions,
        producer_id: str | None = None,
        observe: Observe | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.loop = loop
        self.live: Producer | None = None  # of the usual durability
        self._store = store
        self._options = options
        self._producer_id = producer_id
        self._observe = observe
        self._tracing = tracing
        self._producers: dict[Durability, Producer] = {}
        self._opened = False
        self._closed = False
        self._opening = asyncio.Lock()
        self._failed: StoreUnavailableError | None = None  # as the last try to open did

    async def store(self) -> Store:
        if not self._opened:
            async with self._trying():
                await self._open_store()
        return self._store

    async def producer(self, durability: Durability | None = None) -> Producer:
        """The one for this durability, opened when it is first asked for."""
        level = self._options.durable.durability if durability is None else durability
        check_durability(level)
        if level not in self._producers:
            async with self._trying():
                if level not in self._producers:
                    await self._open_store()
                    self._producers[level] = await self._open_producer(level)
        return self._producers[level]

    @asynccontextmanager
    async def _trying(self) -> AsyncIterator[None]:
        """One at a time. Whoever waited while it failed need not wait for the same again: a server
        that gives no answer takes its time, and would take it for each of them in turn."""
        before = self._failed
        async with self._opening:
            if self._failed is not None and self._failed is not before:
                raise StoreUnavailableError(*self._failed.args)
            try:
                yield
            except StoreUnavailableError as error:
                self._failed = error
                raise

    async def _open_producer(self, level: Durability) -> Producer:
        options, witness = self._options, None
        if level != "memory":
            witness = Witness(level, options.durable, self._store.keys)
        traced = self._tracing is not None
        producer = Producer(
            self._store,
            options,
            self._producer_id,
            self._observe,
            witness,
            traced=traced,
        )
        await producer.open()
        self._store.link.on_mended = partial(producer.tell, Reconnected("requests"))
        self._producer_id = producer.producer_id
        if level == options.durable.durability:
            self.live = producer
        return producer

    async def send(
        self,
        drafts: Sequence[Draft],
        created_ms: int,
        durability: Durability | None = None,
        *,
        plain: bool = False,
    ) -> tuple[list[str], Order]:
        """Send a bulk once there is room for it; answers the ids, and what to wait for. `plain`:
        none of it has an option."""
        try:
            return await self._send(drafts, created_ms, durability, plain=plain)
        except (QueueFullError, StoreUnavailableError) as error:
            error.outcomes = [error] * len(drafts)
            raise

    async def send_one(
        self, draft: Draft, created_ms: int, durability: Durability | None = None
    ) -> tuple[str, Order | None]:
        """Send one job once there is room for it, and wait; answers its id, and what is to be said
        of it."""
        if self._tracing is not None:
            [job_id], order = await self.send_traced([draft], created_ms, durability, "add")
            return job_id, order
        producer, since = await self._ready(durability, 1 if draft.due is None else 0)
        job_id, answer = producer.send_one(draft, created_ms, since)
        try:
            return job_id, await answer
        except asyncio.CancelledError:
            producer.withdraw()
            raise

    async def settled(self, order: Order) -> None:
        """Wait for the outcome of each of its jobs."""
        try:
            await order.future
        except asyncio.CancelledError:
            self.withdraw()
            raise

    def withdraw(self) -> None:
        """A caller waits no more: what is still in line for it is not sent."""
        for producer in self._producers.values():
            producer.withdraw()

    async def upsert(self, spec: StoredSpec) -> None:
        """Write a spec, in no more time than an add may take."""
        deadline, timetable = self._deadline("memory"), Timetable(self.store)
        try:
            async with asyncio.timeout(deadline.s):
                await timetable.upsert(spec)
        except TimeoutError:
            asked = self._opened and self._store.link.pipe is not None
            raise deadline.unwritten(spec.key, sent=asked or timetable.wrote) from None
        except StoreUnavailableError as error:
            if timetable.wrote:
                raise UnconfirmedError(
                    f"{error.args[0]}: spec {spec.key!r:.200} may be written, or not. Writing it "
                    "again is safe"
                ) from error
            raise deadline.unasked(error) from error

    async def send_traced(
        self,
        drafts: Sequence[Draft],
        created_ms: int,
        durability: Durability | None = None,
        operation: str = "add_bulk",
    ) -> tuple[list[str], Order]:
        """The same inside a span, which ends when all is answered; one job, or a bulk."""
        assert self._tracing is not None
        sending = self._tracing.sending(_batch(self._store.keys.queue, operation, drafts))
        if sending.carrier:
            drafts = [draft.carrying(sending.carrier) for draft in drafts]
        send = self._send if operation == "add" else self.send
        try:
            ids, order = await send(drafts, created_ms, durability)
            await self.settled(order)
        except BaseException as error:
            sending.failed(error)
            raise
        sending.sent(ids, len(order.duplicates), list(order.errors.values()))
        return ids, order

    async def _send(
        self,
        drafts: Sequence[Draft],
        created_ms: int,
        durability: Durability | None,
        *,
        plain: bool = False,
    ) -> tuple[list[str], Order]:
        now = len(drafts) if plain else sum([draft.due is None for draft in drafts])
        producer, since = await self._ready(durability, now)
        return producer.send(drafts, created_ms, since, plain=plain)

    async def _ready(
        self, durability: Durability | None, entering: int
    ) -> tuple[Producer, float | None]:
        """The producer, open and with room for so many; and since when the caller waits, None: it
        did not."""
        level = self._options.durable.durability if durability is None else durability
        check_durability(level)
        producer = self._producers.get(level)
        if producer is not None and (not entering or producer.gate.has_room(entering)):
            return producer, None
        since = self.loop.time()
        if producer is None:
            producer = await self._in_time(level, since)
        return producer, await producer.gate.admit(entering, since)

    async def _in_time(self, level: Durability, since: float) -> Producer:
        """The producer, opened before the caller has waited for too long."""
        deadline = self._deadline(level)
        try:
            async with asyncio.timeout_at(since + deadline.s):
                return await self.producer(level)
        except TimeoutError:
            raise deadline.unopened() from None
        except StoreUnavailableError as error:
            raise deadline.unasked(error) from error

    def _deadline(self, level: Durability) -> Deadline:
        return Deadline(self._options, self._store.dialer.address, durable=level != "memory")

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            async with AsyncExitStack() as open_things:  # a close that is cut off closes all
                if self._opened:
                    open_things.push_async_callback(self._store.close)
                for producer in self._producers.values():
                    open_things.push_async_callback(producer.close)

    async def _open_store(self) -> None:
        if self._closed:  # whoever waited for the lock behind a close opens nothing any more
            raise ShutdownError("the queue was closed while it was being opened")
        if not self._opened:
            await self._store.open()
            self._opened = True


class Sessions:
    """Those of one door: one for each event loop that it is used in, in whatever threads they run.
    What was open in one that is closed has ended with it."""

    def __init__(self) -> None:
        self._by_loop: dict[asyncio.AbstractEventLoop, Session] = {}

    def here(self, make: Callable[[asyncio.AbstractEventLoop], Session]) -> Session:
        """The one of the running event loop, made when it is first asked for."""
        loop = asyncio.get_running_loop()
        session = self._by_loop.get(loop)
        if session is None:
            for other in list(self._by_loop):
                if other.is_closed():
                    self._by_loop.pop(other, None)
            session = self._by_loop[loop] = make(loop)
        return session

    def known(self) -> Session | None:
        return self._by_loop.get(asyncio.get_running_loop())

    def leave(self) -> Session | None:
        """The same, to be closed: the next one will be another."""
        return self._by_loop.pop(asyncio.get_running_loop(), None)


def _batch(queue: str, operation: str, drafts: Sequence[Draft]) -> Batch:
    first = drafts[0]
    same = all(draft.name == first.name for draft in drafts)
    own_id = first.own_id if len(drafts) == 1 else None
    return Batch(
        queue,
        operation,
        len(drafts),
        decode_name(first.name) if same else "",
        own_id.decode() if own_id is not None else "",
        sum([len(draft.payload) for draft in drafts]),
    )


def raise_for(order: Order, accepted: Sequence[object]) -> None:
    """Raise if a bulk was not accepted whole, saying for each job what became of it."""
    if not order.errors:
        return
    errors = list(order.errors.values())
    outcomes = [error or job for error, job in zip(order.outcomes, accepted, strict=True)]
    for kind, what in ((UnconfirmedError, "confirmed"), (QueueFullError, "accepted")):
        if any(isinstance(error, kind) for error in errors):
            raise kind(
                f"{len(errors)} of {len(accepted)} jobs were not {what}, see .outcomes; "
                f"the first: {errors[0]}",
                outcomes,
            )
    first = errors[0]
    if isinstance(first, StoreError):
        first.outcomes = outcomes
    raise first
