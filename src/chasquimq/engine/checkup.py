"""Look at a consumer's parts and say how it is."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from chasquimq.health import PATIENCE_S, Connection, Counters, Failing, Health, examined
from chasquimq.store import Link

if TYPE_CHECKING:
    from chasquimq.engine.consumer import Consumer


def checkup(consumer: Consumer) -> Health:
    """The consumer's health now; from the thread of its event loop."""
    options, reader, settler, lease = (
        consumer.options,
        consumer.reader,
        consumer.settler,
        consumer.lease,
    )
    now = asyncio.get_running_loop().time()
    slots_kept, slots_full_s = consumer.pool.kept()
    tasks = {name: _state(task) for name, task in consumer.tasks.items()}
    tasks["lease"] = "running" if lease.alive else "ended"
    block_s = options.read.block_ms / 1000
    blocks_s = {"reader": block_s}
    return examined(
        Health(
            state=consumer.state,
            tasks=tasks,
            connections={
                name: _connection(link, blocks_s.get(name, 0.0))
                for name, link in consumer.links.items()
                if link is not None
            },
            last_read_s=None if reader.last_read_at is None else now - reader.last_read_at,
            reading_s=None if reader.asking_since is None else now - reader.asking_since,
            reading_limit_s=max(3 * block_s, block_s + PATIENCE_S),
            renewal_gap_s=lease.gap(),
            lease_s=options.read.claim_idle_ms / 1000,
            leads=consumer.promoter.leads,
            schedules=consumer.scheduler.leads,
            paused=reader.brake.paused,
            slots=consumer.pool.alive if consumer.pool.begun else options.concurrency,
            slots_limit=options.concurrency,
            slots_kept=slots_kept,
            slots_full_s=slots_full_s,
            running=len(consumer.pool.running),
            queued=len(consumer.holdings.queue),
            held=len(consumer.holdings.ids),
            suspects=consumer.recovery.waiting,
            suspect_wait_s=consumer.recovery.longest_wait_s(),
            refused_moves=len(consumer.holdings.aside),
            refusing=settler.refusing,
            overdue=consumer.overdue.why,
            failing=_failing(consumer),
            threads_busy=consumer.pool.threads.busy,
            threads_stuck=consumer.pool.threads.stuck,
            threads_limit=consumer.pool.threads.limit,
            threads_full_s=consumer.pool.threads.full_s(),
            loop_lag_s=consumer.pulse.lag_s(),
            counters=Counters(
                read=reader.taken,
                came_too_late=settler.stale,
                events_dropped=settler.dropped_events,
                own_ids_refused=consumer.holdings.refused,
                leases_lost=consumer.leases_lost,
                given_back=consumer.given_back + reader.given_back,
                groups_recreated=reader.groups_recreated,
            ),
        )
    )


def _failing(consumer: Consumer) -> dict[str, Failing]:
    rounds = {
        "promoter": consumer.promoter.rounds,
        "scheduler": consumer.scheduler.rounds,
        "reader": consumer.reader.rounds,
        "claimer": consumer.recovery.rounds,
    }
    return {name: Failing(one.failed, one.why) for name, one in rounds.items() if one.failed}


def _state(task: asyncio.Task[None]) -> str:
    if not task.done():
        return "running"
    error = None if task.cancelled() else task.exception()
    return "ended" if error is None else f"failed: {error}"


def _connection(link: Link, may_wait_s: float) -> Connection:
    pipe = link.pipe
    if pipe is None:
        return Connection(False, link.reconnects, trouble=link.trouble)
    silent_s = pipe.silent_s(time.monotonic())
    return Connection(True, link.reconnects, max(silent_s - may_wait_s, 0.0))
