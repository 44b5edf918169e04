"""Producer: adds jobs whose payloads are bytes already."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from chasquimq import wire
from chasquimq.address import CredentialProvider, read_url
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
from chasquimq.engine.clock import now_ms
from chasquimq.engine.draft import raw_draft, read_moment, read_payload, read_retry, read_wait
from chasquimq.engine.graveyard import Graveyard
from chasquimq.engine.session import Session, Sessions, raise_for
from chasquimq.engine.timetable import Timetable, read_spec
from chasquimq.engine.writer import LinkWriter
from chasquimq.errors import ArgumentError, ChasquiError, ConfigError, ShutdownError
from chasquimq.happening import Announce
from chasquimq.job import Draft
from chasquimq.observe.announce import announcer
from chasquimq.observe.guard import guarded
from chasquimq.observe.metrics import attached
from chasquimq.store import Dialer, Store
from chasquimq.trace import Tracing

_OPTIONS = ("id", "name", "retry")
_SPEC = (
    *("job_name", "pattern", "payload"),  # these it must have
    *("key", "limit", "start_after_ms", "end_before_ms", "missed_fires", "retry"),
)


class Producer:
    """Adds jobs whose payloads are bytes already.

    It connects on first use, and may be shared by all tasks of an event loop. What is added
    under one id comes in once, as long as the server remembers this producer's ids.
    """

    @suggesting
    def __init__(
        self,
        redis_url: str,
        queue_name: str,
        *,
        pool_size: int | None = None,
        max_stream_len: int | None = None,
        on_full: OnFull | None = None,
        max_delay_secs: int | None = None,
        max_payload_bytes: int | None = None,
        add_timeout_ms: int | None = None,
        events_enabled: bool = True,
        events_max_stream_len: int | None = None,
        tls: bool = False,
        reconnect_max_attempts: int | None = None,
        credential_provider: CredentialProvider | None = None,
        dialect: DialectName | None = None,
        metrics: object | Sequence[object] | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        # `pool_size` is taken for compatibility: one pipelined connection carries all adds.
        if pool_size is not None and pool_size < 1:
            raise ConfigError(f"pool_size must be at least 1, got {pool_size}")
        wire.check_queue_name(queue_name)
        self._keys = wire.Keys(queue_name)
        connect = given(ConnectOptions, max_retries=reconnect_max_attempts)
        self._options: ProducerOptions = given(
            ProducerOptions,
            max_stream_len=max_stream_len,
            on_full=on_full,
            max_delay_secs=max_delay_secs,
            max_payload_bytes=max_payload_bytes,
            add_timeout_ms=add_timeout_ms,
            events=given(EventOptions, enabled=events_enabled, max_len=events_max_stream_len),
            connect=connect,
        )
        address = read_url(redis_url, tls=tls, secret_elsewhere=credential_provider is not None)
        self._dialer = Dialer(address, credential_provider, connect)
        self._forced = dialect
        self._sinks = attached(metrics)
        self._tracing = guarded(tracing)
        self._producer_id = str(uuid.uuid4())
        self._sessions = Sessions()
        self._closed = False

    def __repr__(self) -> str:
        return f"Producer('{self._dialer.address}', {self._keys.queue!r})"

    def stream_key(self) -> str:
        return self._keys.stream.decode()

    def delayed_key(self) -> str:
        return self._keys.delayed.decode()

    def dlq_key(self) -> str:
        return self._keys.dlq.decode()

    def producer_id(self) -> str:
        """Under which the server remembers what this producer has added."""
        return self._producer_id

    # -- one job ---------------------------------------------------------------------------------

    async def add(self, payload: bytes) -> str:
        """Add a job, to run at once; answers its id."""
        return await self._add(raw_draft(payload, self._options))

    async def add_with_options(self, payload: bytes, opts: Mapping[str, Any]) -> str:
        """`opts` may have `id` (which makes it idempotent), `name` and `retry`."""
        return await self._add(raw_draft(payload, self._options, **_read(opts)))

    async def add_in(self, delay_ms: int, payload: bytes) -> str:
        """Add a job, to run after so many ms by Redis's clock."""
        return await self.add_in_with_options(delay_ms, payload, {})

    async def add_in_with_options(
        self, delay_ms: int, payload: bytes, opts: Mapping[str, Any]
    ) -> str:
        wait = read_wait(delay_ms, now_ms())
        return await self._add(raw_draft(payload, self._options, wait=wait, **_read(opts)))

    async def add_at(self, when_ms: int, payload: bytes) -> str:
        """Add a job, to run at an epoch ms; at once if that has passed."""
        return await self.add_at_with_options(when_ms, payload, {})

    async def add_at_with_options(
        self, when_ms: int, payload: bytes, opts: Mapping[str, Any]
    ) -> str:
        wait = read_moment(when_ms, now_ms())
        return await self._add(raw_draft(payload, self._options, wait=wait, **_read(opts)))

    # -- many ------------------------------------------------------------------------------------

    async def add_bulk(self, payloads: list[bytes]) -> list[str]:
        """Add many jobs in one pipelined write; answers their ids, in order."""
        return await self.add_bulk_with_options(payloads, {})

    async def add_bulk_with_options(
        self, payloads: list[bytes], opts: Mapping[str, Any]
    ) -> list[str]:
        """All with the same name and retry; an id only where there is but one job."""
        shared = _read(opts)
        jobs = [{"payload": payload} for payload in _listed("payloads", payloads)]
        if shared["job_id"] is not None and len(jobs) > 1:
            raise ConfigError(
                f"one id cannot name {len(jobs)} jobs; leave it out, or give each its own with "
                "add_in_bulk_with_ids"
            )
        return await self._add_all(jobs, shared)

    async def add_bulk_named(self, items: list[tuple[str, bytes]]) -> list[str]:
        """Pairs of name and payload."""
        return await self._add_all(_pairs("items", "name", items), {})

    async def add_in_bulk(self, delay_ms: int, payloads: list[bytes]) -> list[str]:
        """All to run after the same delay."""
        shared = {"wait": read_wait(delay_ms, now_ms())}
        jobs = [{"payload": payload} for payload in _listed("payloads", payloads)]
        return await self._add_all(jobs, shared)

    async def add_in_bulk_with_ids(
        self, delay_ms: int, items: list[tuple[str, bytes]]
    ) -> list[str]:
        """Pairs of id and payload: whatever is scheduled under its id already stays as it is."""
        shared = {"wait": read_wait(delay_ms, now_ms())}
        return await self._add_all(_pairs("items", "job_id", items), shared)

    # -- what was added --------------------------------------------------------------------------

    async def cancel_delayed(self, job_id: str) -> bool:
        """Take back a job that was added to run later; False if it is too late."""
        [cancelled] = await self.cancel_delayed_bulk([job_id])
        return cancelled

    async def cancel_delayed_bulk(self, job_ids: Sequence[str]) -> list[bool]:
        """The same for many, pipelined; the answers are in order."""
        ids = _ids("job_ids", job_ids)
        session = self._here()
        return await (await session.store()).delayed.cancel_each(ids) if ids else []

    async def peek_dlq(self, limit: int) -> list[dict[str, Any]]:
        """The oldest dead jobs, and why they died; `payload` is the whole envelope."""
        return await Graveyard(self._here().store).peek(limit)

    async def replay_dlq(self, limit: int) -> int:
        """Bring the oldest dead jobs back, with fresh attempts; answers how many."""
        return await Graveyard(self._here().store).replay(limit)

    # -- specs -----------------------------------------------------------------------------------

    async def upsert_repeatable(self, spec: Mapping[str, Any]) -> str:
        """Write a spec from which jobs are made; answers its key.

        `spec` has `job_name`, `pattern` and `payload`, and may have `key`, `limit`,
        `start_after_ms`, `end_before_ms`, `missed_fires` and `retry`.
        """
        if not isinstance(spec, Mapping):
            raise ArgumentError(f"spec is a dict, got {type(spec).__name__}: {spec!r:.80}")
        refuse_unknown(spec, _SPEC, "spec")
        for name in _SPEC[:3]:
            if name not in spec:
                raise ConfigError(f"a spec needs {name!r}")
        stored = read_spec(
            spec["job_name"],
            read_payload(spec["payload"]),
            self._options,
            repeat=spec["pattern"],
            limit=spec.get("limit"),
            start_after=spec.get("start_after_ms"),
            end_before=spec.get("end_before_ms"),
            retry=read_retry(spec.get("retry")),
            missed_fires=spec.get("missed_fires"),
            key=spec.get("key"),
        )
        await self._here().upsert(stored)
        return stored.key

    async def list_repeatable(self, limit: int) -> list[dict[str, Any]]:
        """The specs by when they fire next, without their payloads: each as
        `RepeatableMeta.to_dict()`."""
        found = await Timetable(self._here().store).page(limit)
        return [meta.to_dict() for meta in found]

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Remove a spec: it fires no more. False if there is none."""
        return await Timetable(self._here().store).remove(key)

    # -- what became of them ---------------------------------------------------------------------

    async def get_result(self, id: str) -> bytes | None:
        """What a job's handler returned; None if nothing is kept (yet, or any more)."""
        [result] = await self.get_result_bulk([id])
        return result

    async def get_result_bulk(self, ids: Sequence[str]) -> list[bytes | None]:
        wanted = _ids("ids", ids)
        session = self._here()
        return await (await session.store()).results.get(wanted) if wanted else []

    async def shutdown(self) -> None:
        """Wait for what is on its way, then disconnect, for good."""
        self._closed = True
        session = self._sessions.leave()
        if session is not None:
            await session.close()

    # -- inside ----------------------------------------------------------------------------------

    def _here(self) -> Session:
        """The connections that belong to the running event loop."""
        if self._closed:
            raise ShutdownError("this Producer was shut down; make a new one")
        return self._sessions.here(self._open)

    def _open(self, loop: asyncio.AbstractEventLoop) -> Session:
        store = Store(self._keys, self._dialer, self._forced)
        observe = self._observe if self._sinks else None
        return Session(loop, store, self._options, self._producer_id, observe, self._tracing)

    def _observe(self, writer: LinkWriter) -> Announce:
        return announcer(self._sinks)

    async def _add(self, ready: Draft) -> str:
        job_id, told = await self._here().send_one(ready, now_ms())
        if told is not None and told.errors:
            raise told.errors[0]
        return job_id

    async def _add_all(
        self, jobs: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
    ) -> list[str]:
        drafts: list[Draft] = []
        for place, job in enumerate(jobs):
            try:
                drafts.append(raw_draft(options=self._options, **job, **shared))
            except ChasquiError as error:
                error.add_note(f"job {place} of the bulk; nothing was sent")
                raise
        session = self._here()
        if not drafts:
            return []
        send = session.send if self._tracing is None else session.send_traced
        ids, order = await send(drafts, now_ms())
        await session.settled(order)
        raise_for(order, ids)
        return ids


