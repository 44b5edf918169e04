"""A link mends itself: after restarts, broken and half-open connections, forgotten scripts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chasquimq.address import read_url
from chasquimq.config import ConnectOptions
from chasquimq.errors import ChasquiError, StoreError, StoreUnavailableError
from chasquimq.job import Due
from chasquimq.store import Dialer, Link
from chasquimq.store.dead import Revival
from chasquimq.store.pipe import Pipe
from chasquimq.store.resp import pack
from chasquimq.wire import Exported
from tests.servers import DialectServer
from tests.store.puppet import answer_ping, command, puppet
from tests.store.shelf import QUICK, Shelf, claim, member


@asynccontextmanager
async def linked(url: str, options: ConnectOptions = QUICK, **more: Any) -> AsyncIterator[Link]:
    link = Link(Dialer(read_url(url), options=options), **more)
    try:
        await link.open()
        yield link
    finally:
        await link.close()


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.002)


# -- scripts -------------------------------------------------------------------------------------


async def test_a_forgotten_script_is_loaded_again(own_shelf: Shelf) -> None:
    for _ in range(2):
        own_shelf.redis.script_flush()
        assert await own_shelf.open_stream() in ((0, 0), (10_000, 900))


async def test_every_verb_survives_a_script_flush(own_shelf: Shelf) -> None:
    jobs = await own_shelf.join()
    ids = own_shelf.deliver(b"a", b"b", b"c", b"d")
    delayed, dead = own_shelf.store.delayed, own_shelf.store.dead
    once = own_shelf.dialect(producer_id=b"p").add_own(b"a", [b"d", b"x"], 900)
    verbs = [
        lambda: own_shelf.send(jobs.retry(ids[0], 0, member())),
        lambda: own_shelf.send(jobs.bury(ids[1], [b"d", b"x"], 0)),
        lambda: own_shelf.send(jobs.dialect.ack([ids[2]])),
        lambda: own_shelf.send(once),
        lambda: own_shelf.send(delayed.schedule(Due(5), member("x"), "x", 5)),
        lambda: own_shelf.send(delayed.schedule_once(Due(5), member("y"), "y", 5)),
        lambda: delayed.cancel("y"),
        lambda: delayed.promote("me", 5, 10),
        lambda: delayed.release("me"),
        lambda: dead.replay([Revival("1-1", b"x", b"")]),
        lambda: dead.put_back([Exported("1-1", [b"d", b"x"])]),
        lambda: jobs.renew(own_shelf.link, ids),
        lambda: claim(jobs, 1, 10),
        lambda: jobs.adopt(10),
        lambda: jobs.give_back([[ids[3], []]]),
        lambda: jobs.leave(),
    ]
    for verb in verbs:
        own_shelf.redis.script_flush()
        await verb()


# -- broken connections ----------------------------------------------------------------------------


async def test_a_restarted_server_is_found_again(own_server: DialectServer) -> None:
    ups: list[str] = []
    async with linked(own_server.url) as link:
        link.on_up = lambda: ups.append("up")
        await link.ask("SET", "a", "1")
        own_server.server.kill()
        await until(lambda: link.pipe is None)
        own_server.server.start()
        assert await link.ask("GET", "a") == b"1"
        assert (link.reconnects, ups) == (1, ["up"])


async def test_a_question_waits_while_the_server_is_away(own_server: DialectServer) -> None:
    async with linked(own_server.url) as link:
        own_server.server.kill()
        await until(lambda: link.pipe is None)
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(link.ask("PING"))
            await asyncio.sleep(0.1)
            assert not asking.done()
            await asyncio.to_thread(own_server.server.start)
        assert asking.result() == b"PONG"


async def test_a_question_does_not_wait_for_ever(own_server: DialectServer) -> None:
    options = ConnectOptions(timeout_ms=150, retry_ms=5)
    async with linked(own_server.url, options) as link:
        own_server.server.kill()
        await until(lambda: link.pipe is None)
        with pytest.raises(StoreUnavailableError, match="has been away for 150 ms"):
            await link.ask("PING")


async def test_a_connection_that_breaks_before_the_answer_says_so_and_is_mended(
    dialect_server: DialectServer,
) -> None:
    async with linked(dialect_server.url) as link, linked(dialect_server.url) as other:
        number = await link.ask("CLIENT", "ID")
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(fails(link.ask("BLPOP", "nothing-here", 30)))
            await asyncio.sleep(0.05)
            await other.ask("CLIENT", "KILL", "ID", number)
        assert "broke before the answer came" in str(asking.result())
        assert await link.ask("PING") == b"PONG"
        assert link.reconnects == 1


async def fails(asking: Any) -> StoreError:
    with pytest.raises(StoreUnavailableError) as caught:
        await asking
    return caught.value


async def test_what_prepares_a_connection_prepares_every_one(
    dialect_server: DialectServer,
) -> None:
    async def prepare(pipe: Pipe) -> None:
        await pipe.ask(pack("CLIENT", "SETNAME", "prepared"))

    async with linked(dialect_server.url, prepare=prepare) as link:
        for _ in range(2):
            assert await link.ask("CLIENT", "GETNAME") == b"prepared"
            assert link.pipe is not None
            link.pipe.close()


async def test_a_connection_that_cannot_be_prepared_is_dialled_again(
    dialect_server: DialectServer,
) -> None:
    pipes: list[Pipe] = []

    async def prepare(pipe: Pipe) -> None:
        pipes.append(pipe)
        if len(pipes) == 2:
            raise StoreError("not now")
        if len(pipes) == 3:
            pipe.close()
            await pipe.ask(pack("PING"))

    async with linked(dialect_server.url, prepare=prepare) as link:
        pipes[0].close()
        assert await link.ask("PING") == b"PONG"
    assert len(pipes) == 4 and all(pipe.closed for pipe in pipes)


async def test_a_first_connection_that_breaks_while_it_is_prepared_is_an_error_of_ours(
    dialect_server: DialectServer,
) -> None:
    async def prepare(pipe: Pipe) -> None:
        pipe.close()
        await pipe.ask(pack("PING"))

    with pytest.raises(StoreUnavailableError, match="broke before the answer came"):
        async with linked(dialect_server.url, prepare=prepare):
            pass


# -- giving up -------------------------------------------------------------------------------------


async def test_tries_can_be_bounded(own_server: DialectServer) -> None:
    options = ConnectOptions(retry_ms=1, max_retry_ms=2, max_retries=3)
    told: list[ChasquiError] = []
    async with linked(own_server.url, options) as link:
        link.on_given_up = told.append
        own_server.server.kill()
        await until(lambda: told)
        with pytest.raises(StoreUnavailableError, match=r"gave up on .* after 3 tries: CMQ-001"):
            await link.ask("PING")
        assert len(told) == 1


async def test_whoever_waits_hears_that_it_was_given_up(own_server: DialectServer) -> None:
    options = ConnectOptions(retry_ms=30, max_retries=2)
    async with linked(own_server.url, options) as link:
        own_server.server.kill()
        await until(lambda: link.pipe is None)
        with pytest.raises(StoreUnavailableError, match="gave up"):
            await link.up()


async def test_tries_are_counted_anew_after_each_success() -> None:
    visits = 0

    async def moody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        if visits % 2:  # every second visit is refused
            await answer_ping(reader, writer)
            await writer.drain()

    options = ConnectOptions(retry_ms=1, max_retries=2)
    async with puppet(moody) as server, linked(server.url, options) as link:
        await until(lambda: link.reconnects >= 5)


async def test_pauses_grow_up_to_their_limit(own_server: DialectServer) -> None:
    options = ConnectOptions(retry_ms=20, max_retry_ms=40, max_retries=4)
    loop, told = asyncio.get_running_loop(), []
    async with linked(own_server.url, options) as link:
        link.on_given_up = told.append
        own_server.server.kill()
        began = loop.time()
        await until(lambda: told)
        assert loop.time() - began >= 0.020 + 0.040 + 0.040


# -- half-open connections -------------------------------------------------------------------------


async def black_hole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Greets, and then takes everything and answers nothing: a network that swallows."""
    await answer_ping(reader, writer)
    while await reader.read(65_536):
        pass


