"""Long work at the terminal: Ctrl-C leaves nothing half done."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from chasquimq.cli.progress import Tell, Worked, watched


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def test_work_that_ends_tells_what_it_answered() -> None:
    async def work(tell: Tell) -> int:
        tell(100)
        return 150

    assert await watched("working", 200, "jobs", work) == Worked(150)


async def test_ctrl_c_lets_the_batch_at_hand_end() -> None:
    ended = 0

    async def work(tell: Tell) -> int:
        nonlocal ended
        for batch in range(1, 10_000):
            if batch == 3:
                press()
            await asyncio.sleep(0)  # the batch is under way when the signal is heard
            ended = batch
            tell(batch * 100)
        return 1_000_000

    stopped = await watched("working", None, "jobs", work)
    assert stopped == Worked(ended * 100, stopped=True)
    assert 3 <= ended < 9_999


@pytest.mark.parametrize("presses", [1, 2])
async def test_work_that_does_not_end_is_cut_off(presses: int) -> None:
    async def work(tell: Tell) -> int:
        tell(100)
        for _ in range(presses):
            press()
        await asyncio.Event().wait()
        return 0

    async with asyncio.timeout(15):
        cut = await watched("working", 200, "jobs", work)
    assert cut == Worked(100, stopped=True, cut=True)
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()


async def test_a_cancellation_by_others_is_theirs() -> None:
    async def work(tell: Tell) -> int:
        await asyncio.Event().wait()
        return 0

    watching = asyncio.ensure_future(watched("working", 200, "jobs", work))
    await asyncio.sleep(0)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_ctrl_c_is_as_it_was_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)

    async def work(tell: Tell) -> int:
        assert signal.getsignal(signal.SIGINT) is not before
        return 1

    await watched("working", 1, "jobs", work)
    assert signal.getsignal(signal.SIGINT) is before


async def test_an_error_of_the_work_is_not_swallowed() -> None:
    async def work(tell: Tell) -> int:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await watched("working", 1, "jobs", work)
