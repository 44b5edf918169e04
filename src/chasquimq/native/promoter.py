"""Promoter: a process that moves due jobs to the stream, and does nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from chasquimq.address import CredentialProvider
from chasquimq.config import DialectName, PromoteOptions, given, suggesting
from chasquimq.engine.leader import Leader
from chasquimq.engine.promoter import Promoter as PromoterLoop
from chasquimq.happening import Announce
from chasquimq.native.leading import Leading
from chasquimq.store import Store
from chasquimq.wire.right import PROMOTING


class Promoter(Leading):
    """Moves delayed jobs of one queue to its stream when they are due, and does nothing else.

    Every Worker does so by itself; this is for fleets whose workers run with
    `delayed_enabled=False`. Of all that run for a queue, one leads.
    """

    _role = "promoter"
    _needs = PROMOTING

    @suggesting
    def __init__(
        self,
        redis_url: str,
        queue_name: str,
        *,
        poll_interval_ms: int | None = None,
        promote_batch: int | None = None,
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
        self._holder = holder_id or f"p-{uuid.uuid4()}"
        self._options: PromoteOptions = given(
            PromoteOptions,
            poll_ms=poll_interval_ms,
            batch=promote_batch,
            lock_ttl_s=lock_ttl_secs,
        )

    def _make(self, store: Store, announce: Announce) -> Leader:
        return PromoterLoop(store, self._holder, announce, self._options)
