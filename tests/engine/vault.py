"""A credential provider that fails in the ways in which those of others do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from chasquimq import Worker
from chasquimq.address import Credentials
from chasquimq.engine.consumer import Consumer
from chasquimq.store import Link
from tests.engine.desk import Desk

NOBODY: Credentials = (None, None)


class Signal(BaseException):
    """As some libraries raise: no Exception."""


async def a_cancelled_future() -> Credentials:
    future: asyncio.Future[Credentials] = asyncio.get_running_loop().create_future()
    future.cancel()
    return await future


async def a_cancelled_task() -> Credentials:
    task = asyncio.ensure_future(asyncio.sleep(30))
    asyncio.get_running_loop().call_soon(task.cancel)
    await task
    return NOBODY


async def ourselves() -> Credentials:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)
    return NOBODY


def raising(error: BaseException) -> Callable[[], Awaitable[Credentials]]:
    async def raises() -> Credentials:
        raise error

    return raises


WAYS = {
    "CancelledError": raising(asyncio.CancelledError()),
    "a cancelled future": a_cancelled_future,
    "a cancelled task": a_cancelled_task,
    "a cancelled caller": ourselves,
    "SystemExit": raising(SystemExit(3)),
    "no Exception": raising(Signal()),
    "GeneratorExit": raising(GeneratorExit()),
    "an answer that is none": raising(TypeError("no")),
}


class Vault:
    """A provider that fails in one way while it is told to, and counts how often it did."""

    def __init__(self, way: str = "CancelledError") -> None:
        self.fails = 0
        self.times = 0  # that it is still to fail
        self._way = WAYS[way]

    async def __call__(self, host: str | None) -> Credentials:
        if self.times:
            self.times -= 1
            self.fails += 1
            return await self._way()
        return NOBODY


def consumer_of(worker: Worker) -> Consumer:
    assert worker._consumer is not None
    return worker._consumer


def is_open(link: Link) -> bool:
    return link.pipe is not None and link.pipe._transport is not None


def cut(desk: Desk, link: Link | None) -> None:
    """Have the server close this connection."""
    assert link is not None and link.pipe is not None and link.pipe._transport is not None
    host, port = link.pipe._transport.get_extra_info("sockname")[:2]
    desk.redis.execute_command("CLIENT", "KILL", "ADDR", f"{host}:{port}")