async def test_a_half_open_connection_is_given_up_and_replaced() -> None:
    options = ConnectOptions(reply_ms=100, retry_ms=5)
    loop = asyncio.get_running_loop()
    async with puppet(black_hole) as server, linked(server.url, options) as link:
        began = loop.time()
        with pytest.raises(StoreUnavailableError, match="broke before the answer came"):
            await link.ask("PING")
        assert 0.09 <= loop.time() - began < 3
        await until(lambda: link.reconnects)
        assert server.connections == 2


async def test_a_server_that_is_silent_on_one_connection_is_asked_anew_on_all(
    own_server: DialectServer,
) -> None:
    """Those on which nothing was asked would find out one after another, each after its time."""
    dialer = Dialer(read_url(own_server.url), options=ConnectOptions(reply_ms=100, retry_ms=5))
    asking, idle = Link(dialer), Link(dialer)
    await asking.open()
    await idle.open()
    own_server.server.pause()
    await fails(asking.ask("PING"))
    own_server.server.resume()
    await until(lambda: asking.reconnects and idle.reconnects)
    assert await idle.ask("PING") == b"PONG"
    await asking.close()
    await idle.close()


async def test_a_command_that_blocks_on_purpose_gets_its_time(
    dialect_server: DialectServer,
) -> None:
    options = ConnectOptions(reply_ms=80)
    async with linked(dialect_server.url, options, extra_reply_ms=2_000) as link:
        assert await link.ask("BLPOP", "nothing-here", "0.2") is None
        assert link.reconnects == 0
    async with linked(dialect_server.url, options) as link:
        await fails(link.ask("BLPOP", "nothing-here", "5"))


