"""Long work at the terminal: a bar on stderr, and a Ctrl-C that leaves nothing half done.

1. the work tells how many are done after each of its batches, and the bar shows it;
2. Ctrl-C lets the batch at hand come to its end, so what is told afterwards is exact;
3. work that does not come to such an end within a moment, or a second Ctrl-C, is cut off.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from chasquimq.cli.bar import Bar

Tell = Callable[[int], None]

GRACE_S = 1.0


class Worked(NamedTuple):
    """How many are done. `stopped`: by Ctrl-C, so these are not all; `cut`: perhaps more are."""

    done: int
    stopped: bool = False
    cut: bool = False


class _Enough(Exception):
    """No error: it ends the work between two batches."""


async def watched(
    title: str, total: int | None, unit: str, work: Callable[[Tell], Awaitable[int]]
) -> Worked:
    """Run work that tells how far it is; `total` None: nobody knows how many there are."""
    done, presses, cut = 0, 0, False
    loop, running = asyncio.get_running_loop(), asyncio.current_task()
    assert running is not None
    timers: list[asyncio.TimerHandle] = []

    def cut_off() -> None:
        nonlocal cut
        if not cut:
            cut = running.cancel()

    def press() -> None:
        nonlocal presses
        presses += 1
        if presses == 1:
            timers.append(loop.call_later(GRACE_S, cut_off))
        else:
            cut_off()

    with _pressed(loop, press), Bar(title, total, unit) as bar:

        def tell(count: int) -> None:
            nonlocal done
            bar.forward(count - done)
            done = count
            if presses:
                raise _Enough

        try:
            return Worked(await work(tell))
        except _Enough:
            return Worked(done, stopped=True)
        except asyncio.CancelledError:
            if not cut or running.uncancel():  # somebody else's
                raise
            return Worked(done, stopped=True, cut=True)
        finally:
            for timer in timers:
                timer.cancel()


@contextmanager
def _pressed(loop: asyncio.AbstractEventLoop, press: Callable[[], None]) -> Iterator[None]:
    """Call it on Ctrl-C, where signals can be had: in the main thread."""
    before = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, press)
    except (NotImplementedError, RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
