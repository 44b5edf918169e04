"""What a producers' door has open in one event loop: the store, and producers once it adds.

There is one producer for each kind of durability that is used, because a wait holds up everything
behind it on its connection. They share their name, so that the server recognises a job that is
added again with another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chasquimq.config import Durability, ProducerOptions, check_durability
from chasquimq.engine.herald import Observe
from chasquimq.engine.order import Order
from chasquimq.engine.producer import Producer
from chasquimq.errors import QueueFullError, ShutdownError, UnconfirmedError
from chasquimq.job import Draft
from chasquimq.store import Store, Witness


class Session:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        options: ProducerOptions,
        producer_id: str | None = None,
        observe: Observe | None = None,
    ) -> None:
        self.loop = loop
        self.live: Producer | None = None  # of the usual durability
        self._store = store
        self._options = options
        self._producer_id = producer_id
        self._observe = observe
        self._producers: dict[Durability, Producer] = {}
        self._opened = False
        self._closed = False
        self._opening = asyncio.Lock()

    async def store(self) -> Store:
        if not self._opened:
            async with self._opening:
                await self._open_store()
        return self._store

    async def producer(self, durability: Durability | None = None) -> Producer:
        """The one for this durability, opened when it is first asked for."""
        level = self._options.durable.durability if durability is None else durability
        check_durability(level)
        if level not in self._producers:
            async with self._opening:
                if level not in self._producers:
                    await self._open_store()
                    self._producers[level] = await self._open_producer(level)
        return self._producers[level]

    async def _open_producer(self, level: Durability) -> Producer:
        options, witness = self._options, None
        if level != "memory":
            witness = Witness(level, options.durable, self._store.keys)
        producer = Producer(self._store, options, self._producer_id, self._observe, witness)
        await producer.open()
        self._producer_id = producer.producer_id
        if level == options.durable.durability:
            self.live = producer
        return producer

    async def send(
        self, drafts: Sequence[Draft], created_ms: int, durability: Durability | None = None
    ) -> tuple[list[str], Order]:
        """Send a bulk once there is room for it; answers the ids, and what to wait for."""
        producer = await self.producer(durability)
        try:
            await producer.admit(sum([draft.due is None for draft in drafts]))
        except QueueFullError as error:
            error.outcomes = [error] * len(drafts)
            raise
        return producer.send(drafts, created_ms)

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            for producer in self._producers.values():
                await producer.close()
            if self._opened:
                await self._store.close()

    async def _open_store(self) -> None:
        if self._closed:  # whoever waited for the lock behind a close opens nothing any more
            raise ShutdownError("the queue was closed while it was being opened")
        if not self._opened:
            await self._store.open()
            self._opened = True


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
    raise errors[0]
