"""The scenarios of `kit`, for peers in Python.

A child says how its peer adds, works and counts what is left; what is measured, and from when to
when, stands here once for all of them. A peer of threads fits in too: its verbs are coroutines
that never suspend, and its handlers run beside an event loop that has nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any, Protocol

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
    ready_soon,
    serve,
)

FILL = 100  # jobs at a time where the peer has no bulk call
SLEEP_S = 0.001
WARM_UP = 20  # jobs before the first measured one of `latency`

Start = Callable[[Any], None]  # what a handler does first, with what was added
Handler = Callable[[Any], Any]  # a coroutine function unless "def", or for a peer of threads


class Peer(Protocol):
    threads: bool  # its handlers are plain functions, always

    def __init__(self, orders: Orders) -> None: ...

    async def open(self) -> None:
        """Connect, so that nothing is left to do at the first call."""

    async def add(self, data: Any) -> None: ...

    async def add_at(self, data: Any, moment: float) -> None:
        """`moment` is in seconds since 1970."""

    async def add_many(self, data: Any, count: int) -> None:
        """The peer's own bulk call; raises CannotError where it has none."""

    async def left(self) -> int:
        """Jobs in Redis that wait, are delayed or in progress."""

    async def work(self, handler: Handler) -> None:
        """Run a worker for as long as the process lives."""

    def again(self) -> Exception:
        """What a handler raises to be run once more at once."""


class Threaded:
    """What peers of threads have in common."""

    threads = True

    async def open(self) -> None:
        await self.left()

    async def left(self) -> int:
        raise NotImplementedError

    def again(self) -> Exception:
        return RuntimeError("the first run fails")


def drive(peer: type[Peer], packages: tuple[str, ...]) -> None:
    """The main programme of a child."""
    logging.disable(logging.CRITICAL)  # nobody reads it, and a full pipe would stop the child

    def run(orders: Orders) -> dict[str, Any]:
        if orders.what == "concurrent" and peer.threads:
            raise CannotError("its producer is synchronous; 100 threads add no faster than one")
        if orders.uvloop and not peer.threads:
            import uvloop

            uvloop.install()
        # Not asyncio.run: it would wait until the worker has said goodbye.
        return asyncio.new_event_loop().run_until_complete(_run(peer(orders), orders))

    serve(run, packages)


async def _run(peer: Peer, orders: Orders) -> dict[str, Any]:
    await peer.open()
    kinds = {
        "worker": _work,
        "retry": _retry,
        "delayed": _delayed,
        "punctual": _punctual,
        "latency": _latency,
    }
    result = await kinds.get(orders.what, _produce)(peer, orders)
    return {**result, "loop": type(asyncio.get_running_loop()).__module__.partition(".")[0]}


async def _work(peer: Peer, orders: Orders) -> dict[str, Any]:
    tally = Tally(orders.jobs)
    await _fill(peer, orders)
    await ready_soon()
    running = _start(peer, lambda data: tally.hit(), orders.handler)
    await _unless_ended(running, tally)
    return await tally.result_soon(peer.left)


def _start(peer: Peer, start: Start, kind: str = "noop") -> asyncio.Future[None]:
    """A worker whose handlers begin with `start`, and go on as their kind says."""

    def plain(data: Any) -> Any:
        start(data)
        if kind == "sleep":
            time.sleep(SLEEP_S)
        return RESULT if kind == "result" else None

    async def handle(data: Any) -> Any:
        start(data)
        if kind == "sleep":
            await asyncio.sleep(SLEEP_S)
        return RESULT if kind == "result" else None

    return asyncio.ensure_future(peer.work(plain if peer.threads or kind == "def" else handle))


