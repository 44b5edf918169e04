"""A worker process that tells how it is: `python -m tests.chaos.kit.sentry <orders as JSON>`.

Its jobs are acts. It writes `health()` into a file each 100 ms, and at the end what `run` raised,
so that a test sees from outside what an operator would see.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from chasquimq import BackoffSpec, Worker
from chasquimq.engine.promoter import Promoter
from chasquimq.engine.recovery import Recovery
from tests.chaos.kit.act import Actor
from tests.chaos.kit.fleet import Orders, obey_parent
from tests.chaos.kit.gate import is_open
from tests.chaos.kit.ledger import Ledger

EVERY_S = 0.1
LOOPS = {"promoter": (Promoter, "tick"), "claimer": (Recovery, "_share")}


def health_file(ledger: Path | str, pid: int) -> Path:
    return Path(f"{ledger}.health-{pid}")


def read_health(ledger: Path | str, pid: int) -> dict[str, Any]:
    """What the process last wrote; empty before it wrote anything."""
    try:
        written: dict[str, Any] = json.loads(health_file(ledger, pid).read_text())
    except FileNotFoundError:
        return {}
    return written


async def main(orders: Orders) -> int:
    _tune(orders)
    print("ready", flush=True)
    while orders.sets_out and not is_open(orders.ledger, orders.sets_out):
        await asyncio.sleep(0.01)
    worker = _worker(orders)
    telling = asyncio.ensure_future(_tell(worker, orders.ledger))
    closing: list[asyncio.Task[None]] = []
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, lambda: closing.append(asyncio.ensure_future(worker.close()))
    )
    raised = None
    try:
        await worker.run()
    except Exception as error:
        raised = repr(error)
    telling.cancel()
    with suppress(asyncio.CancelledError):
        await telling
    _write(worker, orders.ledger, raised)
    return int(raised is not None)


def _worker(orders: Orders) -> Worker:
    options = {"consumer_id": orders.consumer_id, "dialect": orders.dialect, **orders.options}
    if "backoff" in options:
        options["backoff"] = BackoffSpec.from_dict(options["backoff"])
    return Worker(
        orders.queue,
        Actor(Ledger(orders.ledger)),
        redis_url=orders.url,
        concurrency=orders.concurrency,
        max_attempts=orders.max_attempts,
        claim_min_idle_ms=orders.claim_min_idle_ms,
        **options,
    )


async def _tell(worker: Worker, ledger: str) -> None:
    while True:
        _write(worker, ledger)
        await asyncio.sleep(EVERY_S)


def _write(worker: Worker, ledger: str, raised: str | None = None) -> None:
    file = health_file(ledger, os.getpid())
    draft = Path(f"{file}.draft")
    draft.write_text(json.dumps({**worker.health().to_dict(), "raised": raised}))
    draft.replace(file)  # whole or not at all


def _tune(orders: Orders) -> None:
    for place, value in orders.tune.items():
        module, _, name = place.rpartition(".")
        setattr(import_module(module), name, value)
    if orders.dies:
        kind, verb = LOOPS[orders.dies]
        lives = getattr(kind, verb)

        async def dies(self: Any) -> Any:
            if is_open(orders.ledger, "die"):
                raise RuntimeError(f"the {orders.dies} dies, as ordered")
            return await lives(self)

        setattr(kind, verb, dies)


if __name__ == "__main__":
    obey_parent()
    sys.exit(asyncio.run(main(Orders.from_json(sys.argv[1]))))
