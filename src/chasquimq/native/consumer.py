"""Consumer: runs a handler on payloads as they were added, and keeps the bytes it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from chasquimq.address import CredentialProvider
from chasquimq.config import DialectName, EventKinds, refuse_unknown
from chasquimq.engine.draft import Backoff
from chasquimq.handler import Route, Router, read_handler
from chasquimq.health import Health
from chasquimq.job import Envelope, NativeJob
from chasquimq.trace import Tracing
from chasquimq.worker import Worker

Handler = Callable[[NativeJob], Awaitable[bytes | None] | bytes | None]


class Keywords(TypedDict, total=False):
    """What a Worker takes beside its queue, its handler and its concurrency."""

    tls: bool
    max_attempts: int
    group: str
    consumer_id: str | None
    read_block_ms: int | None
    read_count: int | None
    claim_min_idle_ms: int | None
    max_payload_bytes: int | None
    dlq_max_stream_len: int | None
    dlq_on_full: str
    events_enabled: bool
    events: EventKinds
    events_max_stream_len: int | None
    delayed_enabled: bool
    run_scheduler: bool
    scheduler_tick_ms: int | None
    scheduler_batch: int | None
    scheduler_lock_ttl_secs: int | None
    store_results: bool
    result_ttl_ms: int | None
    max_result_bytes: int | None
    time_limit_ms: int | None
    on_error: Callable[..., Any] | None
    log_failures: bool
    log_runs: bool
    metrics: object | Sequence[object] | None
    tracing: Tracing | None
    burst: bool
    max_jobs: int | None
    max_runtime_ms: int | None
    backoff: Backoff
    ack_batch: int | None
    ack_idle_ms: int | None
    drain_ms: int
    reconnect_max_attempts: int | None
    credential_provider: CredentialProvider | None
    dialect: DialectName | None


class Consumer:
    """A Worker whose handler gets a `NativeJob`, and may return bytes or None.

    With `store_results` what it returns is kept, unless it is empty, or no bytes at all.
    """

    def __init__(
        self,
        redis_url: str,
        queue_name: str,
        *,
        concurrency: int = 1,
        **options: Unpack[Keywords],
    ) -> None:
        refuse_unknown(options, ("concurrency", *Keywords.__annotations__), "Consumer")
        self._worker = Worker(
            queue_name, _nobody, redis_url=redis_url, concurrency=concurrency, **options
        )
        # A Worker knows bytes only by these two: what a handler gets, and what it returned.
        self._worker._unwrap = unwrap
        self._worker._wrap = wrap

    def __repr__(self) -> str:
        return f"Consumer('{self._worker._dialer.address}', {self._worker.name!r})"

    def health(self) -> Health:
        """How it is now, as a value. Ask from the event loop that it runs in."""
        return self._worker.health()

    async def run(self, handler: Handler | Mapping[str, Handler | Route] | Router) -> None:
        """Run until `shutdown`. A second call while it runs waits for the same run."""
        router = read_handler(handler)
        if not self._worker.is_running:
            self._worker._router = router
        await self._worker.run()

    def shutdown(self) -> None:
        """Ask it to stop; from any thread, and from a signal handler, too."""
        self._worker.stop()


def unwrap(envelope: Envelope, name: str, ran: int) -> NativeJob:
    return NativeJob(envelope.id, name, envelope.payload, envelope.created_at_ms, ran)


def wrap(result: Any) -> bytes | None:
    """The bytes to keep. Whatever is none (a handler's habit, not its result) is not kept."""
    if not isinstance(result, bytes) or not result:
        return None
    return memoryview(result).tobytes()


async def _nobody(job: object) -> None:
    raise AssertionError("run() brings the handler")
