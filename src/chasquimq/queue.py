"""Queue: the producers' door."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from chasquimq import wire
from chasquimq.address import DEFAULT_URL, CredentialProvider, read_url
from chasquimq.config import (
    ConnectOptions,
    DialectName,
    EventOptions,
    OnFull,
    ProducerOptions,
    given,
    refuse_unknown,
    suggesting,
)
from chasquimq.engine.draft import Backoff, Delay, draft, plain
from chasquimq.engine.listener import Waiter, dismiss, listen, seconds
from chasquimq.engine.producer import now_ms
from chasquimq.engine.session import Session, raise_for
from chasquimq.engine.writer import LinkWriter
from chasquimq.errors import (
    ArgumentError,
    ChasquiError,
    ConfigError,
    NotSupportedError,
    ResultTimeoutError,
    ShutdownError,
)
from chasquimq.happening import Announce
from chasquimq.job import Draft, Job
from chasquimq.observe.announce import announcer
from chasquimq.observe.stream import EventStream
from chasquimq.store import Dialer, Store
from chasquimq.store.results import unpack_result

MAX_TOLD = 65_536  # events that wait to be written: those of a large bulk come all at once
_JOB_KEYS = ("name", "data", "delay_ms", "delay", "attempts", "backoff", "job_id")


class Queue:
    """Adds jobs to one queue, and looks after its delayed and its dead ones.

    It connects on first use, may be shared by all tasks of an event loop, and may be used again
    after `close`, or in another event loop.
    """

    @suggesting
    def __init__(
        self,
        name: str,
        *,
        redis_url: str = DEFAULT_URL,
        tls: bool = False,
        max_stream_len: int | None = None,
        on_full: OnFull | None = None,
        max_delay_secs: int | None = None,
        max_payload_bytes: int | None = None,
        events_enabled: bool = True,
        events_max_stream_len: int | None = None,
        waiting_events: bool = False,
        reconnect_max_attempts: int | None = None,
        credential_provider: CredentialProvider | None = None,
        dialect: DialectName | None = None,
    ) -> None:
        self._keys = wire.Keys(name)
        connect = given(ConnectOptions, max_retries=reconnect_max_attempts)
        events = given(
            EventOptions,
            enabled=events_enabled,
            max_len=events_max_stream_len,
            max_waiting=MAX_TOLD,
        )
        self._options: ProducerOptions = given(
            ProducerOptions,
            max_stream_len=max_stream_len,
            on_full=on_full,
            max_delay_secs=max_delay_secs,
            max_payload_bytes=max_payload_bytes,
            events=events,
            connect=connect,
        )
        self._dialer = Dialer(read_url(redis_url, tls=tls), credential_provider, connect)
        # Who waits for results as the same user at the same place may share a connection.
        self._place = (name, self._dialer.address, id(credential_provider), connect)
        self._forced = dialect
        self._observe = self._sink if waiting_events and events_enabled else None
        self._session: Session | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, redis_url='{self._dialer.address}')"

    @property
    def name(self) -> str:
        return self._keys.queue

    @property
    def is_closed(self) -> bool:
        return self._closed

    @suggesting
    async def add(
        self,
        name: str,
        data: Any,
        *,
        delay_ms: Delay = None,
        delay: Delay = None,
        attempts: int | None = None,
        backoff: Backoff = None,
        job_id: str | None = None,
        repeat: None = None,
        missed_fires: None = None,
    ) -> Job:
        """Add one job. It runs at once, or after `delay_ms` / `delay` (ms, timedelta, datetime).

        `job_id` makes the add idempotent; `attempts` and `backoff` override the worker's rules.
        """
        if repeat is not None or missed_fires is not None:
            raise NotSupportedError("this version has no repeatable jobs; leave repeat out")
        created_ms = now_ms()
        at_once = delay_ms is None and delay is None
        if at_once and attempts is None and backoff is None and job_id is None:
            ready = plain(name, data, self._options)
        else:
            ready = draft(
                name,
                data,
                created_ms,
                self._options,
                delay_ms=delay_ms,
                delay=delay,
                attempts=attempts,
                backoff=backoff,
                job_id=job_id,
            )
        session = self._here()
        producer = session.live or await session.producer()
        if ready.due is None and not producer.has_room(1):
            await producer.admit(1)
        new_id, order = producer.send_one(ready, created_ms)
        await order.future
        if order.errors:
            raise order.errors[0]
        job = Job(new_id, name or "", data, 0, created_ms)
        job._queue = self
        return job

    @suggesting
    async def add_unique(
        self,
        name: str,
        data: Any,
        *,
        job_id: str,
        delay_ms: Delay = None,
        delay: Delay = None,
        attempts: int | None = None,
        backoff: Backoff = None,
    ) -> Job:
        """Add a job whose id comes in only once, while the server remembers it."""
        return await self.add(
            name,
            data,
            job_id=job_id,
            delay_ms=delay_ms,
            delay=delay,
            attempts=attempts,
            backoff=backoff,
        )

    async def add_bulk(self, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        """Add many jobs in one pipelined write, whatever options they carry.

        All are checked before any is sent. If some cannot be accepted the error's `outcomes`
        has, for each job in order, the accepted Job or what befell it.
        """
        created_ms = now_ms()
        drafts = [self._draft(place, job, created_ms) for place, job in enumerate(jobs)]
        if not drafts:
            return []
        ids, order = await self._here().send(drafts, created_ms)
        added = [  # while Redis works
            Job(job_id, job.get("name") or "", job["data"], 0, created_ms)
            for job_id, job in zip(ids, jobs, strict=True)
        ]
        for job in added:
            job._queue = self
        await order.future
        raise_for(order, added)
        return added

    async def cancel_delayed(self, job_id: str) -> bool:
        """Take back a delayed job that was added with this `job_id`; False if it is too late."""
        wire.check_job_id(job_id)
        return await (await self._here().store()).delayed.cancel(job_id)

    async def peek_dlq(self, limit: int = 20) -> list[dict[str, Any]]:
        """The oldest dead jobs, and why they died."""
        entries = await (await self._here().store()).dead.peek(limit)
        return [entry.to_dict() for entry in entries]

    async def replay_dlq(self, limit: int = 100) -> int:
        """Bring the oldest dead jobs back, with fresh attempts; answers how many."""
        return await (await self._here().store()).dead.replay(limit)

    async def get_job_result(self, job_id: str, default: Any = None) -> Any:
        """What the job's handler returned; `default` if nothing is stored (yet, or any more)."""
        wire.check_job_id(job_id)
        [stored] = await (await self._here().store()).results.get([job_id])
        return default if stored is None else unpack_result(job_id, stored)

    async def get_job_result_bulk(self, ids: Sequence[str]) -> list[Any]:
        """What the jobs' handlers returned, in order; None where nothing is stored."""
        if isinstance(ids, str):
            raise ArgumentError(f"get_job_result_bulk takes a list of ids, got the str {ids!r:.80}")
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
                if session is not self._session:
                    raise ShutdownError("the queue was closed while it was being opened")
                stored = await listen(self._place, waiter, store, session)
        except TimeoutError:
            raise ResultTimeoutError(job_id, self.name, limit_s, waiter.completed) from None
        return unpack_result(job_id, stored)

    async def close(self) -> None:
        """Wait for what is on its way, then disconnect."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None and session.loop is asyncio.get_running_loop():
            await dismiss(self._place, session)
            await session.close()

    async def __aenter__(self) -> Queue:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _here(self) -> Session:
        """The connections that belong to the running event loop."""
        session, loop = self._session, asyncio.get_running_loop()
        if session is None or session.loop is not loop:
            store = Store(self._keys, self._dialer, self._forced)
            session = self._session = Session(loop, store, self._options, observe=self._observe)
        return session

    def _sink(self, writer: LinkWriter) -> Announce:
        return announcer([EventStream(self._keys, writer, self._options.events).hear])

    def _draft(self, place: int, job: Mapping[str, Any], created_ms: int) -> Draft:
        try:
            if len(job) == 2 and "name" in job and "data" in job:
                return plain(job["name"], job["data"], self._options)
            refuse_unknown(job, _JOB_KEYS, "a job of add_bulk")
            if "data" not in job:
                raise ConfigError("it has no 'data'")
            options = {key: job[key] for key in job if key not in ("name", "data")}
            return draft(job.get("name"), job["data"], created_ms, self._options, **options)
        except ChasquiError as error:
            error.add_note(f"job {place} of the bulk; nothing was sent")
            raise
