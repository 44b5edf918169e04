"""Worker: the consumers' door. It takes options, opens the store, and runs the consumer."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType

from chasquimq import wire
from chasquimq.address import DEFAULT_URL, Address, CredentialProvider, read_url
from chasquimq.config import (
    ConnectOptions,
    DeadOptions,
    DialectName,
    EventKinds,
    EventOptions,
    PromoteOptions,
    ReadOptions,
    ResultOptions,
    RetryOptions,
    ScheduleOptions,
    SettleOptions,
    UntilOptions,
    WorkerOptions,
    changed,
    check_text,
    given,
    suggesting,
)
from chasquimq.engine.consumer import GOODBYE_S, Consumer
from chasquimq.engine.draft import Backoff, read_backoff
from chasquimq.engine.failure_log import log_completed
from chasquimq.engine.outcome import Wrap
from chasquimq.engine.pool import Unwrap
from chasquimq.engine.settler import Settler
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.flow.cutoff import Cutoff
from chasquimq.handler import Handler, OnError, Route, Router, read_handler
from chasquimq.happening import Announce
from chasquimq.health import Health
from chasquimq.job import BackoffSpec, Envelope, Job
from chasquimq.observe.announce import announcer, tell_names
from chasquimq.observe.guard import guarded
from chasquimq.observe.metrics import attached, attached_names
from chasquimq.observe.stream import EventStream
from chasquimq.store import Dialer, Store
from chasquimq.text import said, shown
from chasquimq.trace import Tracing

log = logging.getLogger("chasquimq.worker")

SHORT_LEASE_MS = 5_000

Handlers = Handler | Mapping[str, Handler | Route] | Router


class Worker:
    """Runs handlers on the jobs of one queue, up to `concurrency` at a time.

    `handler` is one function for all jobs, a mapping of their names to functions, or a Router.
    """

    @suggesting
    def __init__(
        self,
        queue_name: str,
        handler: Handlers,
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
        events: EventKinds = "all",
        events_max_stream_len: int | None = None,
        delayed_enabled: bool = True,
        run_scheduler: bool = True,
        scheduler_tick_ms: int | None = None,
        scheduler_batch: int | None = None,
        scheduler_lock_ttl_secs: int | None = None,
        store_results: bool = False,
        result_ttl_ms: int | None = None,
        max_result_bytes: int | None = None,
        time_limit_ms: int | None = None,
        on_error: OnError | None = None,
        log_failures: bool = True,
        log_runs: bool = False,
        metrics: object | Sequence[object] | None = None,
        tracing: Tracing | None = None,
        burst: bool = False,
        max_jobs: int | None = None,
        max_runtime_ms: int | None = None,
        backoff: Backoff = None,
        ack_batch: int | None = None,
        ack_idle_ms: int | None = None,
        drain_ms: int = 25_000,
        reconnect_max_attempts: int | None = None,
        credential_provider: CredentialProvider | None = None,
        dialect: DialectName | None = None,
    ) -> None:
        wire.check_queue_name(queue_name)
        self._keys = wire.Keys(queue_name)
        self._router = read_handler(handler)
        self._unwrap: Unwrap = unwrap
        self._wrap: Wrap = wire.encode
        self._on_error = _hearing(on_error)
        self._sinks = attached(metrics)
        self._name_takers = attached_names(metrics)
        self._tracing = guarded(tracing)
        self._forced = dialect
        if consumer_id is not None and consumer_id != "":
            check_text("consumer_id", consumer_id)
        self._stable = consumer_id is not None
        self._consumer_id = consumer_id or f"c-{uuid.uuid4()}"
        self._health = Health()
        self._ended: asyncio.Future[None] | None = None
        self._consumer: Consumer | None = None
        self._opening = Cutoff()
        self._closed = False
        self._begun = False
        self._store: Store | None = None  # once it has connected
        self._options = WorkerOptions(
            group=group,
            concurrency=concurrency or 1,
            drain_ms=drain_ms,
            time_limit_ms=time_limit_ms,
            log_failures=log_failures,
            log_runs=log_runs,
            read=given(
                ReadOptions,
                block_ms=read_block_ms or None,  # 0, for ever, is any block asked for again
                batch=read_count,
                claim_idle_ms=claim_min_idle_ms,
                max_payload_bytes=max_payload_bytes,
            ),
            settle=given(SettleOptions, batch=ack_batch, idle_ms=ack_idle_ms),
            retry=retry_options(max_attempts, read_backoff(backoff)),
            dead=given(DeadOptions, max_len=dlq_max_stream_len, on_full=dlq_on_full),
            events=given(
                EventOptions, enabled=events_enabled, kinds=events, max_len=events_max_stream_len
            ),
            results=given(
                ResultOptions,
                enabled=store_results,
                ttl_ms=result_ttl_ms,
                max_bytes=max_result_bytes,
            ),
            until=UntilOptions(empty=burst, max_jobs=max_jobs, max_runtime_ms=max_runtime_ms),
            promote=PromoteOptions(enabled=delayed_enabled),
            schedule=given(
                ScheduleOptions,
                enabled=run_scheduler,
                tick_ms=scheduler_tick_ms,
                batch=scheduler_batch,
                lock_ttl_s=scheduler_lock_ttl_secs,
            ),
            connect=given(ConnectOptions, max_retries=reconnect_max_attempts),
        )
        self._at_default, self._tls = redis_url == DEFAULT_URL, tls
        self._provider = credential_provider
        elsewhere = credential_provider is not None
        address = read_url(redis_url, tls=tls, secret_elsewhere=elsewhere)
        self._dialer = Dialer(address, credential_provider, self._options.connect)

    @suggesting
    def adjust(
        self,
        *,
        redis_url: str | None = None,
        dialect: DialectName | None = None,
        concurrency: int | None = None,
        burst: bool | None = None,
        max_jobs: int | None = None,
        drain_ms: int | None = None,
        consumer_id: str | None = None,
        metrics: object | Sequence[object] | None = None,
        on_error: OnError | None = None,
        log_runs: bool | None = None,
    ) -> None:
        """Change it before it runs, as `chasqui worker` does with what its command line says. What
        is None stays. `redis_url`, `dialect` and `on_error` replace only what was left at its
        default, and `metrics` are heard besides those that it has."""
        if self._begun:
            raise ConfigError(f"the worker of {self.name!r} has begun to run: adjust it before")
        sinks, heard = attached(metrics), _hearing(on_error)
        until = changed(self._options.until, empty=burst, max_jobs=max_jobs)
        self._options = changed(
            self._options,
            until=until,
            concurrency=1 if concurrency == 0 else concurrency,
            drain_ms=drain_ms,
            log_runs=log_runs,
        )
        self._sinks += sinks
        self._name_takers += attached_names(metrics)
        self._forced = self._forced or dialect
        self._on_error = self._on_error or heard
        if consumer_id is not None:
            check_text("consumer_id", consumer_id)
            self._consumer_id, self._stable = consumer_id, True
        if redis_url is not None and self._at_default:
            elsewhere = self._provider is not None
            address = read_url(redis_url, tls=self._tls, secret_elsewhere=elsewhere)
            self._dialer = Dialer(address, self._provider, self._options.connect)

    @property
    def name(self) -> str:
        return self._keys.queue

    @property
    def options(self) -> WorkerOptions:
        """What it was given, or left at its default."""
        return self._options

    @property
    def address(self) -> Address:
        """Where its server is; shown, it hides the password."""
        return self._dialer.address

    @property
    def dialer(self) -> Dialer:
        """How it gets there; for those who look at its queue beside it."""
        return self._dialer.of(self._keys.stream)

    @property
    def consumer_id(self) -> str | None:
        """The name that it was given; None: each Worker has a new one."""
        return self._consumer_id if self._stable else None

    @property
    def dialect(self) -> DialectName | None:
        """How it speaks with its server; None: it has not connected yet."""
        return self._store.dialect_name if self._store is not None else None

    @property
    def is_running(self) -> bool:
        return self._ended is not None

    @property
    def is_closed(self) -> bool:
        return self._closed

    def health(self) -> Health:
        """How it is now, as a value. Ask from the event loop that it runs in."""
        return self._health if self._consumer is None else self._consumer.health()

    async def run(self) -> None:
        """Run until `close`, or until a limit was reached (`burst`, `max_jobs`, ...).

        A second call while it runs waits for the same run.
        """
        if self._closed:
            return
        if self._ended is not None:
            await asyncio.shield(self._ended)
            return
        if not self._begun:
            _warn_of_short_lease(self.name, self._options.read.claim_idle_ms)
        self._begun = True
        self._ended = asyncio.get_running_loop().create_future()
        try:
            await self._run()
        finally:
            self._ended.set_result(None)
            self._ended = None

    async def close(self) -> None:
        """Ask it to stop: `run` returns once everything it holds is settled or given back."""
        self.stop()

    def stop(self) -> None:
        """The same, from any thread, and from a signal handler, too."""
        self._closed = True
        ended = self._ended
        if ended is not None:
            ended.get_loop().call_soon_threadsafe(self._stop_here)

    def _stop_here(self) -> None:
        self._opening.set(GOODBYE_S)
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
        try:
            if await self._opening.run(store.open()):
                await self._consume(store)
            else:
                log.warning("stopped before %s had answered", self.address)
        except BaseException as error:
            self._health = Health(state="failed", problems=(said(error) or type(error).__name__,))
            raise
        else:
            self._health = Health(state="stopped")
        finally:
            if self._consumer is not None:
                self._consumer.outcomes.failures.end()
            self._consumer = None
            await store.close()

    async def _consume(self, store: Store) -> None:
        self._store = store
        tell_names(self._name_takers, list(self._router.routes))
        self._consumer = Consumer(
            store,
            self._router,
            self._unwrap,
            self._wrap,
            self._observe,
            self._consumer_id,
            self._options,
            stable=self._stable,
            on_error=self._on_error,
            tracing=self._tracing,
        )
        if not self._closed:
            await self._consumer.run()

    def _observe(self, settler: Settler) -> Announce:
        events = self._options.events
        stream: list[Announce] = []
        if events.enabled:
            stream.append(EventStream(self._keys, settler, events).hear)
        if self._options.log_runs:
            stream.append(log_completed(self.name))
        return announcer([*stream, *self._sinks])


def _warn_of_short_lease(queue: str, lease_ms: int) -> None:
    if lease_ms < SHORT_LEASE_MS:
        log.warning(
            "queue '%s': a lease of %d ms (claim_min_idle_ms) is short: when this process or its "
            "GIL stands still for that long, other workers take its jobs for abandoned and run "
            "them a second time; choose at least %d, usually 30000",
            shown(queue),
            lease_ms,
            SHORT_LEASE_MS,
        )


def _hearing(on_error: OnError | None) -> OnError | None:
    if on_error is not None and not callable(on_error):
        raise ConfigError(f"on_error must be a function, got {type(on_error).__name__}")
    return on_error


async def run_workers(*workers: Worker, signals: bool = True) -> None:
    """Run several workers, of one queue or of many, until all have ended.

    The first SIGTERM or SIGINT closes them all, the second cancels their handlers and gives the
    jobs back, and then raises KeyboardInterrupt (or, for SIGTERM, SystemExit). `signals=False`
    leaves signals alone. If one worker fails, the others are closed, and the error is raised when
    they have ended.
    """
    if signals and threading.current_thread() is not threading.main_thread():
        raise ConfigError("only the main thread hears signals; here give signals=False")
    arguments: Sequence[object] = workers
    for one in arguments:
        if not isinstance(one, Worker):
            kind = type(one).__name__
            raise ArgumentError(
                f"run_workers takes Workers, got {kind}; for a list write run_workers(*workers)"
            )
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT) if signals else ()
    errors: list[Exception] = []
    heard: list[signal.Signals] = []
    tasks: list[asyncio.Task[None]] = []

    def stop() -> None:
        for worker in workers:
            worker.stop()

    def hear(number: signal.Signals) -> None:
        heard.append(number)
        if len(heard) == 1:
            log.warning("stopping: %s", _what_is_waited_for(workers, number))
            stop()
            return
        count = _running(workers)
        log.warning("stopping at once: cancelling %s and giving them back", _jobs(count))
        for other in numbers:
            loop.remove_signal_handler(other)  # a third has the effect that it has in Python
        for task in tasks:
            task.cancel()

    async def run(worker: Worker) -> None:
        try:
            await worker.run()
        except Exception as error:
            errors.append(error)
            stop()

    for number in numbers:
        loop.add_signal_handler(number, hear, number)
    try:
        async with asyncio.TaskGroup() as running:
            tasks += [running.create_task(run(worker)) for worker in workers]
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
    if len(heard) > 1:
        raise KeyboardInterrupt if heard[-1] is signal.SIGINT else SystemExit(128 + heard[-1])
    if errors:
        raise errors[0]


def _what_is_waited_for(workers: Sequence[Worker], number: signal.Signals) -> str:
    count = _running(workers)
    if not count:
        return "no job is running"
    drain_s = max(worker.options.drain_ms for worker in workers) / 1000
    again = "press Ctrl-C" if number is signal.SIGINT else f"send {number.name}"
    return f"waiting up to {drain_s:g} s for {_jobs(count)}; {again} again to stop at once"


def _running(workers: Sequence[Worker]) -> int:
    return sum(worker.health().running for worker in workers)


def _jobs(count: int) -> str:
    return f"{count} running job{'' if count == 1 else 's'}"


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
