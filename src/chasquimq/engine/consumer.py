"""The wiring diagram: reader → holdings → pool → settler, with lease and promoter beside them.

Stopping is closing, and the nesting is its order: the reader stops, what nobody started is
given back, the workers run dry (what outlives the deadline is cancelled and given back), the
settler writes the rest, our name leaves the group, the lock is released, connections close.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from chasquimq.config import WorkerOptions
from chasquimq.engine.holdings import Holdings
from chasquimq.engine.lease import Lease
from chasquimq.engine.pool import Handler, Pool, Unwrap
from chasquimq.engine.promoter import Promoter
from chasquimq.engine.reader import Reader
from chasquimq.engine.settler import Settler
from chasquimq.errors import ChasquiError, StoreError
from chasquimq.flow.unwrap import unwrapped
from chasquimq.happening import Announce
from chasquimq.store import Jobs, Row, Store, build

log = logging.getLogger(__name__)

GOODBYE_S = 5.0  # how long a stop may wait for Redis
PAGE = 500

Observe = Callable[[Settler], Announce]  # the events sink writes through the settler


class Consumer:
    """One worker's loops on one queue. Built inside the event loop that runs it, used once."""

    def __init__(
        self,
        store: Store,
        handler: Handler,
        unwrap: Unwrap,
        observe: Observe,
        consumer_id: str,
        options: WorkerOptions,
    ) -> None:
        dialect = build(store.dialect_name, store.keys, group=options.group)
        self._options = options
        self._stop = asyncio.Event()
        self._failure: ChasquiError | None = None
        self._jobs = Jobs(store.keys, dialect, store.link, options.group, consumer_id)
        self._holdings = Holdings(options.concurrency)
        self._settler = Settler(
            store, dialect, self._holdings, options.settle, options.events.max_waiting
        )
        announce = observe(self._settler)
        self._reader = Reader(
            store, self._jobs, self._holdings, announce, options.read, options.stream
        )
        self._pool = Pool(
            handler, unwrap, self._holdings, self._settler, self._jobs, announce, options
        )
        self._promoter = Promoter(store, consumer_id, announce, options.promote)
        self._lease = Lease(store, self._jobs, options.read.claim_idle_ms, self._held, self._lost)

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        """Run until `stop`, then until everything held is settled or given back."""
        await self._jobs.join(self._options.stream)
        async with AsyncExitStack() as open_things:
            for link in (self._settler.link, self._reader.link):
                link.on_given_up = self._given_up
                await link.open()
                open_things.push_async_callback(link.close)
            await self._lease.start()
            open_things.push_async_callback(self._lease.stop)
            with unwrapped():
                async with asyncio.TaskGroup() as beside:
                    if self._options.promote.enabled:
                        beside.create_task(self._promoter.run())
                    try:
                        await self._work()
                    finally:
                        await self._farewell()
                        self._promoter.stop()
        if self._failure is not None:
            raise self._failure

    async def _work(self) -> None:
        reader, drain_s = self._reader, self._options.drain_ms / 1000
        try:
            async with asyncio.timeout(None) as drain, asyncio.TaskGroup() as inside:
                inside.create_task(self._pool.run())
                inside.create_task(reader.read())
                inside.create_task(reader.recover(self._lease.steady))
                await self._stop.wait()
                await reader.stop()
                await self._give_back(self._holdings.close())
                drain.reschedule(asyncio.get_running_loop().time() + drain_s)
        except TimeoutError:
            log.warning("handlers outlived the drain deadline; their jobs are given back")

    async def _farewell(self) -> None:
        """Settle what ended, give back what did not, leave the group; not for ever, if Redis
        is away: leases run out by themselves."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self._settler.quiet()
                self._holdings.close()
                with suppress(StoreError):
                    # Not only what we know of: a lost reply may have brought more.
                    while rows := await self._jobs.adopt(PAGE):
                        if not await self._jobs.give_back(rows):
                            break
                    await self._jobs.leave()

    async def _give_back(self, rows: list[Row]) -> None:
        try:
            await self._jobs.give_back(rows)
        except StoreError as error:
            log.warning("%d jobs wait for their leases to run out: %s", len(rows), error)
        self._holdings.release([row[0] for row in rows])

    def _held(self) -> list[bytes]:
        return list(self._holdings.ids)

    def _lost(self, ids: list[bytes]) -> None:
        self._pool.cancel(set(ids))
        self._holdings.drop(ids)

    def _given_up(self, error: ChasquiError) -> None:
        self._failure = error
        self.stop()
