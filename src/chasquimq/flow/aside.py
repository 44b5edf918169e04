"""Calls that may block, beside the event loop: one thread, one call at a time, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

Call = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def aside(last: Callable[[bool], object]) -> AsyncIterator[Call]:
    """`await call(function, *args)` in a thread of its own; `last` is called behind all others.

    It is told whether the block came to its end. A call that a cancellation leaves behind is not
    interrupted, but `last` comes after it: nobody tidies up under the hands of a running call.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="chasquimq-aside")
    ended = False
    try:
        yield partial(asyncio.get_running_loop().run_in_executor, thread)
        ended = True
    finally:
        ending = thread.submit(last, ended)
        thread.shutdown(wait=False)
        # Shielded: whoever is cancelled once more must not take `last` out of the line.
        await asyncio.shield(asyncio.wrap_future(ending))
