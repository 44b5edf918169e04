"""Run handlers: long-lived workers that pull deliveries and report how they ended.

1. take the next delivery; one that cannot run (unreadable, too large, out of budget) is buried;
2. run the handler on it;
3. ack it, or ask the policy what follows from its error: another run, or the DLQ.

A worker is not a task per job, which would cost more than most jobs. It gives way to the event
loop once it has kept it for a whole turn, and it is replaced when a handler left context
variables behind, so that no handler sees another's.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from chasquimq import wire
from chasquimq.config import WorkerOptions
from chasquimq.engine.holdings import Holdings
from chasquimq.engine.settler import Move, Settler
from chasquimq.errors import WireError
from chasquimq.happening import Announce, Buried, Completed, Failed, RetryScheduled, Started
from chasquimq.job import Again, Dead, Envelope, Reason
from chasquimq.policy.verdict import budget, judge, runs_so_far
from chasquimq.store import Jobs, Row

log = logging.getLogger(__name__)

TURN_S = 0.001
WARN_EVERY = 100

Handler = Callable[[Any], Awaitable[Any]]
Unwrap = Callable[[Envelope, str, int], Any]  # envelope, name, runs so far -> what a handler gets


# Envelope, name, raw name, runs so far, what the handler gets. A plain tuple: there is one per
# job, and a named one costs more to make than the envelope costs to decode.
Opened = tuple[Envelope, str, bytes, int, Any]


class Pool:
    def __init__(
        self,
        handler: Handler,
        unwrap: Unwrap,
        holdings: Holdings,
        settler: Settler,
        jobs: Jobs,
        announce: Announce,
        options: WorkerOptions,
    ) -> None:
        self._handler = handler
        self._unwrap = unwrap
        self._holdings = holdings
        self._settler = settler
        self._jobs = jobs
        self._announce = announce
        self._options = options
        self._max_bytes = options.read.max_payload_bytes
        self._max_attempts = options.retry.max_attempts
        self._names: dict[bytes, str] = {}
        self._running: list[Row | None] = [None] * options.concurrency
        self._tasks: list[asyncio.Task[None] | None] = [None] * options.concurrency
        self._lost: set[bytes] = set()
        self._group: asyncio.TaskGroup | None = None
        self._clean = contextvars.copy_context()
        self._turn = 0.0

    async def run(self) -> None:
        """Work until the holdings are closed and everything started has ended."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for slot in range(self._options.concurrency):
                self._spawn(slot)

    def running(self) -> list[Row]:
        """The deliveries whose handlers have not ended."""
        return [row for row in self._running if row is not None]

    def cancel(self, lost: set[bytes]) -> None:
        """Stop the handlers of deliveries that are no longer ours; their outcome is void."""
        for slot, row in enumerate(self._running):
            task = self._tasks[slot]
            if row is not None and row[0] in lost and task is not None:
                self._lost.add(row[0])
                task.cancel()

    # -- one worker ----------------------------------------------------------------------------

    def _spawn(self, slot: int) -> None:
        assert self._group is not None
        context = self._clean.copy()
        self._tasks[slot] = self._group.create_task(self._work(slot), context=context)

    async def _work(self, slot: int) -> None:
        holdings, settler, clock = self._holdings, self._settler, time.perf_counter
        running, handler, announce = self._running, self._handler, self._announce
        rest = False
        while True:
            while rest or not holdings.queue:
                rest = False
                if holdings.closed:
                    return
                await holdings.idle()
                self._turn = clock()
                rest = holdings.resting > 0  # a resting worker comes back for what there is
            row = holdings.queue.popleft()
            left = len(holdings.queue)
            if holdings.hungry and left <= holdings.low and holdings.feed():
                self._turn = 0.0  # rest soon, so that the reader asks while there is work left
            if left and not holdings.waking:
                holdings.wake()
            opened = self._open(row)
            if opened is None:
                continue
            envelope, name, _, ran, job = opened
            entry_id = row[0]
            running[slot] = row
            announce(Started(envelope.id, name, ran + 1, envelope.created_at_ms))
            error: BaseException | None = None
            begin = clock()
            try:
                await handler(job)
            except Exception as caught:
                error = caught
            except asyncio.CancelledError as caught:
                if not self._survives(slot, entry_id):
                    raise
                error = caught
            end = clock()
            running[slot] = None
            if self._lost and self._forget(slot, entry_id):
                pass  # someone else holds it now, and settles it
            elif error is None:
                announce(Completed(envelope.id, name, ran + 1, int((end - begin) * 1e6)))
                settler.ack(entry_id)
            else:
                self._failed(opened, entry_id, error, int((end - begin) * 1e6))
                error = None
            task = self._tasks[slot]
            if holdings.closed or (task is not None and task.cancelling()):
                return  # nothing more is started; also when the handler swallowed our cancellation
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

    def _survives(self, slot: int, entry_id: bytes) -> bool:
        """Whether a cancellation was the handler's own affair or its lost lease's, not ours."""
        task = self._tasks[slot]
        return task is None or not task.cancelling() or entry_id in self._lost

    def _forget(self, slot: int, entry_id: bytes) -> bool:
        """Whether this delivery was lost while it ran; the worker lives on."""
        if entry_id not in self._lost:
            return False
        self._lost.discard(entry_id)
        task = self._tasks[slot]
        if task is not None and task.cancelling():
            task.uncancel()
        return True

    # -- before and after the handler ----------------------------------------------------------

    def _open(self, row: Row) -> Opened | None:
        """Make a job of a delivery; bury it (and answer None) if it cannot be one."""
        entry_id, fields = row[0], row[1]
        split = wire.split_entry(fields)
        if isinstance(split, str):
            self._bury(entry_id, b"", b"", Dead(0, Reason.MALFORMED), detail=split)
            return None
        body, raw_name = split
        if len(body) > self._max_bytes:
            self._bury(entry_id, body, raw_name, Dead(0, Reason.OVERSIZE_PAYLOAD))
            return None
        name = self._names.get(raw_name)
        if name is None:
            name = self._name(raw_name)
        try:
            envelope = wire.unpack_envelope(body)
            ran = runs_so_far(envelope, row[3]) if len(row) > 3 else envelope.attempt
            limit = self._max_attempts
            if envelope.retry is not None:
                limit = budget(envelope, self._options.retry)
            if ran >= limit:
                dead = Dead(ran, Reason.RETRIES_EXHAUSTED)
                self._bury(entry_id, body, raw_name, dead, job_id=envelope.id)
                return None
            return envelope, name, raw_name, ran, self._unwrap(envelope, name, ran)
        except WireError as error:
            self._bury(entry_id, body, raw_name, Dead(0, Reason.DECODE_FAILED), error=error)
            return None

    def _failed(
        self, opened: Opened, entry_id: bytes, error: BaseException, duration_us: int
    ) -> None:
        envelope, name, raw_name, ran, _ = opened
        ran += 1
        text = str(error) or type(error).__name__
        self._announce(Failed(envelope.id, name, ran, duration_us, text))
        verdict = judge(envelope, ran, error, self._options.retry, random.randrange)
        if isinstance(verdict, Dead):
            body = wire.pack_envelope(envelope)
            self._bury(entry_id, body, raw_name, verdict, job_id=envelope.id, error=error)
            return
        self._retry(entry_id, envelope, name, raw_name, verdict)

    def _retry(
        self, entry_id: bytes, envelope: Envelope, name: str, raw_name: bytes, again: Again
    ) -> None:
        envelope.attempt = again.attempt
        member = wire.join_member(raw_name, wire.pack_envelope(envelope))
        command = self._jobs.retry(entry_id, again.delay_ms, member)

        def moved(answer: int) -> None:
            if answer:
                happening = RetryScheduled(envelope.id, name, again.attempt + 1, again.delay_ms)
                self._announce(happening)

        self._settler.move(Move(entry_id, command, moved))

    def _bury(
        self,
        entry_id: bytes,
        body: bytes,
        raw_name: bytes,
        dead: Dead,
        *,
        job_id: str = "",
        error: BaseException | None = None,
        detail: str | None = None,
    ) -> None:
        fields = wire.pack_dead(
            body,
            raw_name,
            entry_id,
            dead.reason,
            detail=detail,
            job_id=job_id or None,
            attempt=dead.attempt,
            error_type=type(error).__name__ if error is not None else None,
            error=str(error) if error is not None else None,
        )
        options = self._options.dead
        trim = options.max_len if options.on_full == "trim" else 0
        command = self._jobs.bury(entry_id, fields, trim)

        def moved(length: int) -> None:
            if length:
                if length > options.max_len and length % WARN_EVERY == 1:
                    log.warning("the DLQ holds %d jobs, more than %d", length, options.max_len)
                happening = Buried(job_id, self._name(raw_name), dead.attempt, dead.reason)
                self._announce(happening)

        self._settler.move(Move(entry_id, command, moved))

    def _name(self, raw_name: bytes) -> str:
        name = self._names.get(raw_name)
        if name is None:
            if len(self._names) > 1000:
                self._names.clear()
            name = self._names[raw_name] = wire.decode_name(raw_name)
        return name
