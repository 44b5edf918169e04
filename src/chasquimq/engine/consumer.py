"""The wiring diagram: reader → holdings → pool → settler; beside it lease, promoter, scheduler and
janitor.

Stopping is closing, and the nesting is its order: the reader stops, what nobody started is
given back, the workers run dry (what outlives the deadline is cancelled and given back), the
settler writes the rest, our name leaves the group, the lock is released, connections close.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from chasquimq.config import WorkerOptions
from chasquimq.engine.checkup import checkup
from chasquimq.engine.ear import PAUSE, Ear
from chasquimq.engine.holdings import Holdings
from chasquimq.engine.janitor import Janitor
from chasquimq.engine.lease import Lease
from chasquimq.engine.outcome import Outcomes, Wrap
from chasquimq.engine.overdue import Overdue
from chasquimq.engine.pool import Pool, Tracer, Unwrap
from chasquimq.engine.promoter import Promoter
from chasquimq.engine.pulse import Pulse
from chasquimq.engine.reader import Reader
from chasquimq.engine.recovery import Recovery
from chasquimq.engine.scheduler import Scheduler
from chasquimq.engine.settler import Settler
from chasquimq.errors import ChasquiError, StoreError
from chasquimq.flow.cutoff import Cutoff
from chasquimq.flow.unwrap import unwrapped
from chasquimq.handler import OnError, Router
from chasquimq.happening import Announce, GivenBack, LeasesLost, Reconnected
from chasquimq.health import Health, State
from chasquimq.store import Jobs, Link, Row, Store, build
from chasquimq.text import said
from chasquimq.trace import Tracing
from chasquimq.wire.right import of_worker

log = logging.getLogger("chasquimq.worker")

GOODBYE_S = 3.0  # how long a stop may wait for Redis, once no handler runs any more
PAGE = 500

Observe = Callable[[Settler], Announce]  # the events sink writes through the settler


class Consumer:
    """One worker's loops on one queue. Built inside the event loop that runs it, used once."""

    def __init__(
        self,
        store: Store,
        router: Router,
        unwrap: Unwrap,
        wrap: Wrap,
        observe: Observe,
        consumer_id: str,
        options: WorkerOptions,
        *,
        stable: bool = False,
        on_error: OnError | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        dialect = build(store.dialect_name, store.keys, group=options.group)
        self.state: State = "starting"
        self.leases_lost = 0
        self.given_back = 0
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.options = options
        self._store = store
        self._stable = stable
        self._brought = 0  # by promoter and scheduler, when last asked
        self._stop = asyncio.Event()
        self._opening = Cutoff()
        self._loop = asyncio.get_running_loop()
        self._deadline: float | None = None  # of what a stop asks of Redis
        self._left = False  # the group: nothing is pending under our name
        self._failure: ChasquiError | None = None
        self._jobs = Jobs(store.keys, dialect, store.link, options.group, consumer_id)
        self.holdings = Holdings(options.concurrency)
        self.settler = Settler(
            store,
            self._jobs,
            self.holdings,
            options.settle,
            options.events.max_waiting,
            options.results.ttl_s,
        )
        announce = self.announce = self.settler.announce = observe(self.settler)
        self.reader = Reader(
            store,
            self._jobs,
            self.holdings,
            announce,
            options.read,
            options.stream,
            options.until,
        )
        outcomes = self.outcomes = Outcomes(self.settler, self._jobs, announce, wrap, options)
        self.pool = Pool(
            router,
            unwrap,
            self.holdings,
            self.settler,
            outcomes,
            announce,
            options,
            on_error,
            Tracer(tracing, store.keys.queue, options.group) if tracing is not None else None,
        )
        self._ear = Ear(store)
        self._ear.wake(self.reader.brake.nudge, PAUSE)
        self.promoter = Promoter(store, consumer_id, announce, options.promote, self._ear)
        self.scheduler = Scheduler(store, consumer_id, announce, options.schedule, self._ear)
        lease_ms = options.read.claim_idle_ms
        self.lease = Lease(
            store,
            self._jobs,
            lease_ms,
            self._held,
            self._lost,
            self._run_now,
            lambda: options.concurrency + len(self.reader.left_over),
            options.settle.batch,
        )
        self.recovery = Recovery(
            self._jobs,
            store.hold,
            self.reader,
            self.holdings,
            announce,
            options.read,
            options.retry.max_attempts,
            self.lease.steady,
        )
        self.settler.fresh = self.lease.fresh
        self.knock = self._jobs.knock()
        self.overdue = Overdue(self)
        self.pulse = Pulse(consumer_id, announce, self.health)
        self._janitor = Janitor(
            self._jobs, announce, options.janitor, lease_ms, lambda: self.promoter.leads
        )

    def stop(self) -> None:
        self._stop.set()
        self._opening.set(GOODBYE_S)

    def health(self) -> Health:
        return checkup(self)

    @property
    def links(self) -> dict[str, Link | None]:
        """What each of our connections is for."""
        return {
            "requests": self._store.link,
            "reader": self.reader.link,
            "settler": self.settler.link,
            "lease": self.lease.link,
        }

    async def run(self) -> None:
        """Run until `stop`, or a limit, then until everything held is settled or given back."""
        try:
            await self._run()
            if self._failure is not None:
                raise self._failure
        except BaseException as error:
            self.state = "failed"
            self.pulse.end(Health(state="failed", problems=(said(error) or type(error).__name__,)))
            raise
        self.state = "stopped"
        self.pulse.end(Health(state="stopped"))

    async def _run(self) -> None:
        async with AsyncExitStack() as open_things:
            if not await self._opening.run(self._open(open_things)):
                log.warning("stopped before Redis had answered all that a worker asks at first")
                return
            self._listen()
            with unwrapped():
                async with asyncio.TaskGroup() as beside:
                    await self._begin_leading(beside, open_things)
                    self._begin(beside, "pulse", self.pulse.run())
                    try:
                        await self._work()
                    finally:
                        self.state = "stopping"
                        await self._farewell()
                        for beat in (self._janitor, self.promoter, self.scheduler, self.pulse):
                            beat.stop()

    async def _open(self, open_things: AsyncExitStack) -> None:
        await self._store.check_rights(
            of_worker(
                delayed=self.options.promote.enabled, scheduler=self.options.schedule.enabled
            ),
            f"a worker of queue {self._store.keys.queue!r} needs; no job was run",
        )
        await self._jobs.join(self.options.stream)
        # Before anything is read: only older entries can have been left by an earlier run.
        if self._stable:
            await self.recovery.look_at_own(await self._jobs.last_delivered())
        for link in (self.settler.link, self.reader.link):
            link.on_given_up = self._given_up
            open_things.push_async_callback(link.close)
            await link.open()
        # Behind the end of the leases, which would write it down again.
        open_things.push_async_callback(self._forget_what_we_started)
        open_things.push_async_callback(self.lease.stop)
        await self.lease.start()

    async def _begin_leading(self, beside: asyncio.TaskGroup, open_things: AsyncExitStack) -> None:
        promotes, schedules = self.options.promote.enabled, self.options.schedule.enabled
        if promotes or schedules:
            await self._ear.open()
            open_things.push_async_callback(self._ear.close)
        if promotes:
            self._begin(beside, "promoter", self.promoter.run())
            self._begin(beside, "janitor", self._janitor.run())
        if schedules:
            self._begin(beside, "scheduler", self.scheduler.run())

    async def _work(self) -> None:
        drain_s = self.options.drain_ms / 1000
        limit_ms = self.options.until.max_runtime_ms
        await self.reader.brake.look()
        try:
            async with asyncio.timeout(None) as drain, asyncio.TaskGroup() as inside:
                self._begin(inside, "pool", self.pool.run())
                self._begin(inside, "reader", self._read())
                self._begin(inside, "brake", self.reader.brake.run())
                self._begin(inside, "claimer", self.recovery.run())
                inside.create_task(self.overdue.run(), name="chasqui-overdue")
                self.state = "running"
                with suppress(TimeoutError):
                    async with asyncio.timeout(limit_ms and limit_ms / 1000):
                        await self._stop.wait()
                self.state = "stopping"
                drain.reschedule(self._loop.time() + drain_s)
                inside.create_task(self._stop_reading())
                await asyncio.wait([self.tasks["pool"]])
                self.overdue.stop()
                self._set_deadline()
        except TimeoutError:
            log.warning(
                "handlers cancelled at the drain deadline of %.1f s: %d; their jobs are given "
                "back, and these runs count as attempts",
                drain_s,
                len(self.pool.running),
            )
        finally:
            self._set_deadline()

    async def _stop_reading(self) -> None:
        """Give back what nobody started; what is read until the reader has stopped as well."""
        self.recovery.stop()
        rows = self.holdings.close()
        await self.reader.stop()
        await self._give_back([*rows, *self.holdings.close()])

    def _set_deadline(self) -> None:
        """No handler runs any more: what is left waits for Redis alone, and not for long."""
        if self._deadline is None:
            self._deadline = self._loop.time() + GOODBYE_S
            for link in (self._store.link, self.reader.link, self.settler.link):
                link.end_by(self._deadline)

    async def _read(self) -> None:
        await self.reader.read(self._more)
        self.stop()  # it came to its end by itself

    async def _more(self) -> bool:
        """Whether due jobs came into the stream since this was last asked."""
        try:
            if self.options.schedule.enabled:
                await self.scheduler.tick()
            if self.options.promote.enabled:
                await self.promoter.tick()
        except StoreError as error:
            log.warning("cannot look for due jobs, trying again: %s", error)
            return True
        before, self._brought = self._brought, self.promoter.promoted + self.scheduler.fired
        return before != self._brought

    def _begin(self, group: asyncio.TaskGroup, name: str, loop: Coroutine[Any, Any, None]) -> None:
        self.tasks[name] = group.create_task(loop, name=f"chasqui-{name}")

    def _listen(self) -> None:
        """Tell of connections that were mended; the lease's is mended in another thread."""
        here = asyncio.get_running_loop()
        for name, link in self.links.items():
            if link is not None:
                link.on_mended = partial(_tell, here, partial(self.announce, Reconnected(name)))

    async def _farewell(self) -> None:
        """Settle what ended, give back what did not, leave the group; not for ever, if Redis
        is away: leases run out by themselves."""
        self._set_deadline()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._deadline):
                await self.settler.quiet()
                self.holdings.close()
                with suppress(StoreError):
                    self._count_back(await self._jobs.give_back_charged(self.pool.running))
                    # Not only what we know of: a lost reply may have brought more.
                    while rows := await self._jobs.adopt(PAGE):
                        for row in rows:
                            # Not delivered to us: what an earlier run left, and crashed with. Or it
                            # has run here, and Redis refuses to settle it: that run counts.
                            row[3] += row[0] in self.reader.left_over | self.holdings.aside
                        back = await self._jobs.give_back(rows)
                        if not back:
                            break
                        self._count_back(back)
                    self._left = await self._jobs.leave()

    async def _forget_what_we_started(self) -> None:
        if self._left:
            with suppress(StoreError):
                await self._jobs.forget_started()

    async def _give_back(self, rows: list[Row]) -> None:
        try:
            self._count_back(await self._jobs.give_back(rows))
        except StoreError as error:
            log.warning("%d jobs wait for their leases to run out: %s", len(rows), error)
        self.holdings.release([row[0] for row in rows])

    def _count_back(self, count: int) -> None:
        if count:
            self.given_back += count
            self.announce(GivenBack(count))

    def _run_now(self) -> list[bytes]:
        return [row[0] for row in self.pool.running]

    def _held(self) -> list[bytes]:
        return list(self.holdings.ids)

    def _lost(self, ids: list[bytes]) -> None:
        # What has ended may have been acked while the answer travelled, and lost nothing.
        gone = {row[0] for row in self.holdings.queue}.intersection(ids) | self.pool.cancel(ids)
        if not gone:
            return
        self.leases_lost += len(gone)
        log.warning("lost the leases of %d jobs; their handlers are cancelled", len(gone))
        self.announce(LeasesLost(len(gone)))
        self.holdings.drop(gone)

    def _given_up(self, error: ChasquiError) -> None:
        self._failure = error
        self.stop()


def _tell(loop: asyncio.AbstractEventLoop, announce: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(announce)
