"""A worker process of a soak with faults: `python -m tests.soak.member <orders as JSON>`.

Its jobs are acts. It keeps results and events for a moment, tries failed jobs again, and sweeps up
after the dead in a hurry, so that at any quiet moment all is as it was at the beginning. Its
orders' options are those of the janitor.
"""

from __future__ import annotations

import asyncio
import sys

from chasquimq import BackoffSpec, Worker
from tests.chaos.kit.act import Actor
from tests.chaos.kit.fleet import Orders, obey_parent
from tests.chaos.kit.ledger import Ledger
from tests.chaos.kit.serve import serve
from tests.chaos.kit.sweeper import hurry

MODULE = "tests.soak.member"
RESULT_MS = 1_000
EVENTS = 1_000


async def main(orders: Orders) -> None:
    worker = Worker(
        orders.queue,
        Actor(Ledger(orders.ledger)),
        redis_url=orders.url,
        dialect=orders.dialect,  # type: ignore[arg-type]
        concurrency=orders.concurrency,
        claim_min_idle_ms=orders.claim_min_idle_ms,
        store_results=True,
        result_ttl_ms=RESULT_MS,
        events_max_stream_len=EVENTS,
        backoff=BackoffSpec.fixed(20, jitter_ms=20),
    )
    hurry(worker, orders)
    await serve(worker)


if __name__ == "__main__":
    obey_parent()
    asyncio.run(main(Orders.from_json(sys.argv[1])))
