"""Run handlers: long-lived workers that pull deliveries and report how they ended.

1. take the next delivery; one that cannot run (unreadable, too large, out of budget) is buried;
2. run the handler of its name on it;
3. hand its end to the outcomes: done, failed, or void, because it is no longer ours.

A slot is a task that runs job after job; a task per job would cost more than most jobs. It gives
way to the event loop once it has kept it for a whole turn, and it is replaced when a handler left
context variables behind, so that no handler sees another's.

Only the pool stops a slot, and it says so (`_stopping`). Any other cancellation of a slot's task
is the handler's own doing (a timer of a timeout library, `current_task().cancel()`): the run has
failed, and the slot goes on as another task. A slot whose task is cancelled between two jobs is
replaced.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Container, Coroutine
from functools import partial
from typing import Any

from chasquimq import wire
from chasquimq.config import WorkerOptions
from chasquimq.engine.holdings import Holdings
from chasquimq.engine.limit import Limits, Slot
from chasquimq.engine.outcome import Opened, Outcomes
from chasquimq.engine.settler import Settler
from chasquimq.engine.thread import Threads, is_async
from chasquimq.errors import NoHandlerError, WireError
from chasquimq.flow.pause import pause
from chasquimq.handler import OnError, Route, Router
from chasquimq.happening import Announce, Completed, Started
from chasquimq.job import Again, Dead, Envelope, Reason
from chasquimq.policy.verdict import budget, runs_so_far
from chasquimq.store import Row
from chasquimq.text import shown
from chasquimq.trace import Run, Running, Tracing

log = logging.getLogger("chasquimq.worker")

TURN_S = 0.001
LOOK_S = 0.05

Unwrap = Callable[[Envelope, str, int], Any]  # envelope, name, runs so far -> what a handler gets


Line = tuple[Callable[[Any], Awaitable[Any]], float]  # a handler, and its limit in s, 0: none


class Pool:
    def __init__(
        self,
        router: Router,
        unwrap: Unwrap,
        holdings: Holdings,
        settler: Settler,
        outcomes: Outcomes,
        announce: Announce,
        options: WorkerOptions,
        on_error: OnError | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._unwrap = unwrap
        self._holdings = holdings
        self._settler = settler
        self._outcomes = outcomes
        self._announce = announce
        self._options = options
        self._on_error = on_error
        self._tracer = tracer
        self._keeps = options.results.enabled
        self._names = outcomes.names
        self._max_bytes = options.read.max_payload_bytes
        self._max_attempts = options.retry.max_attempts
        self.threads = Threads(options.concurrency)
        self.slots = [Slot() for _ in range(options.concurrency)]
        self._lines = {name: self._line(route) for name, route in router.routes.items()}
        self._default = self._line(router.default or Route(_nobody(router)))
        self.alive = 0  # slots that take jobs, or run one
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._broken = False  # a slot has raised an error of ours: all are stopped
        self._ended = asyncio.Event()  # no slot is left
        self._clean = contextvars.copy_context()
        self._turn = 0.0
        limited = any(limit_s for _, limit_s in (*self._lines.values(), self._default))
        self._limits = Limits(self.slots, self._give_up) if limited else None

    async def run(self) -> None:
        """Work until the holdings are closed and everything started has ended."""
        self._task = asyncio.current_task()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                if self._limits is not None:
                    self._limits.start()
                for slot in self.slots:
                    self._spawn(slot)
                await self._ended.wait()  # inside, where a slot can still be replaced
        finally:
            self.threads.stop()
            if self._limits is not None:
                self._limits.stop()

    @property
    def begun(self) -> bool:
        return self._task is not None

    @property
    def running(self) -> list[Row]:
        """The deliveries whose handlers have not ended, or were cut off. Other threads may ask."""
        return [row for slot in self.slots if (row := slot.row) is not None]

    def kept(self) -> tuple[int, float]:
        """How many slots are kept by handlers that were given up and have not ended; and for how
        long all of them have been."""
        since = [slot.void_since for slot in self.slots if slot.void and slot.row is not None]
        full = len(since) == len(self.slots)
        return len(since), time.perf_counter() - max(since) if full else 0.0

    def cancel(self, lost: Container[bytes]) -> set[bytes]:
        """Stop the handlers of deliveries that are no longer ours; their outcome is void. Answers
        which they are, without those that were told before."""
        stopped = set()
        for slot in self.slots:
            if slot.row is not None and slot.row[0] in lost and not slot.void:
                slot.give_up(time.perf_counter())
                slot.cancel()
                stopped.add(slot.row[0])
        return stopped

    def _line(self, route: Route) -> Line:
        limit_ms = route.time_limit_ms or self._options.time_limit_ms or 0
        asynchronous = is_async(route.handler)
        call = route.handler if asynchronous else self.threads.wrap(route.handler)
        return call, limit_ms / 1000

    # -- one worker ----------------------------------------------------------------------------

    def _spawn(self, slot: Slot) -> None:
        assert self._group is not None
        context = self._clean.copy()
        work = self._work(slot) if self._tracer is None else self._tracer.watch(slot, self._work)
        slot.task = self._group.create_task(work, context=context)
        slot.task.add_done_callback(partial(self._slot_ended, slot))
        self.alive += 1

    def _slot_ended(self, slot: Slot, task: asyncio.Task[None]) -> None:
        self.alive -= 1
        if not task.cancelled() and task.exception() is not None:
            self._broken = True
        elif task.cancelled() and not (self._stopping() or self._holdings.closed):
            log.warning("a slot was cancelled from outside while it ran nothing; it is replaced")
            self._spawn(slot)
        if not self.alive:
            self._ended.set()

    def _stopping(self) -> bool:
        """Whether slots that are cancelled are cancelled by us."""
        return self._broken or self._task is None or self._task.cancelling() > 0

    async def _work(self, slot: Slot) -> None:
        holdings, settler, clock = self._holdings, self._settler, time.perf_counter
        announce, lines, default = self._announce, self._lines, self._default
        threads, limited, tracer = self.threads, self._limits is not None, self._tracer
        assert slot.task is not None
        cancellations = slot.task.cancelling
        rest = spoiled = False
        while True:
            while rest or not holdings.queue:
                rest = False
                if holdings.closed:
                    return
                await holdings.idle()
                self._turn = clock()
                rest = holdings.resting > 0  # a resting worker comes back for what there is
            if threads.busy >= threads.limit:
                await self._a_free_thread()
                continue
            row = holdings.queue.popleft()
            left = len(holdings.queue)
            if holdings.hungry and left <= holdings.low and holdings.feed():
                self._turn = 0.0  # rest soon, so that the reader asks while there is work left
            if left and not holdings.waking:
                holdings.wake()
            opened = self._open(row)
            if opened is None:
                continue
            envelope, name, _, ran, job, unique = opened
            entry_id = row[0]
            line: Line = lines.get(name, default)
            call, limit_s = line
            announce(Started(envelope.id, name, ran + 1, envelope.created_at_ms))
            error: BaseException | None = None
            result: Any = None
            begin = clock()
            slot.opened, slot.row = opened, row
            if limited:
                slot.limit(begin, limit_s)
            if tracer is not None:
                slot.trace = tracer.begin(row, opened)
            try:
                result = await call(job)
            except Exception as caught:
                error = caught
            except asyncio.CancelledError as caught:
                if self._stopping():
                    job.lease_lost = True  # it is given back
                    raise
                error = caught
            except KeyboardInterrupt:
                raise
            except BaseException as caught:  # SystemExit and the like: no handler ends a worker
                if isinstance(caught, GeneratorExit) and not _runs(slot.task):
                    raise  # the event loop is gone, and this coroutine is being closed
                error = caught
            end = clock()
            slot.row = None
            duration_us = int((end - begin) * 1e6)
            if self._keeps and error is None and not slot.cancelled:
                error = self._outcomes.returned(opened, entry_id, result, duration_us)
            elif error is None and not slot.cancelled:
                announce(Completed(envelope.id, name, ran + 1, duration_us))
                if unique:
                    self._outcomes.free(opened, entry_id)
                else:
                    settler.ack(entry_id)
            if error is not None or slot.cancelled:
                spoiled = await self._ended_badly(slot, opened, entry_id, error, duration_us)
                error = None
            if tracer is not None:
                tracer.end(slot)
            if holdings.closed:
                return
            if spoiled or cancellations():
                if self._stopping():
                    return  # also when the handler swallowed our cancellation
                await self._take_back_cancellations(slot.task)
                self._spawn(slot)  # its second timer finds a task that has ended
                return
            if contextvars.copy_context() != self._clean:
                self._spawn(slot)
                return
            if end - self._turn > TURN_S:
                await self._rest()

    async def _rest(self) -> None:
        """Let sockets and timers in. While someone rests nobody else is woken: a hundred
        workers that each keep the loop for a turn would keep it for a hundred."""
        self._holdings.resting += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._holdings.resting -= 1
            self._turn = time.perf_counter()

    async def _take_back_cancellations(self, task: asyncio.Task[None]) -> None:
        """A handler has cancelled its own task. Nothing of that may reach what runs here next."""
        while task.cancelling() and not self._stopping():
            task.uncancel()
        try:
            await asyncio.sleep(0)  # where one that was not delivered yet arrives
        except asyncio.CancelledError:
            if self._stopping():
                raise

    async def _a_free_thread(self) -> None:
        """A function that was given up keeps its thread: take nothing that could not start."""
        threads = self.threads
        while threads.busy >= threads.limit and not self._holdings.closed:
            threads.freed.clear()
            await pause(threads.freed, LOOK_S)

    # -- before and after the handler ----------------------------------------------------------

    def _open(self, row: Row) -> Opened | None:
        """Make a job of a delivery; bury it (and answer None) if it cannot be one."""
        entry_id, fields = row[0], row[1]
        split = wire.split_entry(fields)
        outcomes = self._outcomes
        if isinstance(split, str):
            outcomes.bury(entry_id, b"", b"", Dead(0, Reason.MALFORMED), detail=split)
            return None
        body, raw_name = split
        if len(body) > self._max_bytes:
            outcomes.bury(entry_id, body, raw_name, Dead(0, Reason.OVERSIZE_PAYLOAD))
            return None
        name = self._names.get(raw_name)
        if name is None:
            name = outcomes.name(raw_name)
        try:
            envelope = wire.unpack_envelope(body)
            unique = wire.unique_hint(fields) if len(fields) > 4 else b""
            ran = runs_so_far(envelope, row[3]) if len(row) > 3 else envelope.attempt
            limit = self._max_attempts
            if envelope.retry is not None:
                limit = budget(envelope, self._options.retry)
            if ran >= limit:
                dead = Dead(ran, Reason.RETRIES_EXHAUSTED)
                outcomes.bury(entry_id, body, raw_name, dead, (envelope, unique))
                return None
            return envelope, name, raw_name, ran, self._unwrap(envelope, name, ran), unique
        except WireError as error:
            outcomes.bury(entry_id, body, raw_name, Dead(0, Reason.DECODE_FAILED), error=error)
            return None

    async def _ended_badly(
        self,
        slot: Slot,
        opened: Opened,
        entry_id: bytes,
        error: BaseException | None,
        duration_us: int,
    ) -> bool:
        """It failed, or we ended it: its time was over, or it is no longer ours. Answers whether
        somebody else has cancelled it, too."""
        expired, settled = slot.expired, slot.void
        slot.recover()
        spoiled = slot.task is not None and slot.task.cancelling() > 0
        if expired is not None:
            error = expired
        trace = slot.trace
        if settled or error is None:
            if trace is not None:
                trace.dropped("lease lost")
            return spoiled  # someone else holds it now and settles it, or its failure is settled
        verdict = self._outcomes.failed(opened, entry_id, error, duration_us)
        if trace is not None:
            trace.failed(error, verdict)
        if self._on_error is not None:
            if slot.task is not None and spoiled and not self._stopping():
                await self._take_back_cancellations(slot.task)
            await self._tell(opened, error, verdict)
        return spoiled

    def _give_up(self, slot: Slot, duration_us: int) -> None:
        """Its time is over, and it does not end: it has failed."""
        opened, error = slot.opened, slot.expired
        assert slot.row is not None and opened is not None and error is not None
        verdict = self._outcomes.failed(opened, slot.row[0], error, duration_us)
        if slot.trace is not None:
            slot.trace.failed(error, verdict)
        if self._on_error is not None and self._group is not None:
            self._group.create_task(self._tell(opened, error, verdict))

    async def _tell(self, opened: Opened, error: BaseException, verdict: Again | Dead) -> None:
        assert self._on_error is not None
        try:
            told = self._on_error(opened[4], error, verdict)
            if inspect.isawaitable(told):
                await told
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            if isinstance(failure, asyncio.CancelledError) and self._stopping():
                raise  # else the cancellation is its own affair
            if isinstance(failure, GeneratorExit) and not _runs(asyncio.current_task()):
                raise
            log.exception("on_error failed for job %s", shown(opened[0].id, 200))


class Tracer:
    """Begins the trace of a run, and makes it that of all that its worker does until it ends."""

    def __init__(self, tracing: Tracing, queue: str, group: str) -> None:
        self._tracing = tracing
        self._queue = queue
        self._group = group

    def begin(self, row: Row, opened: Opened) -> Running:
        envelope, name, _, ran, _, _ = opened
        fields = row[1]
        carrier = wire.carrier_of(fields) if len(fields) > 4 else b""
        before = row[3] if len(row) > 3 else 0
        created_ms = envelope.created_at_ms
        run = Run(self._queue, self._group, envelope.id, name, ran + 1, before, created_ms, carrier)
        trace = self._tracing.running(run)
        trace.enter()
        return trace

    def end(self, slot: Slot) -> None:
        trace, slot.trace = slot.trace, None
        if trace is not None:
            trace.completed()  # unless it was said how else it ended
            trace.leave()

    async def watch(self, slot: Slot, work: Callable[[Slot], Coroutine[Any, Any, None]]) -> None:
        """A worker's life. What it runs when it is cut off, or crashes, is given back."""
        try:
            await work(slot)
        finally:
            if slot.trace is not None:
                slot.trace.dropped("given back")


def _runs(task: asyncio.Task[None] | None) -> bool:
    """Whether a task is the one that runs now; without a running event loop none does."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False


def _nobody(router: Router) -> Callable[[Any], Awaitable[Any]]:
    """What runs jobs of a name that nobody handles: they fail, for good."""
    known = ", ".join(sorted(map(repr, router.routes)))

    async def refuse(job: Any) -> None:
        raise NoHandlerError(
            f"this worker has no handler for jobs named {job.name!r:.80}; it has: {known:.500}"
        )

    return refuse
