"""A metrics sink told of one of everything, so that every figure it has can be seen."""

from __future__ import annotations

from chasquimq import Health, MetricsSink
from chasquimq.observe.metrics import (
    DlqRouted,
    JobAdded,
    JobOutcome,
    LockOutcome,
    PromoterTick,
    ReaderBatch,
    RetryScheduled,
    SchedulerTick,
    SpecFired,
)


def tell_everything(sink: MetricsSink) -> None:
    """Call each callback, with every value that becomes a label of its own."""
    for name, delayed in (("mail", False), ("mail", True)):
        sink.job_added(JobAdded(name, delayed))
    for kind in ("ok", "err", "timeout"):
        sink.job_outcome(JobOutcome(kind, 1, 1_000, "mail"))  # type: ignore[arg-type]
    sink.retry_scheduled(RetryScheduled(2, 1_000, "mail"))
    sink.dlq_routed(DlqRouted("malformed", 1, "mail"))
    sink.reader_batch(ReaderBatch(2, 1))
    sink.spec_fired(SpecFired("key", "mail", 1))
    sink.spec_put_aside("key", "the problem")
    for role in ("promoter", "scheduler"):
        sink.promoter_lock_outcome(LockOutcome("acquired", role))
        sink.promoter_lock_outcome(LockOutcome("held", role))
        sink.promoter_lock_outcome(LockOutcome("acquired", role))
    sink.promoter_tick(PromoterTick(1, 1, 1))
    sink.scheduler_tick(SchedulerTick(1, 1, 1))
    sink.leases_lost(1)
    sink.given_back(1)
    sink.swept(1, 1)
    sink.events_dropped(1)
    sink.came_too_late(1)
    sink.reconnected("reader")
    sink.refused(1)
    sink.group_recreated()
    sink.pulse("worker-1", Health(state="running"))
