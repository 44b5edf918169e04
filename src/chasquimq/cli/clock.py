"""What time it is: by the server's clock, which jobs and dead letters carry, and by ours."""

from __future__ import annotations

import time

from chasquimq import wire
from chasquimq.cli.shell import the_address
from chasquimq.store import Dialer, Link


async def server_ms(url: str | None, queue: str) -> int:
    """Where the queue is: nodes of a cluster have a clock each."""
    link = Link(Dialer(the_address(url)).of(wire.Keys(queue).stream))
    await link.open()
    try:
        return await link.clock_ms()
    finally:
        await link.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
