"""Waiting for one of several things, and knowing whether a terminal is there to be closed."""

from __future__ import annotations

import asyncio
import os


async def first(*events: asyncio.Event, timeout: float | None = None) -> bool:
    """Wait until one of them is set; False when the time is over before."""
    some = asyncio.Event()

    async def watch(event: asyncio.Event) -> None:
        await event.wait()
        some.set()

    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(watch(event)) for event in events]
        try:
            async with asyncio.timeout(timeout):
                await some.wait()
        except TimeoutError:
            return False
        finally:
            for one in watching:
                one.cancel()
    return True


def has_terminal() -> bool:
    """Whether this process has one. A terminal that was closed is none any more."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
