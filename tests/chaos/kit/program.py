"""A worker process of a chaos run: `python -m tests.chaos.kit.program <orders as JSON>`.

It uses nothing but the documented `Worker`, so the reference's interpreter can run it as well.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from chasquimq import Worker
from tests.chaos.kit.fleet import Orders, obey_parent
from tests.chaos.kit.handler import Handler
from tests.chaos.kit.ledger import Ledger
from tests.chaos.kit.serve import serve


async def main(orders: Orders) -> None:
    optional: dict[str, Any] = {"consumer_id": orders.consumer_id, "dialect": orders.dialect}
    worker = Worker(
        orders.queue,
        Handler(Ledger(orders.ledger), orders.behaviour),
        redis_url=orders.url,
        concurrency=orders.concurrency,
        max_attempts=orders.max_attempts,
        claim_min_idle_ms=orders.claim_min_idle_ms,
        **{name: value for name, value in optional.items() if value is not None},
        **orders.options,
    )
    await serve(worker)


if __name__ == "__main__":
    obey_parent()
    asyncio.run(main(Orders.from_json(sys.argv[1])))
