"""What time it is by the server's clock: the one that jobs, scores and dead letters carry."""

from __future__ import annotations

from chasquimq.cli.shell import the_address
from chasquimq.store import Dialer, Link


async def server_ms(url: str | None) -> int:
    link = Link(Dialer(the_address(url)))
    await link.open()
    try:
        return await link.clock_ms()
    finally:
        await link.close()
