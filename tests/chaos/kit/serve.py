"""Run a worker in a process of its own until SIGTERM, which closes it as its operator would."""

from __future__ import annotations

import asyncio
import signal
from typing import Any


async def serve(worker: Any) -> None:
    """Standard library only: the reference's Worker is run by it, too."""
    closing: list[asyncio.Task[None]] = []
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, lambda: closing.append(asyncio.ensure_future(worker.close()))
    )
    print("ready", flush=True)
    await worker.run()
    if closing:
        await asyncio.wait(closing)
