"""The key that pauses a queue: who writes it, who looks, and what is not taken meanwhile."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import pytest
import redis

from chasquimq.errors import AccessError, ArgumentError, ConfigError, StoreUnavailableError
from chasquimq.store.hold import LONGEST_REASON, Hold, noted
from tests.store.shelf import GROUP, Shelf, claim

AT_MS = 1_763_286_312_999
DENIALS = [("-exists",), ("resetkeys", "~*:stream", "~*:events")]


async def test_the_first_pause_is_noted_and_the_second_changes_nothing(shelf: Shelf) -> None:
    hold, key = shelf.store.hold, shelf.keys.paused
    assert (await hold.is_there(), await hold.note(), await hold.look()) == (False, None, False)
    assert await hold.put(AT_MS, "new schema") is True
    first = shelf.redis.get(key)
    assert await hold.put(AT_MS, "me too") is False
    assert shelf.redis.get(key) == first
    assert shelf.redis.ttl(key) == -1
    assert (await hold.is_there(), await hold.look()) == (True, True)
    assert await hold.note() == first.decode()
    assert await hold.lift() is True
    assert await hold.lift() is False
    assert not shelf.redis.exists(key)


def test_the_note_says_when_where_and_why() -> None:
    note = noted(AT_MS, "new schema")
    assert note.startswith(f"2025-11-16T09:45:12Z by process {os.getpid()} on ")
    assert note.endswith(": new schema")
    assert noted(AT_MS, None) == noted(AT_MS, "") == note.removesuffix(": new schema")


@pytest.mark.parametrize(
    ("reason", "error"), [(b"bytes", ArgumentError), ("x" * (LONGEST_REASON + 1), ConfigError)]
)
def test_a_reason_that_makes_no_sense_is_refused(reason: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="reason"):
        noted(AT_MS, reason)


async def test_whatever_lies_there_is_a_pause(shelf: Shelf) -> None:
    hold, key = shelf.store.hold, shelf.keys.paused
    for value, note in ((b"", ""), (b"1", "1"), (b"\xff", "\\xff")):
        shelf.redis.set(key, value)
        assert (await hold.look(), await hold.is_there(), await hold.note()) == (True, True, note)
    shelf.redis.delete(key)
    shelf.redis.hset(key, "a", "b")
    assert (await hold.look(), await hold.is_there(), await hold.note()) == (True, True, "")
    assert await hold.put(AT_MS) is False
    assert await hold.lift() is True


async def test_the_question_behind_a_blocked_read_hears_of_a_pause_that_came_meanwhile(
    shelf: Shelf,
) -> None:
    """What the guarantee rests on: it is answered when the read is, not when it was sent."""
    jobs = await shelf.join()
    link = await shelf.new_link()
    assert link.pipe is not None
    answers: list[list[Any]] = []
    data = jobs.read(10, 60_000) + shelf.store.hold.question
    link.pipe.send(data, 2, answers.append, answers.append)
    await link_is_blocked(shelf)
    shelf.redis.pipeline().set(shelf.keys.paused, "").xadd(shelf.keys.stream, {"d": "a"}).execute()
    await link.clock_ms()  # answered behind them
    [[read, paused]] = answers
    assert (len(read[0][1]), shelf.store.hold.heard(paused)) == (1, True)


async def link_is_blocked(shelf: Shelf) -> None:
    while not shelf.redis.info("clients")["blocked_clients"]:
        await shelf.link.clock_ms()


async def test_in_a_pause_nothing_is_claimed_and_nobody_is_charged(shelf: Shelf) -> None:
    jobs, hold = await shelf.join(), shelf.store.hold
    [own] = shelf.deliver(b"own")
    [left] = shelf.deliver(b"left", consumer="dead")
    await hold.put(AT_MS)
    assert await claim(jobs, 0, 10, unless=hold.keys) == []
    assert shelf.pending() == {own: ("me", 1), left: ("dead", 1)}
    await hold.lift()
    assert len(await claim(jobs, 0, 10, unless=hold.keys)) == 2
    assert shelf.pending() == {own: ("me", 2), left: ("me", 2)}


@pytest.mark.parametrize("denied", DENIALS, ids=["command", "key"])
async def test_who_may_not_look_works_on_and_says_so_once(
    shelf: Shelf,
    new_user: Callable[..., str],
    denied: tuple[str, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await shelf.join()
    [left] = shelf.deliver(b"left", consumer="dead")
    link = await shelf.new_link(new_user("~*", "&*", "+@all", *denied))
    hold, jobs = Hold(shelf.keys, link), shelf.jobs(link=link)
    shelf.redis.set(shelf.keys.paused, "")
    with caplog.at_level(logging.WARNING):
        assert [await hold.look(), await hold.look()] == [False, False]
    assert len(caplog.messages) == 1
    assert "EXISTS" in caplog.messages[0] and shelf.keys.paused.decode() in caplog.messages[0]
    assert [row[0] for row in await claim(jobs, 0, 10, unless=hold.keys)] == [left]
    with pytest.raises(AccessError):
        await hold.is_there()
    # As soon as it may look, it does.
    assert hold.heard(1) is True
    assert hold.keys == (shelf.keys.paused,)


async def test_a_server_that_cannot_answer_now_may_hold_a_pause(own_shelf: Shelf) -> None:
    shelf, hold = own_shelf, own_shelf.store.hold
    client = shelf.server.client(socket_timeout=60)
    shelf.redis.config_set("lua-time-limit", 1)
    busy = client.connection_pool.get_connection()
    busy.send_command("EVAL", "while true do end", 0)
    try:
        with pytest.raises(StoreUnavailableError, match="BUSY"):
            await look_for_ever(hold)
    finally:
        shelf.redis.script_kill()
        with pytest.raises(redis.ResponseError):
            busy.read_response()
        client.connection_pool.release(busy)
    assert hold.heard(Exception("BUSY Redis is busy running a script")) is True
    assert hold.keys == (shelf.keys.paused,)
    assert await hold.look() is False


async def look_for_ever(hold: Hold) -> None:
    while True:
        await hold.look()


async def test_what_runs_is_counted_by_group_without_what_was_given_back(shelf: Shelf) -> None:
    hold = shelf.store.hold
    assert await hold.unfinished() == []
    await shelf.join()
    shelf.redis.xgroup_create(shelf.keys.stream, "second", "0")
    [done, suspect] = shelf.deliver(b"a", b"b", consumer="one")
    shelf.deliver(b"c", consumer="two")
    one = shelf.jobs("one")
    await one.give_back([[suspect, [b"d", b"b"], 0, 1]])
    first, second = await hold.unfinished()
    assert first == (GROUP, 2, (("one", 1), ("two", 1)))
    assert second == ("second", 0, ())
    shelf.redis.xack(shelf.keys.stream, GROUP, done)
    assert (await hold.unfinished())[0] == (GROUP, 1, (("two", 1),))


async def test_what_was_given_back_under_our_name_is_no_lost_reply(shelf: Shelf) -> None:
    """Else it would be taken up again, or given back again, with one delivery less each time."""
    jobs = await shelf.join()
    [suspect, lost] = shelf.deliver(b"a", b"b")
    await jobs.give_back([[suspect, [b"d", b"a"], 0, 4]])
    assert [row[0] for row in await jobs.adopt(10)] == [lost]
    assert shelf.pending()[suspect] == ("me", 4)
    assert shelf.idle_ms(suspect) > 1_000_000_000
