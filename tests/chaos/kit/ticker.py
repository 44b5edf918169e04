"""A process that fires specs: `python -m tests.chaos.kit.ticker <orders as JSON>`.

A native Scheduler, or a Worker that runs one, under the holder id it is given. It stops itself
(SIGSTOP) where it is told to, once per order, so that a test knows what it was in the middle of:

    before   it has seen what is due, and has not fired
    sent     what it fires is on its way, and it has not read the answer

How its fires were answered is noted in the ledger: `accepted` and `refused`, by holder.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from chasquimq import Job, Worker
from chasquimq.native import Scheduler
from chasquimq.store.specs import Fired, Firing, Specs
from tests.chaos.kit.fleet import Orders, obey_parent
from tests.chaos.kit.gate import is_open
from tests.chaos.kit.ledger import Ledger

TICK_MS = 200
LOCK_TTL_S = 1
LOOK_S = 0.02


def order_file(ledger: Path | str, holder: str, where: str) -> Path:
    return Path(f"{ledger}.stop-{holder}-{where}")


def may_stop(orders: Orders) -> None:
    """Have every fire of this process look whether it shall stop there."""
    ledger, holder_id, fire = Ledger(orders.ledger), str(orders.consumer_id), Specs.fire

    def stop(where: str) -> None:
        try:
            order_file(orders.ledger, holder_id, where).unlink()
        except FileNotFoundError:  # none, or it was meant for a twin
            return
        os.kill(os.getpid(), signal.SIGSTOP)

    async def stopping(self: Specs, holder: str, firings: Sequence[Firing]) -> list[Fired]:
        stop("before")
        answer = asyncio.ensure_future(fire(self, holder, firings))
        await asyncio.sleep(0)  # it is written
        stop("sent")
        answers = await answer
        for one in answers:
            (ledger.refused if one.jobs is None else ledger.accepted)(holder_id)
        return answers

    setattr(Specs, "fire", stopping)  # noqa: B010


def scheduler(orders: Orders) -> Scheduler:
    return Scheduler(
        orders.url,
        orders.queue,
        tick_interval_ms=TICK_MS,
        lock_ttl_secs=LOCK_TTL_S,
        holder_id=orders.consumer_id,
        dialect=orders.dialect,  # type: ignore[arg-type]
    )


def worker(orders: Orders) -> Worker:
    """Its jobs wait until the gate `over` opens: until then all that fired is in the stream."""
    ledger = Ledger(orders.ledger)

    async def handler(job: Job) -> None:
        while not is_open(orders.ledger, "over"):
            await asyncio.sleep(LOOK_S)
        ledger.end(job.id, ledger.start(job.id))

    return Worker(
        orders.queue,
        handler,
        redis_url=orders.url,
        concurrency=orders.concurrency,
        claim_min_idle_ms=orders.claim_min_idle_ms,
        consumer_id=orders.consumer_id,
        scheduler_tick_ms=TICK_MS,
        scheduler_lock_ttl_secs=LOCK_TTL_S,
        dialect=orders.dialect,  # type: ignore[arg-type]
    )


async def main(orders: Orders) -> None:
    may_stop(orders)
    ticker = worker(orders) if orders.options.get("works") else scheduler(orders)
    print("ready", flush=True)
    await ticker.run()


if __name__ == "__main__":
    obey_parent()
    asyncio.run(main(Orders.from_json(sys.argv[1])))