# -- closing ---------------------------------------------------------------------------------------


async def test_a_closed_link_does_not_come_back(dialect_server: DialectServer) -> None:
    before = asyncio.all_tasks()
    async with linked(dialect_server.url) as link:
        pipe = link.pipe
    assert pipe is not None and pipe.closed and link.pipe is None
    await asyncio.sleep(0.05)
    assert link.pipe is None
    assert asyncio.all_tasks() == before


async def test_whoever_asks_a_closed_link_is_told_at_once(own_server: DialectServer) -> None:
    loop = asyncio.get_running_loop()
    async with linked(own_server.url) as link:
        own_server.server.kill()
        await until(lambda: link.pipe is None)
        waiting = loop.create_task(fails(link.ask("PING")))
        await asyncio.sleep(0.01)
    began = loop.time()
    for error in (await waiting, await fails(link.ask("PING"))):
        assert "has been closed" in str(error)
    assert loop.time() - began < 2


async def test_closing_while_it_is_being_mended_ends_that(own_server: DialectServer) -> None:
    before = asyncio.all_tasks()
    async with linked(own_server.url) as link:
        own_server.server.kill()
        await until(lambda: link.pipe is None)
    assert asyncio.all_tasks() == before


async def test_nothing_is_sent_twice_by_the_link_itself() -> None:
    """Whether a command may be sent again is not for the link to know."""
    seen: list[bytes] = []

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer_ping(reader, writer)
        seen.append((await command(reader))[0])

    async with puppet(act) as server, linked(server.url) as link:
        await fails(link.ask("XADD", "s", "*", "d", "x"))
        await until(lambda: link.reconnects)
    assert seen == [b"XADD"]


# -- servers that are no longer the right ones ---------------------------------------------------


async def test_a_master_that_became_a_replica_is_left(own_server: DialectServer) -> None:
    """Behind one name there may be another server by then; what was on its way is answered."""
    redis = own_server.client()
    async with linked(own_server.url) as link:
        redis.replicaof("127.0.0.1", 1)
        first, second = await link.ask_each(("SET", "a", 1), ("GET", "a"))
        assert str(first).startswith("READONLY")
        assert second is None
        await until(lambda: link.reconnects == 1 and link.pipe is not None)
        redis.replicaof("NO", "ONE")
        assert await link.ask("SET", "a", 1) == b"OK"
        assert link.reconnects == 1
