"""One connection: every flight is heard of exactly once, and nothing waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import lua
from chasquimq.store.pipe import Pipe
from chasquimq.store.resp import bulk, pack
from tests.store.puppet import Act, command, puppet

Heard = list[tuple[str, str, list[Any]]]


@asynccontextmanager
async def connected(
    act: Act, *, buffer_bytes: int = 262_144, reply_s: float = 10.0
) -> AsyncIterator[Pipe]:
    async with puppet(act) as server:
        loop = asyncio.get_running_loop()
        _, pipe = await loop.create_connection(
            lambda: Pipe(buffer_bytes, reply_s), "127.0.0.1", server.port
        )
        try:
            yield pipe
        finally:
            pipe.close()


def send(pipe: Pipe, heard: Heard, name: str, count: int) -> None:
    """A flight of PINGs that notes what becomes of it."""
    pipe.send(
        pack("PING") * count,
        count,
        lambda replies: heard.append((name, "landed", replies)),
        lambda replies: heard.append((name, "lost", replies)),
    )


async def closed(pipe: Pipe) -> None:
    async with asyncio.timeout(5):
        while not pipe.closed:
            await asyncio.sleep(0.001)


def saying(*chunks: bytes, then_close: bool = True) -> Act:
    """Say it, once the client has sent something."""

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        for chunk in chunks:
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(0.005)
        if not then_close:
            await reader.read()

    return act


async def test_answers_go_to_their_flights_in_order() -> None:
    heard: Heard = []
    async with connected(saying(b"+a\r\n:1\r\n$", b"1\r\nb\r\n*1\r\n:2\r\n", b"$-1\r\n")) as pipe:
        send(pipe, heard, "first", 2)
        send(pipe, heard, "second", 3)
        assert not pipe.idle
        await closed(pipe)
    assert heard == [("first", "landed", [b"a", 1]), ("second", "landed", [b"b", [2], None])]
    assert pipe.idle


async def test_an_error_reply_is_a_value() -> None:
    async with connected(saying(b"-ERR no\r\n+ok\r\n")) as pipe:
        error, ok = await pipe.ask(pack("PING") * 2, 2)
    assert isinstance(error, hiredis.ReplyError) and str(error) == "ERR no"
    assert ok == b"ok"


async def test_an_error_reply_is_legible_and_not_endless() -> None:
    paints = b"-ERR \x1b]0;owned\x07 \xff " + b"x" * 5_000 + b"\r\n"
    async with connected(saying(paints)) as pipe:
        [error] = await pipe.ask(pack("PING"))
    assert str(error).startswith(r"ERR \x1b]0;owned\x07") and str(error).isprintable()
    assert len(str(error)) == 1_000


async def test_a_connection_hangs_up_from_another_thread_and_keeps_the_reason() -> None:
    async with connected(saying(b"", then_close=False)) as pipe:
        await asyncio.to_thread(pipe.hang_up, "another is the master")
        await closed(pipe)
        assert pipe.left_for == "another is the master"


async def test_a_connection_that_breaks_in_the_middle_tells_who_was_answered() -> None:
    heard: Heard = []
    ended: list[str] = []
    async with connected(saying(b":1\r\n:2\r\n:3\r\n:4\r\n$3\r\nto")) as pipe:
        pipe.on_closed = lambda: ended.append("closed")
        for name, count in (("whole", 3), ("half", 3), ("none", 1)):
            send(pipe, heard, name, count)
        await closed(pipe)
    # The newest first: each is put in front of what waits, and so they are in their order again.
    assert heard == [("whole", "landed", [1, 2, 3]), ("none", "lost", []), ("half", "lost", [4])]
    assert ended == ["closed"]


async def test_closing_ourselves_loses_what_is_in_flight_once() -> None:
    heard: Heard = []
    async with connected(saying(then_close=False)) as pipe:
        send(pipe, heard, "a", 1)
        pipe.close()
        pipe.close()
        await asyncio.sleep(0.01)
    assert heard == [("a", "lost", [])]


async def test_what_is_sent_on_a_closed_connection_is_lost_at_once() -> None:
    heard: Heard = []
    async with connected(saying()) as pipe:
        pipe.close()
        send(pipe, heard, "late", 2)
        with pytest.raises(ConnectionError):
            await pipe.ask(pack("PING"))
    assert heard == [("late", "lost", [])]


async def test_an_owner_that_hangs_up_on_an_answer_hears_of_the_rest_once() -> None:
    heard: Heard = []
    async with connected(saying(b":1\r\n:2\r\n:3\r\n")) as pipe:
        pipe.send(pack("PING"), 1, lambda replies: pipe.close(), lambda replies: None)
        send(pipe, heard, "second", 1)
        send(pipe, heard, "third", 1)
        await closed(pipe)
    assert heard == [("third", "lost", []), ("second", "lost", [])]


@pytest.mark.parametrize("junk", [b"HTTP/1.1 400 Bad Request\r\n", b"\0\0\0\0", b":x\r\n"])
async def test_bytes_of_another_protocol_close_the_connection(junk: bytes) -> None:
    heard: Heard = []
    async with connected(saying(b":1\r\n" + junk, then_close=False)) as pipe:
        send(pipe, heard, "a", 1)
        send(pipe, heard, "b", 1)
        await closed(pipe)
    assert heard == [("a", "landed", [1]), ("b", "lost", [])]


async def test_a_reply_that_its_owner_cannot_read_is_lost_with_the_connection() -> None:
    heard: Heard = []

    def landed(replies: list[Any]) -> None:
        heard.append(("second", "landed", replies[0][0]))

    async with connected(saying(b":1\r\n:2\r\n:3\r\n", then_close=False)) as pipe:
        send(pipe, heard, "first", 1)
        pipe.send(
            pack("PING"), 1, landed, lambda replies: heard.append(("second", "lost", replies))
        )
        send(pipe, heard, "third", 1)
        await closed(pipe)
    assert heard == [("first", "landed", [1]), ("third", "lost", []), ("second", "lost", [])]


async def test_an_owner_that_fails_keeps_the_end_from_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: Heard = []

    def fail(replies: list[Any]) -> None:
        raise RuntimeError("a defect")

    async with connected(saying(b":1\r\n")) as pipe:
        pipe.on_closed = lambda: heard.append(("pipe", "closed", []))
        send(pipe, heard, "first", 1)
        send(pipe, heard, "second", 1)
        pipe.send(pack("PING"), 1, fail, fail)
        await closed(pipe)
    assert heard == [("first", "landed", [1]), ("second", "lost", []), ("pipe", "closed", [])]
    assert "a defect" in caplog.text


async def test_a_message_that_its_owner_cannot_read_ends_the_connection() -> None:
    async with connected(saying(b"+ok\r\n", b":1\r\n", then_close=False)) as pipe:
        pipe.on_push = lambda message: message[0]
        assert await pipe.ask(pack("SUBSCRIBE", "c")) == [b"ok"]
        await closed(pipe)


async def test_what_nobody_waits_for_is_a_message() -> None:
    messages: list[Any] = []
    async with connected(saying(b"+ok\r\n", b"*2\r\n+message\r\n+hello\r\n")) as pipe:
        pipe.on_push = messages.append
        assert await pipe.ask(pack("SUBSCRIBE", "c")) == [b"ok"]
        await closed(pipe)
    assert messages == [[b"message", b"hello"]]


async def test_scripts_are_loaded_ahead_of_what_is_sent_next() -> None:
    seen: list[list[bytes]] = []

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append(await command(reader))
            writer.write(b"+ok\r\n")

    async with connected(act) as pipe:
        pipe.load(("retry", "bury"))
        await pipe.ask(pack("PING"))
    sources = [lua.SOURCES[name].encode() for name in ("retry", "bury")]
    assert seen == [*([b"SCRIPT", b"LOAD", source] for source in sources), [b"PING"]]


# -- time ----------------------------------------------------------------------------------------


async def test_a_reply_that_is_long_overdue_ends_the_connection() -> None:
    heard: Heard = []
    loop = asyncio.get_running_loop()
    async with connected(saying(then_close=False), reply_s=0.1) as pipe:
        began = loop.time()
        send(pipe, heard, "a", 1)
        await closed(pipe)
        assert 0.09 <= loop.time() - began < 3
    assert heard == [("a", "lost", [])]


async def test_a_slow_server_that_goes_on_answering_is_not_given_up() -> None:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await command(reader):
            await asyncio.sleep(0.08)
            writer.write(b"+ok\r\n")

    async with connected(act, reply_s=0.4) as pipe:
        for _ in range(8):
            assert await pipe.ask(pack("PING")) == [b"ok"]
        await asyncio.sleep(0.45)  # nothing in flight: silence is no sign of death
        assert not pipe.closed


# -- room ----------------------------------------------------------------------------------------


async def test_a_server_that_does_not_read_makes_the_pipe_full_until_it_does() -> None:
    reads = asyncio.Event()

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reads.wait()
        while await reader.read(1_000_000):
            pass

    drained: list[bool] = []
    async with connected(act, buffer_bytes=65_536) as pipe:
        pipe.on_drained = lambda: drained.append(pipe.full)
        heard: Heard = []
        sent = 0
        while not pipe.full:
            pipe.send(bytes(100_000), 1, lambda replies: None, lambda replies: None)
            sent += 1
            await asyncio.sleep(0)
            assert sent < 1_000
        send(pipe, heard, "written all the same", 1)
        assert drained == []
        reads.set()
        async with asyncio.timeout(10):
            while pipe.full:
                await asyncio.sleep(0.001)
        assert drained == [False]


# -- any pieces ------------------------------------------------------------------------------------

REPLIES = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=20),
    lambda children: st.lists(children, max_size=4),
    max_leaves=8,
)


class Mute(asyncio.Transport):
    """Takes everything and says nothing."""

    def write(self, data: Any) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def encoded(reply: Any) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return bulk(reply)
    return b"*%d\r\n" % len(reply) + b"".join(map(encoded, reply))


@given(replies=st.lists(REPLIES, min_size=1, max_size=8), size=st.integers(1, 40), data=st.data())
async def test_replies_arrive_whatever_the_pieces(
    replies: list[Any], size: int, data: st.DataObject
) -> None:
    heard: Heard = []
    pipe = Pipe(65_536, 10.0)
    pipe.connection_made(Mute())
    counts: list[int] = []
    while sum(counts) < len(replies):
        counts.append(data.draw(st.integers(1, len(replies) - sum(counts))))
        send(pipe, heard, "flight", counts[-1])
    stream = b"".join(map(encoded, replies))
    for at in range(0, len(stream), size):
        pipe.data_received(stream[at : at + size])
    pipe.connection_lost(None)
    assert [len(got) for _, _, got in heard] == counts
    assert [how for _, how, _ in heard] == ["landed"] * len(counts)
    assert [reply for _, _, got in heard for reply in got] == replies
