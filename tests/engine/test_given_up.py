"""A producer whose connection has given up: nobody waits for ever, and doubts are called so."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from chasquimq import Job
from chasquimq.errors import StoreUnavailableError, UnconfirmedError
from chasquimq.store.pipe import Pipe
from tests.engine.desk import Desk, eventually

JOBS = [{"name": "n", "data": n} for n in range(3)]


async def test_adds_after_the_connection_gave_up_are_refused(
    own_desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    async with own_desk.queue(reconnect_max_attempts=1) as queue:
        await queue.add("n", 0)
        own_desk.server.server.kill()
        await eventually(lambda: caplog.text.count("reconnecting to") == 2)  # both connections
        async with asyncio.timeout(20):
            with pytest.raises(StoreUnavailableError, match="gave up"):
                await queue.add("n", 1)
            with pytest.raises(StoreUnavailableError, match="gave up") as failed:
                await queue.add_bulk(JOBS)
    kinds = [type(outcome) for outcome in failed.value.outcomes]
    assert kinds == [StoreUnavailableError] * 3  # they were never sent: adding them again is safe


async def test_what_was_sent_before_it_gave_up_is_in_doubt(own_desk: Desk) -> None:
    async with own_desk.queue(reconnect_max_attempts=1) as queue:
        await queue.add("n", 0)
        own_desk.server.server.pause()
        waiting = asyncio.ensure_future(queue.add_bulk(JOBS))
        await asyncio.sleep(0)  # they are written before anything is waited for
        own_desk.server.server.kill()
        async with asyncio.timeout(20):
            with pytest.raises(UnconfirmedError) as failed:
                await waiting
    outcomes = failed.value.outcomes
    assert [type(outcome) for outcome in outcomes] == [UnconfirmedError] * 3
    assert not any(isinstance(outcome, Job) for outcome in outcomes)


async def test_adds_that_come_together_hear_together_that_nobody_answers(own_desk: Desk) -> None:
    """Each would else wait for a try of its own, behind those of all the others."""
    queue = own_desk.queue()
    dialer, dials = queue._dialer, list[int]()
    dial = dialer.dial

    async def counted(extra_reply_ms: int = 0) -> Pipe:
        dials.append(extra_reply_ms)
        return await dial(extra_reply_ms)

    dialer.dial = counted  # type: ignore[method-assign]
    dialer.options = msgspec.structs.replace(dialer.options, timeout_ms=200)
    own_desk.server.server.pause()
    try:
        waiting = [queue.add("n", 1) for _ in range(5)]
        waiting += [queue.add("n", 1, delay_ms=60_000) for _ in range(5)]
        counting = [queue.counts() for _ in range(5)]
        outcomes = await asyncio.gather(*waiting, *counting, return_exceptions=True)
    finally:
        own_desk.server.server.resume()
    assert {type(one) for one in outcomes} == {StoreUnavailableError}
    [told] = {str(one).replace("nothing was sent: ", "") for one in outcomes}
    assert "no answer" in told
    assert len(dials) == 1
    dialer.options = msgspec.structs.replace(dialer.options, timeout_ms=10_000)
    assert isinstance(await queue.add("n", 1), Job)  # the next one tries again
    await queue.close()
