"""What a producers' door has open in one event loop: the store, and a producer once it adds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chasquimq.config import ProducerOptions
from chasquimq.engine.herald import Observe
from chasquimq.engine.producer import Order, Producer
from chasquimq.errors import QueueFullError, ShutdownError, UnconfirmedError
from chasquimq.job import Draft
from chasquimq.store import Store


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
        self.live: Producer | None = None
        self._store = store
        self._options = options
        self._producer_id = producer_id
        self._observe = observe
        self._opened = False
        self._closed = False
        self._opening = asyncio.Lock()

    async def store(self) -> Store:
        if not self._opened:
            async with self._opening:
                await self._open_store()
        return self._store

    async def producer(self) -> Producer:
        if self.live is None:
            async with self._opening:
                if self.live is None:
                    await self._open_store()
                    producer = Producer(
                        self._store, self._options, self._producer_id, self._observe
                    )
                    await producer.open()
                    self.live = producer
        return self.live

    async def send(self, drafts: Sequence[Draft], created_ms: int) -> tuple[list[str], Order]:
        """Send a bulk once there is room for it; answers the ids, and what to wait for."""
        producer = await self.producer()
        try:
            await producer.admit(sum([draft.due is None for draft in drafts]))
        except QueueFullError as error:
            error.outcomes = [error] * len(drafts)
            raise
        return producer.send(drafts, created_ms)

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            if self.live is not None:
                await self.live.close()
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
    for kind in (UnconfirmedError, QueueFullError):
        if any(isinstance(error, kind) for error in errors):
            raise kind(
                f"{len(errors)} of {len(accepted)} jobs were not accepted, see .outcomes; "
                f"the first: {errors[0]}",
                outcomes,
            )
    raise errors[0]
