"""Scheduler: a process that fires specs when they are due, and does nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from chasquimq.address import CredentialProvider
from chasquimq.config import DialectName, ScheduleOptions, given, suggesting
from chasquimq.engine.leader import Leader
from chasquimq.engine.scheduler import Scheduler as SchedulerLoop
from chasquimq.happening import Announce
from chasquimq.native.leading import Leading
from chasquimq.store import Store
from chasquimq.wire.right import FIRING


class Scheduler(Leading):
    """Makes jobs from the specs of one queue when they are due, and does nothing else.

    Every Worker does so by itself; this is for fleets whose workers run with
    `run_scheduler=False`. Of all that run for a queue, one leads.
    """

    _role = "scheduler"
    _needs = FIRING

    @suggesting
    def __init__(
        self,
        redis_url: str,
        queue_name: str,
        *,
        tick_interval_ms: int | None = None,
        batch: int | None = None,
        max_stream_len: int | None = None,
        lock_ttl_secs: int | None = None,
        holder_id: str | None = None,
        events_enabled: bool = True,
        events_max_stream_len: int | None = None,
        metrics: object | Sequence[object] | None = None,
        tls: bool = False,
        reconnect_max_attempts: int | None = None,
        credential_provider: CredentialProvider | None = None,
        dialect: DialectName | None = None,
    ) -> None:
        # `max_stream_len` is taken for compatibility: what fires is never trimmed.
        super().__init__(
            redis_url,
            queue_name,
            events_enabled=events_enabled,
            events_max_stream_len=events_max_stream_len,
            metrics=metrics,
            tls=tls,
            reconnect_max_attempts=reconnect_max_attempts,
            credential_provider=credential_provider,
            dialect=dialect,
        )
        self._holder = holder_id or f"s-{uuid.uuid4()}"
        self._options: ScheduleOptions = given(
            ScheduleOptions,
            tick_ms=tick_interval_ms,
            batch=batch or None,  # 0, one at a time in the reference, is as good as not given
            lock_ttl_s=lock_ttl_secs,
        )

    def _make(self, store: Store, announce: Announce) -> Leader:
        return SchedulerLoop(store, self._holder, announce, self._options)
