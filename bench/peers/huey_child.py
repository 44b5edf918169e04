"""huey: each of its threads pops one job by BRPOP, runs it, and forgets it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from huey import RedisHuey
from kit import (
    GAP_S,
    RESULT,
    CannotError,
    Clock,
    Orders,
    Tally,
    added,
    calls_of,
    lead_s,
    now_ms,
    pause_s,
    ready,
    serve,
)

SPARE_CONNECTIONS = 10  # for the producer and the scheduler
WARM_UP = 20  # jobs before the first measured one of `latency`


class Peer:
    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        # A thread keeps its connection while it waits for a job, and redis-py allows but 100.
        connections = orders.concurrency + SPARE_CONNECTIONS
        self._huey = RedisHuey(
            orders.queue,
            results=orders.handler == "result",
            url=f"{orders.url}?max_connections={connections}",
        )

    def task(self, handler: Callable[[Any], Any]) -> Any:
        retries = 1 if self.orders.what == "retry" else 0
        return self._huey.task(retries=retries, name="handle")(handler)

    def work(self) -> None:
        consumer = self._huey.create_consumer(
            workers=self.orders.concurrency, worker_type="thread", periodic=False
        )
        consumer.start()

    def left(self) -> int:
        """What is in progress stands nowhere: it was popped."""
        return int(self._huey.pending_count() + self._huey.scheduled_count())


def run(orders: Orders) -> dict[str, Any]:
    kinds = {
        "worker": work,
        "retry": retry,
        "delayed": delayed,
        "punctual": punctual,
        "latency": latency,
    }
    return kinds.get(orders.what, produce)(Peer(orders), orders)


def work(peer: Peer, orders: Orders) -> dict[str, Any]:
    tally = Tally(orders.jobs)

    def noop(data: Any) -> None:
        tally.hit()

    def sleep(data: Any) -> None:
        tally.hit()
        time.sleep(0.001)

    def result(data: Any) -> Any:
        tally.hit()
        return RESULT

    handlers = {"noop": noop, "sleep": sleep, "result": result, "def": noop}
    add = peer.task(handlers[orders.handler])
    for _ in range(orders.jobs):
        add(orders.payload)
    return finish(peer, tally)


def retry(peer: Peer, orders: Orders) -> dict[str, Any]:
    tally = Tally(orders.jobs, runs=2)
    failed: set[int] = set()

    def handle(data: Any) -> None:
        tally.hit()
        if data["number"] not in failed:
            failed.add(data["number"])
            raise RuntimeError("the first run fails")

    add = peer.task(handle)
    for number in range(orders.jobs):
        add({**orders.payload, "number": number})
    return finish(peer, tally)


def delayed(peer: Peer, orders: Orders) -> dict[str, Any]:
    tally = Tally(orders.jobs)

    def handle(data: Any) -> None:
        tally.hit()

    moment = time.time() + lead_s(orders)
    add_at(peer.task(handle), [moment] * orders.jobs)
    return finish(peer, tally, moment)


def punctual(peer: Peer, orders: Orders) -> dict[str, Any]:
    tally = Tally(orders.jobs)
    late: list[float] = []

    def handle(data: Any) -> None:
        late.append((time.time() - data["due"]) * 1000)
        tally.hit()

    first, step = time.time() + lead_s(orders), orders.spread_ms / 1000 / orders.jobs
    add_at(peer.task(handle), [first + number * step for number in range(orders.jobs)])
    return {**finish(peer, tally, first), "ms": late}


def latency(peer: Peer, orders: Orders) -> dict[str, Any]:
    warm_up, tally = Tally(WARM_UP), Tally(orders.jobs)
    took: list[float] = []

    def handle(data: Any) -> None:
        took.append(now_ms() - data["at"])
        (tally if data["counts"] else warm_up).hit()

    task = peer.task(handle)

    def add(jobs: int, counts: bool) -> None:
        for _ in range(jobs):
            task({"counts": counts, "at": now_ms()})
            time.sleep(GAP_S)

    peer.work()
    add(WARM_UP, counts=False)
    warm_up.wait()
    ready()
    add(orders.jobs, counts=True)
    tally.wait()
    return {**tally.result(peer.left), "ms": took[WARM_UP:]}


def produce(peer: Peer, orders: Orders) -> dict[str, Any]:
    if orders.what == "bulk":
        raise CannotError("it has no bulk call: its `map` adds one by one")
    if orders.what == "concurrent":
        raise CannotError("its producer is synchronous, and 100 threads add more slowly than one")
    add = peer.task(lambda data: None)
    calls, warm_up = calls_of(orders)
    for _ in range(warm_up):
        add(orders.payload)
    ready()
    clock = Clock()
    for _ in range(calls):
        add(orders.payload)
    return added(clock, orders)


def add_at(task: Any, moments: list[float]) -> None:
    for moment in moments:
        task.schedule(args=({"due": moment},), eta=datetime.fromtimestamp(moment, UTC))


def finish(peer: Peer, tally: Tally, moment: float | None = None) -> dict[str, Any]:
    """Say `ready`, work, and answer; `moment` is when the clock of delayed jobs starts."""
    if (found := peer.left()) != tally.jobs:
        raise RuntimeError(f"{tally.jobs} jobs were added, Redis holds {found}")
    ready()
    peer.work()
    if moment is not None:
        time.sleep(pause_s(moment))
        tally.begin()
    tally.wait()
    return tally.result(peer.left)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # nobody reads it, and a full pipe would stop the child
    serve(run, ("huey", "redis", "hiredis"))
