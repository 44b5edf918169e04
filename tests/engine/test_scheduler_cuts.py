"""A scheduler that is cancelled, cut off or refused in the middle of a tick: the next one does the
rest, and each window fires exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from chasquimq import lua
from chasquimq.errors import StoreError
from tests.chaos.kit.proxy import Proxy
from tests.engine.desk import Desk, eventually
from tests.engine.rivals import (
    CASES,
    MINUTE,
    Case,
    arm,
    fired,
    fired_once,
    holder,
    lock_expires,
    rivals,
    score,
)

each_case = pytest.mark.parametrize("case", CASES, ids=str)
FIRE = lua.SHA["fire"]


@pytest.fixture
def proxy(desk: Desk) -> Iterator[Proxy]:
    with Proxy(int(desk.redis.connection_pool.connection_kwargs["port"])) as proxy:
        yield proxy


@each_case
@pytest.mark.parametrize("turns", [0, 1, 3], ids=["before", "sent", "later"])
async def test_one_that_is_cancelled_leaves_the_rest_to_the_next(
    desk: Desk, case: Case, turns: int
) -> None:
    """Before it fires, when that is on its way, and when it may have been answered."""
    first_ms = await arm(desk, case)
    async with rivals(desk, "one", "two") as (first, second):
        await first.see()
        await first.give_up(turns)
        if turns:  # it reached the server, whoever waits for the answer or not
            await eventually(lambda: score(desk) == first_ms + case.due * MINUTE)
        lock_expires(desk)
        await second.tick()
        await second.tick()
    fired_once(desk, case, first_ms)


@each_case
async def test_one_whose_connection_is_killed_before_it_fires(desk: Desk, case: Case) -> None:
    first_ms = await arm(desk, case)
    async with rivals(desk, "one", "two") as (first, second):
        await first.see()
        number = await first.store.link.ask("CLIENT", "ID")
        assert desk.redis.client_kill_filter(_id=number) == 1
        with suppress(StoreError):  # it may notice in time, and fire on a new connection
            await first.go_on()
        lock_expires(desk)
        await second.tick()
        await second.tick()
    fired_once(desk, case, first_ms)


@each_case
@pytest.mark.parametrize("torn", [False, True], ids=["cut", "torn"])
async def test_one_that_never_hears_that_it_fired(
    desk: Desk, proxy: Proxy, case: Case, torn: bool
) -> None:
    """The server fired; the connection broke in place of the answer, or in its middle."""
    first_ms = await arm(desk, case)
    async with rivals(desk, "one", "two", url=proxy.url) as (first, second):
        await first.see()
        cut = proxy.cut(command="EVALSHA", torn=torn)
        with pytest.raises(StoreError):
            await first.go_on()
        assert cut.done == 1
        fired_once(desk, case, first_ms)
        await first.tick()  # it leads yet, and does not know
        lock_expires(desk)
        await second.tick()
    fired_once(desk, case, first_ms)


@each_case
async def test_one_that_never_hears_what_is_due(desk: Desk, proxy: Proxy, case: Case) -> None:
    first_ms = await arm(desk, case)
    async with rivals(desk, "one", "two", url=proxy.url) as (first, second):
        proxy.cut(command="EVALSHA")
        with pytest.raises(StoreError):
            await first.tick()
        assert holder(desk) == "one"
        await second.tick()
        assert fired(desk) == []
        lock_expires(desk)
        await second.tick()
        await first.tick()
    fired_once(desk, case, first_ms)


@each_case
async def test_a_fire_that_comes_late_to_the_server_does_nothing(
    desk: Desk, proxy: Proxy, case: Case
) -> None:
    """It was sent in good faith, and lay about in the network while another led and fired."""
    first_ms = await arm(desk, case)
    async with rivals(desk, "one", "two", url=proxy.url) as (first, second):
        await first.see()
        held = proxy.hold(FIRE)
        going = asyncio.ensure_future(first.go_on())
        await eventually(lambda: held.seen)
        lock_expires(desk)
        await second.tick()
        fired_once(desk, case, first_ms)
        proxy.heal()
        await going
        assert not first.leads
    fired_once(desk, case, first_ms)


@each_case
async def test_a_fire_that_fails_on_the_server_is_made_up_for(desk: Desk, case: Case) -> None:
    """No job could be added, so the spec has not moved on, either."""
    first_ms = await arm(desk, case)
    async with rivals(desk, "one") as (first,):
        desk.redis.set(desk.keys.stream, "no stream")
        if case.fires:
            with pytest.raises(StoreError):
                await first.tick()
            assert score(desk) == first_ms
        desk.redis.delete(desk.keys.stream)
        await first.tick()
        await first.tick()
    fired_once(desk, case, first_ms)
