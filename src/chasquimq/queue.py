"""Queue: the producers' door."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, cast

from chasquimq import wire
from chasquimq.address import DEFAULT_URL, CredentialProvider, read_url
from chasquimq.config import (
    ConnectOptions,
    DialectName,
    Durability,
    DurabilityOptions,
    EventOptions,
    OnFull,
    ProducerOptions,
    given,
    refuse_unknown,
    suggesting,
)
from chasquimq.engine.care import Care
from chasquimq.engine.clock import now_ms
from chasquimq.engine.draft import Backoff, Delay, draft, listed, plain, plain_all, refuse_strange
from chasquimq.engine.listener import dismiss
from chasquimq.engine.order import Order
from chasquimq.engine.recurring import Recipe
from chasquimq.engine.session import Session, Sessions, raise_for
from chasquimq.engine.timetable import Missed, Moment, Pattern
from chasquimq.engine.writer import LinkWriter
from chasquimq.errors import ChasquiError, ConfigError, StoreError
from chasquimq.happening import Announce
from chasquimq.job import Draft, Job
from chasquimq.observe.announce import announcer
from chasquimq.observe.guard import guarded
from chasquimq.observe.metrics import attached
from chasquimq.observe.stream import EventStream
from chasquimq.repeat import StoredSpec
from chasquimq.store import Dialer, Store
from chasquimq.trace import Tracing

MAX_TOLD = 65_536  # events that wait to be written: those of a large bulk come all at once
_JOB_KEYS = (
    *("name", "data", "delay_ms", "delay", "attempts", "backoff"),
    *("job_id", "unique", "unique_for", "repeat"),
)
_NOT_OF_SPECS = ("delay_ms", "delay", "unique", "unique_for")


class Queue(Care):
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
        add_timeout_ms: int | None = None,
        events_enabled: bool = True,
        events_max_stream_len: int | None = None,
        waiting_events: bool = False,
        durability: Durability | None = None,
        replicas: int | None = None,
        durability_timeout_ms: int | None = None,
        reconnect_max_attempts: int | None = None,
        credential_provider: CredentialProvider | None = None,
        dialect: DialectName | None = None,
        metrics: object | Sequence[object] | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        wire.check_queue_name(name)
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
            add_timeout_ms=add_timeout_ms,
            durable=given(
                DurabilityOptions,
                durability=durability,
                replicas=replicas,
                durability_timeout_ms=durability_timeout_ms,
            ),
            events=events,
            connect=connect,
        )
        address = read_url(redis_url, tls=tls, secret_elsewhere=credential_provider is not None)
        self._dialer = Dialer(address, credential_provider, connect)
        # Who waits for results as the same user at the same place may share a connection.
        self._place = (name, self._dialer.address, id(credential_provider), connect)
        self._forced = dialect
        self._sinks = attached(metrics)
        self._tracing = guarded(tracing)
        self._tells = waiting_events and events_enabled
        self._observe = self._sink if self._tells or self._sinks else None
        self._sessions = Sessions()
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
        unique: Literal["until_done"] | None = None,
        unique_for: float | timedelta | None = None,
        durability: Durability | None = None,
        repeat: Pattern | None = None,
        missed_fires: Missed = None,
        limit: int | None = None,
        start_after: Moment = None,
        end_before: Moment = None,
    ) -> Job:
        """Add one job. It runs at once, or after `delay_ms` / `delay` (ms, timedelta, datetime).

        `job_id` makes the add idempotent; with `unique_for` or `unique="until_done"` no process
        can bring in a second job with this id, and the answer's `duplicate` says whether it was
        one. `attempts` and `backoff` override the worker's rules, `durability` the queue's.
        With `repeat` it is a spec from which jobs are made: see `upsert_repeatable_job`.
        """
        if repeat is not None:
            _alone(
                delay_ms=delay_ms,
                delay=delay,
                unique=unique,
                unique_for=unique_for,
                durability=durability,
            )
            return await self.upsert_repeatable_job(
                name,
                data,
                repeat=repeat,
                limit=limit,
                start_after=start_after,
                end_before=end_before,
                attempts=attempts,
                backoff=backoff,
                job_id=job_id,
                missed_fires=missed_fires,
            )
        if (
            missed_fires is not None
            or limit is not None
            or start_after is not None
            or end_before is not None
        ):
            raise ConfigError("missed_fires, limit, start_after and end_before go with repeat=")
        created_ms = now_ms()
        session = self._here()
        live = session.live if durability is None else None
        at_once = delay_ms is None and delay is None
        free = job_id is None and unique is None and unique_for is None
        bare = at_once and free and attempts is None and backoff is None
        told: Order | None
        if bare and live is not None and live.is_plain:
            raw_name, payload = plain(name, data, self._options)
            since = None
            if not live.gate.has_room(1):
                since = await live.gate.admit(1, session.loop.time())
            new_id, answer = live.send_plain(raw_name, payload, created_ms, since)
            try:
                told = await answer
            except asyncio.CancelledError:
                live.withdraw()
                raise
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
                unique=unique,
                unique_for=unique_for,
            )
            new_id, told = await session.send_one(ready, created_ms, durability)
        if told is not None and told.errors:
            raise told.errors[0]
        twice = told is not None and bool(told.duplicates)
        job = Job(new_id, name or "", data, 0, created_ms, twice)
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
        unique: Literal["until_done"] | None = None,
        unique_for: float | timedelta | None = None,
        durability: Durability | None = None,
        repeat: Pattern | None = None,
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
            unique=unique,
            unique_for=unique_for,
            durability=durability,
            repeat=repeat,
        )

    @suggesting
    async def add_bulk(
        self, jobs: Iterable[Mapping[str, Any]], *, durability: Durability | None = None
    ) -> list[Job]:
        """Add many jobs in one pipelined write, whatever options they carry.

        All are checked before any is sent. If some cannot be accepted the error's `outcomes`
        has, for each job in order, the accepted Job or what befell it. Those with `repeat` are
        specs: they are written first, one by one.
        """
        created_ms = now_ms()
        jobs = listed(jobs)
        drafts = plain_all(jobs, self._options)
        bare = drafts is not None
        if drafts is None:
            refuse_strange(jobs)
            if any("repeat" in job for job in jobs):
                return await self._add_with_specs(jobs, durability)
            drafts = [self._draft(place, job, created_ms) for place, job in enumerate(jobs)]
        if not drafts:
            return []
        session = self._here()
        if self._tracing is None:
            ids, order = await session.send(drafts, created_ms, durability, plain=bare)
        else:
            ids, order = await session.send_traced(drafts, created_ms, durability)
        added = [  # while Redis works
            Job(job_id, job.get("name") or "", job["data"], 0, created_ms)
            for job_id, job in zip(ids, jobs, strict=True)
        ]
        for job in added:
            job._queue = self
        await session.settled(order)
        for place in order.duplicates:
            added[place].duplicate = True
        raise_for(order, added)
        return added

    async def close(self) -> None:
        """Wait for what is on its way, then disconnect."""
        self._closed = True
        session = self._sessions.leave()
        if session is not None:
            try:
                await dismiss(self._place, session)
            finally:  # whoever has no patience for the goodbyes leaves nothing open, either
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
        return self._sessions.here(self._open)

    def _open(self, loop: asyncio.AbstractEventLoop) -> Session:
        store = Store(self._keys, self._dialer, self._forced)
        return Session(loop, store, self._options, observe=self._observe, tracing=self._tracing)

    def _sink(self, writer: LinkWriter) -> Announce:
        events = self._options.events
        stream = [EventStream(self._keys, writer, events).hear] if self._tells else []
        return announcer([*stream, *self._sinks])

    async def _add_with_specs(
        self, jobs: Sequence[Mapping[str, Any]], durability: Durability | None
    ) -> list[Job]:
        """A bulk in which some repeat: when all are checked their specs are written, one by one,
        and then the others are sent."""
        specs: dict[int, StoredSpec] = {}
        others: dict[int, Mapping[str, Any]] = {}
        for place, job in enumerate(jobs):
            if job.get("repeat") is not None:
                specs[place] = self._spec(place, job, durability)
            else:
                others[place] = {k: v for k, v in job.items() if k != "repeat"}
                self._draft(place, others[place], 0)
        added: dict[int, Any] = {}
        for place, spec in specs.items():
            try:
                added[place] = await self._write(spec, jobs[place]["data"])
            except ChasquiError as error:
                error.add_note(f"job {place} of the bulk; specs before it are written, no job is")
                raise
        try:
            sent = await self.add_bulk(list(others.values()), durability=durability)
        except StoreError as error:
            if error.outcomes:
                added |= zip(others, error.outcomes, strict=True)
                error.outcomes = [added[place] for place in range(len(jobs))]
            raise
        added |= zip(others, sent, strict=True)
        return [added[place] for place in range(len(jobs))]

    def _spec(
        self, place: int, job: Mapping[str, Any], durability: Durability | None
    ) -> StoredSpec:
        try:
            refuse_unknown(job, (*_JOB_KEYS, *Recipe.__annotations__), "a job of add_bulk")
            _alone(durability=durability, **{key: job.get(key) for key in _NOT_OF_SPECS})
            if "data" not in job:
                raise ConfigError("it has no 'data'")
            options = {key: job[key] for key in job if key in Recipe.__annotations__}
            return self._recipe(job.get("name"), job["data"], **cast(Recipe, options))
        except ChasquiError as error:
            error.add_note(f"job {place} of the bulk; nothing was sent")
            raise

    def _draft(self, place: int, job: Mapping[str, Any], created_ms: int) -> Draft:
        try:
            if len(job) == 2 and "name" in job and "data" in job:
                return Draft(*plain(job["name"], job["data"], self._options))
            refuse_unknown(job, _JOB_KEYS, "a job of add_bulk")
            if "data" not in job:
                raise ConfigError("it has no 'data'")
            options = {key: job[key] for key in job if key not in ("name", "data")}
            return draft(job.get("name"), job["data"], created_ms, self._options, **options)
        except ChasquiError as error:
            error.add_note(f"job {place} of the bulk; nothing was sent")
            raise


def check_job(queue: Queue, job: Mapping[str, Any]) -> None:
    """Raise what `add_bulk` would for this job; nothing is sent, and nothing connected to."""
    if job.get("repeat") is not None:
        queue._spec(0, job, None)
    else:
        queue._draft(0, {key: job[key] for key in job if key != "repeat"}, now_ms())


def _alone(**options: Any) -> None:
    """Raise for an option that no spec has."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(
                f"{name} does not go with repeat=; start_after says when it begins, and its jobs "
                "are unique by themselves"
            )
