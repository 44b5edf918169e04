"""What time it is: by the server's clock, which jobs and dead letters carry, and by ours."""

from __future__ import annotations

import time

from chasquimq.cli.shell import the_address
from chasquimq.store import Dialer, Link


async def server_ms(url: str | None) -> int:
    link = Link(Dialer(the_address(url)))
    await link.open()
    try:
        return await link.clock_ms()
    finally:
        await link.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
