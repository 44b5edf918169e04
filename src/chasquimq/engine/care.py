"""What a queue offers beyond adding: its delayed and its dead jobs, pauses, counts, results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from chasquimq import wire
from chasquimq.config import suggesting
from chasquimq.engine.clock import now_ms
from chasquimq.engine.draft import Delay, raw_draft, read_time
from chasquimq.engine.graveyard import File, Format, Graveyard, Progress, Which
from chasquimq.engine.listener import Place, Waiter, listen, seconds
from chasquimq.engine.recurring import Recurring
from chasquimq.engine.session import Sessions, raise_for
from chasquimq.errors import ArgumentError, ConfigError, ResultTimeoutError, ShutdownError
from chasquimq.job import Counts, Due, Job
from chasquimq.store.results import unpack_result


class Care(Recurring):
    """The half of a Queue that needs no producer."""

    _place: Place
    _sessions: Sessions

    @property
    def name(self) -> str:
        raise NotImplementedError

    # -- delayed jobs ----------------------------------------------------------------------------

    async def cancel_delayed(self, job_id: str) -> bool:
        """Take back a job that `add` delayed; False if it is too late, or it waits for a retry."""
        wire.check_job_id(job_id)
        return await (await self._here().store()).delayed.cancel(job_id)

    @suggesting
    async def reschedule(self, job_id: str, delay_ms: Delay = None, delay: Delay = None) -> bool:
        """Let a job that `add` delayed run at another time (ms, timedelta, datetime), counted from
        now; False if it is too late, or it waits for a retry."""
        wire.check_job_id(job_id)
        due = read_time(delay_ms, delay, now_ms(), self._options)
        return await self._reschedule(job_id, due)

    async def run_now(self, job_id: str) -> bool:
        """Let a job that `add` delayed run now; False as with `reschedule`."""
        wire.check_job_id(job_id)
        return await self._reschedule(job_id, Due(0))

    async def run_repeatable_now(self, key: str) -> Job:
        """Make a job from a spec at once, beside its cadence and not counted by its limit."""
        spec = await self._timetable().recipe(key)
        created_ms = now_ms()
        ready = raw_draft(
            spec.payload,
            self._options,
            name=spec.job_name,
            job_id=f"{key}@{wire.Mint().one(created_ms).decode()}",
            retry=spec.retry,
        )
        [job_id], order = await self._here().send([ready], created_ms)
        job = Job(job_id, spec.job_name, wire.decode(spec.payload), 0, created_ms)
        job._queue = self
        await order.future
        raise_for(order, [job])
        return job

    # -- pausing --------------------------------------------------------------------------------

    async def pause(self, reason: str | None = None) -> bool:
        """Let workers start nothing new until `resume`; False if the queue was paused already.

        What runs goes on, and adding does. The time, this process and the `reason` are noted in
        Redis, for those who find the queue paused.
        """
        return await (await self._here().store()).hold.put(now_ms(), reason)

    async def resume(self) -> bool:
        """End a pause; False if the queue was not paused."""
        return await (await self._here().store()).hold.lift()

    async def is_paused(self) -> bool:
        return await (await self._here().store()).hold.is_there()

    # -- how many -------------------------------------------------------------------------------

    async def counts(self, group: str = "default") -> Counts:
        """How many jobs wait, run, are delayed, are dead, and how long the oldest has waited."""
        if not isinstance(group, str) or not group:
            raise ConfigError(f"group is the name of the workers' group, got {group!r:.80}")
        return await (await self._here().store()).inspect.counts(group)

    # -- dead jobs -------------------------------------------------------------------------------

    async def peek_dlq(
        self, limit: int = 20, *, after: str | None = None, **which: Unpack[Which]
    ) -> list[dict[str, Any]]:
        """The oldest dead jobs, and why they died; behind the row `after`, if one is named.

        Filters, here and below: `ids` (of jobs or of rows), `name`, `reason`, `error_type`,
        `older_than` and `newer_than` (timedelta: an age; datetime: a moment). All must hold.
        """
        return await self._graveyard().peek(limit, after, which)

    async def replay_dlq(
        self,
        limit: int | None = 100,
        *,
        dry_run: bool = False,
        rate: float | None = None,
        progress: Progress = None,
        **which: Unpack[Which],
    ) -> int:
        """Bring the oldest dead jobs back, with fresh attempts; answers how many.

        `limit=None`: all that lie there now; `rate`: so many per second; `dry_run` only counts.
        `progress`, here and below, is called after each batch with how many are done by then; if
        it raises, the call ends there.
        """
        return await self._graveyard().replay(
            limit, dry_run=dry_run, rate=rate, progress=progress, which=which
        )

    async def purge_dlq(
        self,
        limit: int | None = None,
        *,
        everything: bool = False,
        dry_run: bool = False,
        progress: Progress = None,
        **which: Unpack[Which],
    ) -> int:
        """Delete the oldest dead jobs that the filters mean, or `everything`; answers how many."""
        return await self._graveyard().purge(
            limit, everything=everything, dry_run=dry_run, progress=progress, which=which
        )

    async def export_dlq(
        self,
        target: File,
        *,
        format: Format | None = None,
        progress: Progress = None,
        **which: Unpack[Which],
    ) -> int:
        """Write dead jobs to a path or an open file, as JSON lines or msgpack; answers how many."""
        return await self._graveyard().export(target, format, which, progress)

    @suggesting
    async def import_dlq(
        self,
        source: File,
        *,
        format: Format | None = None,
        dry_run: bool = False,
        progress: Progress = None,
    ) -> int:
        """Put exported rows back into the DLQ, each once; answers how many were missing there."""
        graveyard = self._graveyard()
        return await graveyard.bring_in(source, format, dry_run=dry_run, progress=progress)

    # -- results ---------------------------------------------------------------------------------

    async def get_job_result(self, job_id: str, default: Any = None) -> Any:
        """What the job's handler returned; `default` if nothing is stored (yet, or any more)."""
        wire.check_job_id(job_id)
        [stored] = await (await self._here().store()).results.get([job_id])
        return default if stored is None else unpack_result(job_id, stored)

    async def get_job_result_bulk(self, ids: Sequence[str]) -> list[Any]:
        """What the jobs' handlers returned, in order; None where nothing is stored."""
        if isinstance(ids, str):
            raise ArgumentError(f"get_job_result_bulk takes a list of ids, got the str {ids!r:.80}")
        if not isinstance(ids, Iterable):
            raise ArgumentError(
                f"get_job_result_bulk takes a list of ids, got {type(ids).__name__}"
            )
        ids = list(ids)
        for job_id in ids:
            wire.check_job_id(job_id)
        if not ids:
            return []
        found = await (await self._here().store()).results.get(ids)
        return [
            None if stored is None else unpack_result(job_id, stored)
            for job_id, stored in zip(ids, found, strict=True)
        ]

    async def wait_for_result(
        self, job_id: str, timeout: float = 30.0, poll_interval: float = 1.0
    ) -> Any:
        """What the job's handler returned, once it has; JobFailedError if the job died.

        All who wait in a queue share one connection that hears its events; besides, results
        are looked for each `poll_interval` seconds.
        """
        wire.check_job_id(job_id)
        limit_s = seconds("timeout", timeout)
        waiter = Waiter(job_id, seconds("poll_interval", poll_interval))
        try:
            async with asyncio.timeout(limit_s):
                session = self._here()
                store = await session.store()
                if session is not self._sessions.known():
                    raise ShutdownError("the queue was closed while it was being opened")
                stored = await listen(self._place, waiter, store, session)
        except TimeoutError:
            raise ResultTimeoutError(job_id, self.name, limit_s, waiter.completed) from None
        return unpack_result(job_id, stored)

    # -- inside ----------------------------------------------------------------------------------

    async def _reschedule(self, job_id: str, due: Due) -> bool:
        events = self._options.events
        delayed = (await self._here().store()).delayed
        return await delayed.reschedule(job_id, due, events.max_len if events.enabled else 0)

    def _graveyard(self) -> Graveyard:
        return Graveyard(self._here().store)
