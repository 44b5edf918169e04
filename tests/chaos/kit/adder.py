"""A process that adds unique jobs: `python -m tests.chaos.kit.adder <orders as JSON>`.

It picks ids out of a few, again and again, and notes in the ledger what it was told: accepted, or
refused, which here means that it was a duplicate. Every third job fails on its first run.
"""

from __future__ import annotations

import asyncio
import random
import sys

from chasquimq import Queue
from tests.chaos.kit.fleet import Orders, obey_parent
from tests.chaos.kit.gate import is_open
from tests.chaos.kit.ledger import Ledger


async def main(orders: Orders) -> None:
    ledger, chance = Ledger(orders.ledger), random.Random(orders.options["seed"])
    queue = Queue(orders.queue, redis_url=orders.url, dialect=orders.dialect)  # type: ignore[arg-type]
    async with queue:
        await queue.counts()
        print("ready", flush=True)
        while not is_open(orders.ledger, "enough"):
            ids = [f"key-{chance.randrange(orders.options['keys'])}" for _ in range(4)]
            await asyncio.gather(*(_add(queue, ledger, job_id, chance) for job_id in ids))
            await asyncio.sleep(chance.random() * 0.01)
        print("done", flush=True)


async def _add(queue: Queue, ledger: Ledger, job_id: str, chance: random.Random) -> None:
    act = {"sleep": chance.random() * 0.02, **({"then": "fail"} if chance.random() < 0.3 else {})}
    delay = chance.choice([None, None, 5])
    job = await queue.add("n", act, job_id=job_id, delay_ms=delay, backoff=10, unique="until_done")
    (ledger.refused if job.duplicate else ledger.accepted)(job_id)


if __name__ == "__main__":
    obey_parent()
    asyncio.run(main(Orders.from_json(sys.argv[1])))
