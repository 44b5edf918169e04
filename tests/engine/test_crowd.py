"""Single adds that travel together: each has its own answer, and its own right to go again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chasquimq import Job, UnconfirmedError
from chasquimq.engine.producer import CROWD
from tests.engine.desk import Desk, producer_of

ADDS = 100


@asynccontextmanager
async def under_way(desk: Desk, adds: list[dict[str, Any]]) -> AsyncIterator[tuple[Any, Any]]:
    """A queue, and tasks whose adds have been written to a server that does not answer yet."""
    async with desk.queue() as queue:
        await queue.add("warm", 1)
        await queue.add("warm", 1, delay_ms=3_600_000)
        desk.server.server.pause()
        try:
            adding = [asyncio.ensure_future(queue.add("n", 1, **one)) for one in adds]
            await asyncio.sleep(0.1)
            yield queue, adding
        finally:
            desk.server.server.resume()
            await asyncio.wait(adding)


async def test_of_those_whose_connection_breaks_only_the_safe_ones_go_again(
    own_desk: Desk,
) -> None:
    later = {"delay_ms": 3_600_000}
    async with under_way(own_desk, [{}, {}, later, {}, later, later, {}] * 10) as (queue, adding):
        pipe = producer_of(queue).link.pipe
        assert pipe is not None
        pipe.close()
    outcomes = await asyncio.gather(*adding, return_exceptions=True)
    delayed = [one for place, one in enumerate(outcomes) if place % 7 in (2, 4, 5)]
    at_once = [one for place, one in enumerate(outcomes) if place % 7 not in (2, 4, 5)]
    assert {type(one) for one in delayed} == {UnconfirmedError}
    ids = [one.id for one in own_desk.envelopes()][1:]
    assert len(ids) == len({*ids})
    if own_desk.server.name == "redis-native":  # the server recognises what is sent again
        assert {one.id for one in at_once if isinstance(one, Job)} == {*ids}
        assert len(ids) == len(at_once)
    else:
        assert {type(one) for one in at_once} == {UnconfirmedError}
    assert 1 <= own_desk.delayed() <= 1 + len(delayed)


async def test_who_leaves_does_not_keep_the_others_from_their_answers(own_desk: Desk) -> None:
    async with under_way(own_desk, [{}] * ADDS) as (_, adding):
        for one in adding[::3]:
            one.cancel()
    outcomes = await asyncio.gather(*adding, return_exceptions=True)
    stayed = [one for place, one in enumerate(outcomes) if place % 3]
    assert all(isinstance(one, Job) for one in stayed)
    ids = {one.id for one in own_desk.envelopes()}
    assert {one.id for one in stayed} <= ids
    assert len(ids) == ADDS + 1  # those that were on their way are in


@pytest.mark.parametrize("window", [1, 7, 40])
async def test_never_more_go_out_than_the_server_remembers(own_desk: Desk, window: int) -> None:
    async with own_desk.queue() as queue:
        await queue.add("warm", 1)
        producer = producer_of(queue)
        producer._window = window
        seen = []
        settle = producer._landed

        def landed(*told: Any) -> None:
            seen.append(producer.unanswered)
            settle(*told)

        producer._landed = landed  # type: ignore[method-assign]
        jobs = await asyncio.gather(*[queue.add("n", n) for n in range(ADDS)])
    assert len({job.id for job in jobs}) == ADDS and own_desk.waiting() == ADDS + 1
    assert 1 <= max(seen) <= window


async def test_adds_that_come_together_share_their_writes(own_desk: Desk) -> None:
    """Each write ends with one question, for the stream's length; so those count the writes. The
    first of a crowd goes alone once: nobody knows yet that others come."""
    async with own_desk.queue() as queue:
        await queue.add("warm", 1)
        await asyncio.gather(*[queue.add("n", number) for number in range(ADDS)])
        own_desk.redis.config_resetstat()
        await asyncio.gather(*[queue.add("n", number) for number in range(ADDS)])
        asked = own_desk.redis.info("commandstats")["cmdstat_xlen"]["calls"]
    assert asked == ADDS / CROWD
    assert own_desk.waiting() == 1 + 2 * ADDS