async def _retry(peer: Peer, orders: Orders) -> dict[str, Any]:
    tally = Tally(orders.jobs, runs=2)
    failed: set[int] = set()

    def start(data: Any) -> None:
        tally.hit()
        if data["number"] not in failed:
            failed.add(data["number"])
            raise peer.again()

    for first in range(0, orders.jobs, FILL):
        numbers = range(first, min(first + FILL, orders.jobs))
        await asyncio.gather(*[peer.add({**orders.payload, "number": one}) for one in numbers])
    await ready_soon()
    running = _start(peer, start)
    await _unless_ended(running, tally)
    return await tally.result_soon(peer.left)


async def _delayed(peer: Peer, orders: Orders) -> dict[str, Any]:
    tally = Tally(orders.jobs)
    moment = float(math.ceil(time.time() + lead_s(orders)))  # some know whole seconds only
    await _add_at(peer, [moment] * orders.jobs)
    await ready_soon()
    running = _start(peer, lambda data: tally.hit())
    await asyncio.sleep(pause_s(moment))
    tally.begin()
    await _unless_ended(running, tally)
    return await tally.result_soon(peer.left)


async def _punctual(peer: Peer, orders: Orders) -> dict[str, Any]:
    tally = Tally(orders.jobs)
    late: list[float] = []

    def start(data: Any) -> None:
        late.append((time.time() - data["due"]) * 1000)
        tally.hit()

    first, step = time.time() + lead_s(orders), orders.spread_ms / 1000 / orders.jobs
    moments = [first + number * step for number in range(orders.jobs)]
    await _add_at(peer, moments)
    await ready_soon()
    running = _start(peer, start)
    await asyncio.sleep(pause_s(first))
    await _unless_ended(running, tally)
    return {**await tally.result_soon(peer.left), "ms": late}


async def _latency(peer: Peer, orders: Orders) -> dict[str, Any]:
    warm_up, tally = Tally(WARM_UP), Tally(orders.jobs)
    took: list[float] = []

    def start(data: Any) -> None:
        took.append(now_ms() - data["at"])
        (tally if data["counts"] else warm_up).hit()

    async def add(jobs: int, counts: bool) -> None:
        for _ in range(jobs):
            await peer.add({"counts": counts, "at": now_ms()})
            await asyncio.sleep(GAP_S)

    running = _start(peer, start)
    await add(WARM_UP, counts=False)
    await _unless_ended(running, warm_up)
    await ready_soon()
    await add(orders.jobs, counts=True)
    await _unless_ended(running, tally)
    return {**await tally.result_soon(peer.left), "ms": took[WARM_UP:]}


async def _produce(peer: Peer, orders: Orders) -> dict[str, Any]:
    async def one() -> None:
        await peer.add(orders.payload)

    async def at_once() -> None:
        await asyncio.gather(*[peer.add(orders.payload) for _ in range(orders.size)])

    async def many() -> None:
        await peer.add_many(orders.payload, orders.size)

    call = {"add": one, "concurrent": at_once, "bulk": many}[orders.what]
    calls, warm_up = calls_of(orders)
    for _ in range(warm_up):
        await call()
    await ready_soon()
    clock = Clock()
    for _ in range(calls):
        await call()
    return added(clock, orders)


async def _fill(peer: Peer, orders: Orders) -> None:
    for first in range(0, orders.jobs, FILL):
        count = min(FILL, orders.jobs - first)
        try:
            await peer.add_many(orders.payload, count)
        except CannotError:
            await asyncio.gather(*[peer.add(orders.payload) for _ in range(count)])
    if (found := await peer.left()) != orders.jobs:
        raise RuntimeError(f"{orders.jobs} jobs were added, Redis holds {found}")


async def _add_at(peer: Peer, moments: list[float]) -> None:
    for first in range(0, len(moments), FILL):
        group = moments[first : first + FILL]
        await asyncio.gather(*[peer.add_at({"due": moment}, moment) for moment in group])


async def _unless_ended(running: asyncio.Future[None], tally: Tally) -> None:
    """Wait for all handlers to start, or for what ended the worker."""
    waiting = asyncio.ensure_future(tally.wait_soon())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        await running
        raise RuntimeError("the worker ended before its queue was empty")
    await waiting
