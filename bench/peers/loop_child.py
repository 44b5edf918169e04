"""The limit of an event loop: what is left when only the tasks and the bytes remain.

    python bench/peers/loop_child.py '<orders as JSON>'

No queue can be faster through the same API on the same loop, whatever it does or leaves out.

sleep        as many tasks as run at a time, each of which sleeps a millisecond again and again
concurrent   `gather` of as many coroutines as come at once, each of which waits for a future; the
             commands are written down beforehand, go out by 50, and hiredis counts the replies
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlsplit

import hiredis
from kit import CannotError, Clock, Orders, added, calls_of, ready, serve
from limit_child import WRITE, adds_of, open_queue

SLEEP_S = 0.001


async def slept(orders: Orders) -> dict[str, Any]:
    warm_up, left = orders.jobs // 10, orders.jobs
    clock = Clock()

    async def sleep_on() -> None:
        nonlocal left, clock
        while left > 0:
            left -= 1
            if left == orders.jobs - warm_up:
                clock = Clock()
            await asyncio.sleep(SLEEP_S)

    ready()
    await asyncio.gather(*[sleep_on() for _ in range(orders.concurrency)])
    return {**clock.result(orders.jobs - warm_up), "handled": orders.jobs}


class Counter(asyncio.Protocol):
    """Resolves the futures of a call when all replies to it are there."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._missing = 0
        self._futures: list[asyncio.Future[None]] = []

    def connection_made(self, transport: Any) -> None:
        self._write = transport.write

    def call(self, futures: list[asyncio.Future[None]], writes: list[bytes]) -> None:
        self._futures, self._missing = futures, len(futures)
        for commands in writes:
            self._write(commands)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, Exception):
                raise reply
            self._missing -= 1
        if not self._missing:
            for future in self._futures:
                future.set_result(None)


async def gathered(orders: Orders) -> dict[str, Any]:
    calls, warm_up = calls_of(orders)
    await open_queue(orders, warm_up * orders.size)
    adds, loop = adds_of(orders), asyncio.get_running_loop()
    sizes = [min(WRITE, orders.size - first) for first in range(0, orders.size, WRITE)]
    prepared = [[b"".join(next(adds) for _ in range(size)) for size in sizes] for _ in range(calls)]
    parts = urlsplit(orders.url)
    _, counter = await loop.create_connection(Counter, parts.hostname, parts.port)
    first = [loop.create_future()]
    counter.call(first, [b"SELECT %d\r\n" % int(parts.path.strip("/") or 0)])
    await first[0]
    ready()
    clock = Clock()
    for writes in prepared:
        futures = [loop.create_future() for _ in range(orders.size)]
        waiting: list[Coroutine[Any, Any, None]] = [_wait(future) for future in futures]
        loop.call_soon(counter.call, futures, writes)
        await asyncio.gather(*waiting)
    return added(clock, orders)


async def _wait(future: asyncio.Future[None]) -> None:
    await future


def run(orders: Orders) -> dict[str, Any]:
    if orders.what == "worker" and orders.handler == "sleep":
        main = slept(orders)
    elif orders.what == "concurrent":
        main = gathered(orders)
    else:
        raise CannotError("the event loop is the limit of sleeping, and of adds at once")
    if not orders.uvloop:
        return asyncio.run(main)
    import uvloop

    result: dict[str, Any] = uvloop.run(main)
    return result


if __name__ == "__main__":
    serve(run, ("hiredis", "uvloop"))
