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
    OnFull,
    ProducerOptions,
    given,
    refuse_unknown,
    suggesting,
)
from chasquimq.engine.draft import Backoff, Delay, draft, plain
from chasquimq.engine.producer import Order, Producer, now_ms
from chasquimq.errors import (
    ChasquiError,
    ConfigError,
    NotSupportedError,
    QueueFullError,
    UnconfirmedError,
)
from chasquimq.job import Draft, Job
from chasquimq.store import Dialer, Store

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
        reconnect_max_attempts: int | None = None,
        credential_provider: CredentialProvider | None = None,
        dialect: DialectName | None = None,
    ) -> None:
        self._keys = wire.Keys(name)
        connect = given(ConnectOptions, max_retries=reconnect_max_attempts)
        self._options: ProducerOptions = given(
            ProducerOptions,
            max_stream_len=max_stream_len,
            on_full=on_full,
            max_delay_secs=max_delay_secs,
            max_payload_bytes=max_payload_bytes,
            connect=connect,
        )
        self._dialer = Dialer(read_url(redis_url, tls=tls), credential_provider, connect)
        self._forced = dialect
        self._session: _Session | None = None
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
        return Job(new_id, name or "", data, 0, created_ms)

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
        producer = await self._here().producer()
        try:
            await producer.admit(sum([draft.due is None for draft in drafts]))
        except QueueFullError as error:
            error.outcomes = [error] * len(drafts)
            raise
        ids, order = producer.send(drafts, created_ms)
        added = [  # while Redis works
            Job(job_id, job.get("name") or "", job["data"], 0, created_ms)
            for job_id, job in zip(ids, jobs, strict=True)
        ]
        await order.future
        _raise_for(order, added)
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

    async def close(self) -> None:
        """Wait for what is on its way, then disconnect."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None and session.loop is asyncio.get_running_loop():
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

    def _here(self) -> _Session:
        """The connections that belong to the running event loop."""
        session, loop = self._session, asyncio.get_running_loop()
        if session is None or session.loop is not loop:
            store = Store(self._keys, self._dialer, self._forced)
            session = self._session = _Session(loop, store, self._options)
        return session

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


class _Session:
    """What a Queue has open in one event loop: the store, and a producer once it adds."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: Store, options: ProducerOptions
    ) -> None:
        self.loop = loop
        self._store = store
        self._options = options
        self._opened = False
        self.live: Producer | None = None
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
                    producer = Producer(self._store, self._options)
                    await producer.open()
                    self.live = producer
        return self.live

    async def close(self) -> None:
        async with self._opening:
            if self.live is not None:
                await self.live.close()
            if self._opened:
                await self._store.close()

    async def _open_store(self) -> None:
        if not self._opened:
            await self._store.open()
            self._opened = True


def _raise_for(order: Order, added: list[Job]) -> None:
    """Raise if a bulk was not accepted whole, saying for each job what became of it."""
    if not order.errors:
        return
    errors = list(order.errors.values())
    outcomes = [error or job for error, job in zip(order.outcomes, added, strict=True)]
    for kind in (UnconfirmedError, QueueFullError):
        if any(isinstance(error, kind) for error in errors):
            raise kind(
                f"{len(errors)} of {len(added)} jobs were not accepted, see .outcomes; "
                f"the first: {errors[0]}",
                outcomes,
            )
    raise errors[0]
