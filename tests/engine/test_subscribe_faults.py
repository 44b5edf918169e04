"""Who follows a queue goes on by itself after the server was away, and never hangs on it."""

from __future__ import annotations

import asyncio

import pytest

from chasquimq import AccessError, StoreError, StoreUnavailableError
from tests.engine.desk import Desk, eventually
from tests.engine.follow import collecting, follower, reading, redis_ms, take, take_ids, tell
from tests.store.puppet import command, puppet


async def test_a_restarted_server_costs_no_event_and_doubles_none(own_desk: Desk) -> None:
    async with follower(own_desk) as events, collecting(events) as seen:
        tell(own_desk, *"abc")
        await eventually(lambda: len(seen) == 3)
        own_desk.server.server.kill()
        await asyncio.to_thread(own_desk.server.server.start)
        tell(own_desk, *"def")
        await eventually(lambda: len(seen) >= 6)
        tell(own_desk, "g")
        await eventually(lambda: len(seen) >= 7)
    assert [event.job_id for event in seen] == [*"abcdefg"]


async def test_broken_connections_cost_no_event_and_double_none(own_desk: Desk) -> None:
    wanted = [f"{number}" for number in range(200)]
    async with follower(own_desk, count=3) as events, collecting(events) as seen:
        for first in range(0, 200, 20):
            tell(own_desk, *wanted[first : first + 20])
            own_desk.redis.client_kill_filter(_type="normal", skipme=True)
        await eventually(lambda: len(seen) >= 200)
    assert [event.job_id for event in seen] == wanted


async def test_an_error_that_passes_is_waited_out(desk: Desk) -> None:
    answers = [b"-LOADING Redis is loading the dataset in memory\r\n", b"-READONLY\r\n", b"*-1\r\n"]
    event = b"*1\r\n*2\r\n$1\r\nk\r\n*1\r\n*2\r\n$3\r\n5-0\r\n*2\r\n$1\r\ne\r\n$3\r\ndlq\r\n"
    asked: list[list[bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (words := await command(reader)) == [b"PING"]:
            writer.write(b"+PONG\r\n")
        while True:
            asked.append(words)
            writer.write(answers.pop(0) if answers else event)
            words = await command(reader)

    async with puppet(serve) as server:
        events = follower(desk, redis_url=server.url, last_event_id="4-7")
        (seen,) = await take(events, 1)
        await events.close()
    assert (seen.name, seen.id) == ("dlq", "5-0")
    assert len(asked) == 4
    assert {words[-1] for words in asked} == {b"4-7"}, "each read goes on from the same place"


async def test_the_first_connect_raises_at_once(desk: Desk) -> None:
    nowhere = follower(desk, redis_url="redis://127.0.0.1:1")
    with pytest.raises(StoreUnavailableError, match=r"cannot reach Redis at redis://127\.0\.0\.1"):
        await anext(nowhere)
    with pytest.raises(StoreUnavailableError):
        async with nowhere:
            pass
    await nowhere.close()


async def test_a_wrong_password_raises_and_is_not_shown(desk: Desk) -> None:
    secret = "hunter2hunter2"  # not a secret
    url = desk.server.url.replace("redis://", f"redis://nobody:{secret}@")
    with pytest.raises(AccessError, match="check the user") as caught:
        await anext(follower(desk, redis_url=url))
    assert secret not in str(caught.value)


async def test_it_gives_up_when_told_so(own_desk: Desk) -> None:
    async with follower(own_desk, reconnect_max_attempts=2) as events:
        tell(own_desk, "a")
        assert await take_ids(events, 1) == ["a"]
        own_desk.server.server.kill()
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match=r"gave up .* after 2 tries"):
                await take(events, 1)


async def test_a_key_of_another_type_is_a_loud_error(desk: Desk) -> None:
    desk.redis.set(desk.keys.events, "in the way")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await anext(follower(desk, last_event_id="0"))
    with pytest.raises(StoreError, match="WRONGTYPE"):
        async with follower(desk):
            pass


async def test_a_deleted_stream_is_followed_when_it_is_there_again(desk: Desk) -> None:
    async with follower(desk) as events:
        tell(desk, "a")
        assert await take_ids(events, 1) == ["a"]
        desk.redis.delete(desk.keys.events)
        # A new stream begins with the ids of its time: within one millisecond they could be equal.
        await eventually(lambda: redis_ms(desk) > int(events.last_event_id.split("-")[0]))
        tell(desk, "b")
        assert await take_ids(events, 1) == ["b"]


async def test_close_ends_the_wait_for_a_server_that_is_away(own_desk: Desk) -> None:
    async with follower(own_desk) as events, collecting(events):
        await eventually(lambda: reading(own_desk) == 1)
        own_desk.server.server.kill()


async def test_close_ends_a_connect_that_takes_long(desk: Desk) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with puppet(silent) as server:
        events = follower(desk, redis_url=server.url)
        async with asyncio.timeout(5), collecting(events) as seen:
            await eventually(lambda: server.connections == 1)
    assert seen == []
