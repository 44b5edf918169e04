"""A worker whose janitor is in a hurry: `python -m tests.chaos.kit.sweeper <orders as JSON>`.

Its orders' options are those of the janitor, which are no options of a Worker.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from chasquimq import Worker
from chasquimq.config import JanitorOptions
from tests.chaos.kit.fleet import Orders, obey_parent
from tests.chaos.kit.handler import Handler
from tests.chaos.kit.ledger import Ledger
from tests.chaos.kit.serve import serve


async def main(orders: Orders) -> None:
    worker = Worker(
        orders.queue,
        Handler(Ledger(orders.ledger), orders.behaviour),
        redis_url=orders.url,
        dialect=orders.dialect,  # type: ignore[arg-type]
        consumer_id=orders.consumer_id,
        claim_min_idle_ms=orders.claim_min_idle_ms,
    )
    hurry(worker, orders)
    await serve(worker)


def hurry(worker: Worker, orders: Orders) -> None:
    """Give its janitor the options that the orders hold."""
    janitor = JanitorOptions(**orders.options)
    worker._options = msgspec.structs.replace(worker._options, janitor=janitor)


if __name__ == "__main__":
    obey_parent()
    asyncio.run(main(Orders.from_json(sys.argv[1])))
