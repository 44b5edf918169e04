"""A TCP proxy in front of a real server that breaks what a network breaks.

Requests are forwarded as they come, and their command names noted; replies are matched to them
in order, one by one, also inside a pipelined batch. So a cut means: the server did execute the
command, the client got every earlier reply, and never this one.

    cut(nth, command=)    drop the connection in place of the n-th reply from now on
    corrupt(nth, reply, command=)   send the bytes `reply` in place of the n-th reply from now on
    black_hole()          nothing passes in either direction, connections stay open
    hold(*needles)        the same for a connection once it sends a request with all of these in it;
                          so one of a client's many can be singled out, and those that replace it
    watch(*needles)       count such requests, and let them pass
    latency(low, high)    every chunk of replies waits
    reset()               RST on every open connection
    heal()                none of the above any more; what a black hole held back goes through

The proxy runs on a loop and a thread of its own and counts what it did, so a test can tell that
a fault took place. Subscriptions answer with messages nobody asked for; they are let through.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from tests.chaos.kit.frame import Frames, command, is_push

T = TypeVar("T")

_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)
_UNMATCHED = {"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR"}


class Cut:
    """An order to cut replies, and what came of it."""

    def __init__(
        self,
        nth: int,
        command: str | None,
        *,
        every: bool = False,
        torn: bool = False,
        instead: bytes | None = None,
    ) -> None:
        if nth < 1:
            raise ValueError(f"replies are counted from 1, got {nth}")
        self.nth = nth
        self.command = command.upper() if command else None
        self.every = every
        self.torn = torn
        self.instead = instead
        """These bytes go to the client, and its connection stays."""
        self.seen = 0
        self.done = 0

    def takes(self, name: str) -> bool:
        """Count one more reply; True when this is the one to cut."""
        if self.command not in (None, name) or (self.done and not self.every):
            return False
        self.seen += 1
        if self.seen % self.nth:
            return False
        self.done += 1
        return True


class Mark:
    """Requests to tell apart by what is in them, and how many were seen."""

    def __init__(self, needles: tuple[bytes | str, ...], *, holds: int | None = None) -> None:
        self.needles = [
            needle.encode() if isinstance(needle, str) else needle for needle in needles
        ]
        self.holds = holds
        """How many of them hold their connection; None means all."""
        self.seen = 0

    def holds_one_of(self, requests: list[bytes]) -> bool:
        before = self.seen
        self.seen += sum(all(part in request for part in self.needles) for request in requests)
        return self.seen > before and (self.holds is None or before < self.holds)


class _Link:
    """One client's connection and its twin to the server."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.from_client, self.to_client = client
        self.from_server, self.to_server = server
        self.awaited: deque[str] = deque()
        self.flow = asyncio.Event()
        self.flow.set()

    def close(self) -> None:
        for writer in (self.to_client, self.to_server):
            writer.close()

    def reset(self) -> None:
        for writer in (self.to_client, self.to_server):
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class Proxy:
    def __init__(self, port: int, *, host: str = "127.0.0.1", seed: int = 0) -> None:
        self._upstream = (host, port)
        self._random = Random(seed)
        self._cuts: tuple[Cut, ...] = ()
        self._marks: tuple[Mark, ...] = ()
        self._latency_ms = (0.0, 0.0)
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._flow = asyncio.Event()
        self._stop = asyncio.Event()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self.port = 0
        self.connections = 0
        self.unreachable = 0
        self.resets = 0
        self.commands: Counter[str] = Counter()
        self.cuts: list[str] = []

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def open_connections(self) -> int:
        return len(self._links)

    def cut(
        self, nth: int = 1, *, command: str | None = None, every: bool = False, torn: bool = False
    ) -> Cut:
        """Cut the n-th reply from now on, of one command or of all; `every` n-th if asked.

        A torn cut lets half of the reply's bytes through first.
        """
        order = Cut(nth, command, every=every, torn=torn)
        self._cuts = (*self._cuts, order)
        return order

    def corrupt(self, nth: int, reply: bytes, *, command: str | None = None) -> Cut:
        """Replace the n-th reply from now on by another one, of one command or of all."""
        order = Cut(nth, command, instead=reply)
        self._cuts = (*self._cuts, order)
        return order

    def black_hole(self) -> None:
        self._call(self._flow.clear)

    def hold(self, *needles: bytes | str, times: int | None = None) -> Mark:
        return self._mark(Mark(needles, holds=times))

    def watch(self, *needles: bytes | str) -> Mark:
        return self._mark(Mark(needles, holds=0))

    @property
    def held_connections(self) -> int:
        return sum(not link.flow.is_set() for link in tuple(self._links))

    def latency(self, low_ms: float, high_ms: float) -> None:
        self._latency_ms = (low_ms, high_ms)

    def heal(self) -> None:
        self._cuts = ()
        self._latency_ms = (0.0, 0.0)
        self._call(self._let_flow)

    def reset(self) -> int:
        """Reset every open connection; returns how many there were."""
        return self._call(self._reset)

    def start(self) -> Self:
        self._thread.start()
        if not self._listening.wait(10):
            raise RuntimeError("the proxy did not start")
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    def _mark(self, mark: Mark) -> Mark:
        def add() -> None:
            self._marks = (*self._marks, mark)

        self._call(add)
        return mark

    def _let_flow(self) -> None:
        self._marks = ()
        self._flow.set()
        for link in self._links:
            link.flow.set()

    def _call(self, act: Callable[[], T]) -> T:
        async def on_loop() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result(10)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        self._flow.set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._stop.wait()
        server.close()
        self._flow.set()
        self._reset()
        if self._serving:
            await asyncio.wait(self._serving)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = self._loop.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_connection(*self._upstream)
        except OSError:
            self.unreachable += 1
            writer.close()
            return
        link = _Link((reader, writer), server)
        self._links.add(link)
        if self._stop.is_set():
            link.reset()
        pumps = [self._loop.create_task(pump(link)) for pump in (self._requests, self._replies)]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self._links.discard(link)
        link.close()
        for pump in pumps:
            pump.cancel()
        await asyncio.wait(pumps)

    async def _requests(self, link: _Link) -> None:
        frames = Frames()
        with suppress(OSError):
            while data := await link.from_client.read(_CHUNK):
                requests = frames.feed(data)
                holds = [mark.holds_one_of(requests) for mark in self._marks]  # every mark counts
                if any(holds):
                    link.flow.clear()
                await self._flowing(link)
                for name in map(command, requests):
                    self.commands[name] += 1
                    if name not in _UNMATCHED:
                        link.awaited.append(name)
                link.to_server.write(data)
                await link.to_server.drain()

    async def _flowing(self, link: _Link) -> None:
        while not (self._flow.is_set() and link.flow.is_set()):
            await self._flow.wait()
            await link.flow.wait()

    async def _replies(self, link: _Link) -> None:
        frames = Frames()
        with suppress(OSError):
            while data := await link.from_server.read(_CHUNK):
                await self._flowing(link)
                if self._latency_ms[1]:
                    await asyncio.sleep(self._random.uniform(*self._latency_ms) / 1000)
                through, cut = self._sift(link, frames.feed(data))
                link.to_client.write(through)
                await link.to_client.drain()
                if cut:
                    return

    def _sift(self, link: _Link, replies: list[bytes]) -> tuple[bytes, bool]:
        """The bytes that may pass, and whether the connection ends there."""
        through = bytearray()
        for reply in replies:
            if link.awaited and not is_push(reply):
                name = link.awaited.popleft()
                # Every order counts every reply, so no short-circuit here.
                orders = [order for order in self._cuts if order.takes(name)]
                if orders:
                    self.cuts.append(name)
                    if orders[0].instead is not None:
                        through += orders[0].instead
                        continue
                    if orders[0].torn:
                        through += reply[: len(reply) // 2]
                    return bytes(through), True
            through += reply
        return bytes(through), False

    def _reset(self) -> int:
        links, self._links = self._links, set()
        for link in links:
            link.reset()
        self.resets += len(links)
        return len(links)
