"""A server that says what a test tells it to: for what no real server does on request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Puppet:
    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"


@asynccontextmanager
async def puppet(act: Act) -> AsyncIterator[Puppet]:
    """Serves each connection by `act`, and hangs up when that returns."""
    playing: set[asyncio.Task[None] | None] = set()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        playing.add(asyncio.current_task())
        server.connections += 1
        try:
            await act(reader, writer)
        except (OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    listening = await asyncio.start_server(play, "127.0.0.1", 0)
    server = Puppet(listening.sockets[0].getsockname()[1])
    try:
        yield server
    finally:
        listening.close()
        for task in playing:
            if task is not None:
                task.cancel()
        if playing:
            await asyncio.wait([task for task in playing if task is not None])


async def command(reader: asyncio.StreamReader) -> list[bytes]:
    """Read one command."""
    count = int((await reader.readuntil(b"\r\n"))[1:])
    words = []
    for _ in range(count):
        size = int((await reader.readuntil(b"\r\n"))[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words


async def answer_ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    assert await command(reader) == [b"PING"]
    writer.write(b"+PONG\r\n")