def _read(opts: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an add, as a draft wants them."""
    if not isinstance(opts, Mapping):
        raise ArgumentError(f"opts is a dict, got {type(opts).__name__}: {opts!r:.80}")
    refuse_unknown(opts, _OPTIONS, "opts")
    retry = read_retry(opts.get("retry"))
    return {"job_id": opts.get("id"), "name": opts.get("name"), "retry": retry}


def _listed(what: str, values: object) -> list[Any]:
    if not isinstance(values, list):
        raise ArgumentError(f"{what} is a list, got {type(values).__name__}")
    return values


def _pairs(what: str, first: str, values: object) -> list[dict[str, Any]]:
    """Pairs of text and payload, as a draft wants them."""
    jobs = []
    for place, pair in enumerate(_listed(what, values)):
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ArgumentError(f"{what}[{place}] is a tuple of str and bytes, got {pair!r:.80}")
        jobs.append({first: pair[0], "payload": pair[1]})
    return jobs


def _ids(what: str, ids: Sequence[str]) -> list[str]:
    """Ids of jobs that somebody added: foreign ones may be of any length."""
    if isinstance(ids, str) or not isinstance(ids, Sequence):
        raise ArgumentError(f"{what} is a list of ids, got {type(ids).__name__}")
    for job_id in ids:
        if not isinstance(job_id, str):
            raise ArgumentError(f"a job id is a str, got {type(job_id).__name__}")
        try:
            job_id.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"job id {job_id[:80]!r} is no valid text") from error
    return list(ids)
