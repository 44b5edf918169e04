"""Worker: the consumers' door. It takes options, opens the store, and runs the consumer."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from chasquimq import wire
from chasquimq.address import DEFAULT_URL, CredentialProvider, read_url
from chasquimq.config import (
    ConnectOptions,
    DeadOptions,
    DialectName,
    EventOptions,
    PromoteOptions,
    ReadOptions,
    RetryOptions,
    SettleOptions,
    WorkerOptions,
    given,
    suggesting,
)
from chasquimq.engine.consumer import Consumer
from chasquimq.engine.settler import Settler
from chasquimq.errors import ConfigError, NotSupportedError
from chasquimq.happening import Announce
from chasquimq.job import BackoffSpec, Envelope, Job
from chasquimq.observe.announce import announcer
from chasquimq.observe.stream import EventStream
from chasquimq.store import Dialer, Store

Handler = Callable[[Job], Awaitable[Any] | Any]


class Worker:
    """Runs a handler on the jobs of one queue, up to `concurrency` at a time."""

    @suggesting
    def __init__(
        self,
        queue_name: str,
        handler: Handler,
        *,
        redis_url: str = DEFAULT_URL,
        tls: bool = False,
        concurrency: int = 100,
        max_attempts: int = 25,
        group: str = "default",
        consumer_id: str | None = None,
        read_block_ms: int | None = None,
        read_count: int | None = None,
        claim_min_idle_ms: int | None = None,
        max_payload_bytes: int | None = None,
        dlq_max_stream_len: int | None = None,
        dlq_on_full: str = "warn",
        events_enabled: bool = True,
        events_max_stream_len: int | None = None,
        delayed_enabled: bool = True,
        run_scheduler: bool = True,
        scheduler_tick_ms: int | None = None,
        store_results: bool = False,
        result_ttl_ms: int | None = None,
        backoff: BackoffSpec | None = None,
        ack_batch: int | None = None,
        ack_idle_ms: int | None = None,
        drain_ms: int = 30_000,
        reconnect_max_attempts: int | None = None,
        credential_provider: CredentialProvider | None = None,
        dialect: DialectName | None = None,
    ) -> None:
        if not callable(handler):
            raise ConfigError(f"the handler must be a function, got {type(handler).__name__}")
        if store_results:
            raise NotSupportedError("this version does not store results; leave store_results out")
        # `run_scheduler` and its tick are taken for compatibility: nothing here is repeatable.
        self._keys = wire.Keys(queue_name)
        self._handler = handler
        self._forced = dialect
        self._consumer_id = consumer_id or f"c-{uuid.uuid4()}"
        self._ended: asyncio.Future[None] | None = None
        self._consumer: Consumer | None = None
        self._closed = False
        self._options = WorkerOptions(
            group=group,
            concurrency=concurrency or 1,
            drain_ms=drain_ms,
            read=given(
                ReadOptions,
                block_ms=read_block_ms or None,  # 0, for ever, is any block asked for again
                batch=read_count,
                claim_idle_ms=claim_min_idle_ms,
                max_payload_bytes=max_payload_bytes,
            ),
            settle=given(SettleOptions, batch=ack_batch, idle_ms=ack_idle_ms),
            retry=retry_options(max_attempts, backoff),
            dead=given(DeadOptions, max_len=dlq_max_stream_len, on_full=dlq_on_full),
            events=given(EventOptions, enabled=events_enabled, max_len=events_max_stream_len),
            promote=PromoteOptions(enabled=delayed_enabled),
            connect=given(ConnectOptions, max_retries=reconnect_max_attempts),
        )
        address = read_url(redis_url, tls=tls)
        self._dialer = Dialer(address, credential_provider, self._options.connect)

    @property
    def name(self) -> str:
        return self._keys.queue

    @property
    def is_running(self) -> bool:
        return self._ended is not None

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def run(self) -> None:
        """Run until `close`. A second call while it runs waits for the same run."""
        if self._closed:
            return
        if self._ended is not None:
            await asyncio.shield(self._ended)
            return
        self._ended = asyncio.get_running_loop().create_future()
        try:
            await self._run()
        finally:
            self._ended.set_result(None)
            self._ended = None

    async def close(self) -> None:
        """Ask it to stop: `run` returns once everything it holds is settled or given back."""
        self._closed = True
        if self._consumer is not None:
            self._consumer.stop()

    async def __aenter__(self) -> Worker:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self) -> None:
        store = Store(self._keys, self._dialer, self._forced)
        await store.open()
        threads = ThreadPoolExecutor(self._options.concurrency, thread_name_prefix="chasqui-job")
        try:
            handler = _runner(self._handler, threads)
            self._consumer = Consumer(
                store, handler, unwrap, self._observe, self._consumer_id, self._options
            )
            if not self._closed:
                await self._consumer.run()
        finally:
            self._consumer = None
            # Without waiting: a function that outlived the deadline would stop the event loop.
            threads.shutdown(wait=False, cancel_futures=True)
            await store.close()

    def _observe(self, settler: Settler) -> Announce:
        events = self._options.events
        return announcer([EventStream(self._keys, settler, events).hear] if events.enabled else [])


def unwrap(envelope: Envelope, name: str, ran: int) -> Job:
    """What a Worker's handler gets: the data is decoded, and what cannot be is buried."""
    return Job(envelope.id, name, wire.decode(envelope.payload), ran, envelope.created_at_ms)


def retry_options(max_attempts: int, backoff: BackoffSpec | None) -> RetryOptions:
    """The queue-wide curve; a fixed one does not grow and is its own cap."""
    if backoff is None:
        return RetryOptions(max_attempts=max_attempts)
    fixed = backoff.kind == "fixed"
    return given(
        RetryOptions,
        max_attempts=max_attempts,
        delay_ms=backoff.delay_ms,
        max_delay_ms=backoff.delay_ms if fixed else backoff.max_delay_ms,
        multiplier=1.0 if fixed else backoff.multiplier,
        jitter_ms=backoff.jitter_ms,
    )


def _runner(handler: Handler, threads: ThreadPoolExecutor) -> Callable[[Job], Awaitable[Any]]:
    """The handler as a coroutine function; a plain function runs in a thread."""
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        return handler
    loop = asyncio.get_running_loop()

    async def run(job: Job) -> Any:
        context = contextvars.copy_context()
        result = await loop.run_in_executor(threads, context.run, handler, job)
        # A function that returns an awaitable (a wrapped coroutine) is async after all.
        return await result if inspect.isawaitable(result) else result

    return run
