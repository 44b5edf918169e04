"""`chasqui watch`: the same as `inspect`, over and over, with what changed and how fast.

1. look at the queue, or at all of them, in one round trip per tick and server; which queues there
   are, and of a cluster which nodes, is looked up beside that, and seldom: it means walking over
   all keys;
2. draw: over the last picture in a terminal, a block per look in a pipe, a line of JSON;
3. wait for the next tick. A server that does not answer is waited for, and the picture says so.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Annotated, Protocol

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from chasquimq import wire
from chasquimq.address import Address
from chasquimq.cli import render_watch
from chasquimq.cli.aside import logged_to
from chasquimq.cli.clock import now_ms
from chasquimq.cli.render import iso
from chasquimq.cli.screen import Screen, plain, toned
from chasquimq.cli.shell import AsJson, RedisUrl, examples, run, the_address
from chasquimq.cli.shell import Group as GroupName
from chasquimq.cli.trend import Trend
from chasquimq.errors import StoreUnavailableError
from chasquimq.store import Dialer, Link
from chasquimq.store.inspect import Overview, overviews
from chasquimq.store.survey import Survey

EXAMPLES = examples(
    "chasqui watch                          all queues of the server",
    "chasqui watch mail --interval-ms 200   one queue, five times a second",
    "chasqui watch mail --count 60 --json > minute.jsonl",
)

PATIENCE_S = 1.0  # before an answer that does not come is told of
NO_PATIENCE_S = 0.1  # ... where the connection is known to be broken
SURVEY_S = 10.0  # between two walks over all keys, and ten times as long as one takes


def watch(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Name of the queue; default: all.")
    ] = None,
    interval_ms: Annotated[int, typer.Option(min=1, help="From one look to the next.")] = 1_000,
    group: GroupName = "default",
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many looks.", show_default=False)
    ] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Follow how many jobs wait, come and go, until Ctrl-C.

    In a terminal the table is drawn over and over again; a pipe gets a block per look, and with
    --json a line per look. A server that goes away is waited for.
    """
    screen = Screen(as_json=as_json)
    keys = None if queue is None else wire.Keys(queue)
    address = the_address(redis_url)
    view = View(queue, interval_ms, str(address))
    watcher = Watcher(address, keys, group, view)
    page: Page = Terminal(screen, view) if screen.is_live else Pipe(screen, view)
    # What a connection logs while it is mended would be written into the picture.
    quiet = logged_to(logging.NullHandler())
    with quiet, screen.until_nobody_reads(), suppress(KeyboardInterrupt, asyncio.CancelledError):
        run(_watch(watcher, page, interval_ms / 1_000, count))


class View:
    """What there is to be drawn."""

    def __init__(self, queue: str | None, interval_ms: int, where: str) -> None:
        self.queue = queue
        self.where = where
        self.interval_ms = interval_ms
        self.now_ms = self.answered_ms = now_ms()
        self.away = False  # the server does not answer
        self.trends: dict[str, Trend] = {}

    @property
    def header(self) -> str:
        return render_watch.header(self.queue, self.interval_ms, self.now_ms)

    @property
    def the_one(self) -> Trend | None:
        return None if self.queue is None else self.trends.get(self.queue)

    def every(self) -> list[Trend]:
        return [trend for trend in self.trends.values() if trend.last.exists]


class Server:
    """One of those that are looked at, and the queues it has."""

    def __init__(self, dialer: Dialer, queues: list[wire.Keys]) -> None:
        self.link = Link(dialer)
        self.queues = queues


class Watcher:
    """Looks at one queue, or at all."""

    def __init__(self, address: Address, keys: wire.Keys | None, group: str, view: View) -> None:
        self._address = address
        self._keys = keys
        self._group = group
        self._view = view
        self._servers: dict[Address, Server] = {}
        self._missed = asyncio.Event()  # a look had no answer

    async def open(self) -> float:
        """Answers after how many seconds to survey again."""
        if self._keys is None:
            return await self.survey()
        server = self._servers[self._address] = Server(
            Dialer(self._address).of(self._keys.stream), [self._keys]
        )
        await server.link.open()
        return float("inf")

    async def close(self) -> None:
        for server in self._servers.values():
            await server.link.close()

    async def look(self) -> None:
        view, servers = self._view, list(self._servers.values())
        broken = any(server.link.pipe is None for server in servers)
        every: list[Overview] = []
        try:
            async with asyncio.timeout(NO_PATIENCE_S if broken else PATIENCE_S):
                for server in servers:
                    every += await overviews(server.link, server.queues, self._group)
        except (StoreUnavailableError, TimeoutError):
            view.now_ms = now_ms()
            view.away = True
            self._missed.set()
            return
        view.now_ms = view.answered_ms = now_ms()
        view.away = False
        known, view.trends = view.trends, {}
        for one in sorted(every, key=lambda one: one.queue):
            trend = view.trends[one.queue] = known.get(one.queue) or Trend(one)
            if trend.last is not one:
                trend.add(one)

    async def survey(self) -> float:
        """Look up which servers there are, and which queues they have; answers after how many
        seconds to do so again."""
        began = time.monotonic()
        nodes = await asyncio.to_thread(self._address.nodes)
        for gone in self._servers.keys() - set(nodes):
            await self._servers.pop(gone).link.close()
        for node in nodes:
            if node not in self._servers:
                fresh = Server(Dialer(node), [])
                await fresh.link.open()
                self._servers[node] = fresh
            server = self._servers[node]
            if server.link.pipe is not None:  # else a walk would wait for one that may be dead
                names = await Survey(server.link).queues()
                server.queues = [wire.Keys(name) for name in names]
        return max(SURVEY_S, 10 * (time.monotonic() - began))

    async def keep_surveying(self, pause_s: float) -> None:
        """In a cluster another node may have a queue by now: who has no answer looks again."""
        while self._keys is None:
            self._missed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._missed.wait()
                    await asyncio.sleep(PATIENCE_S)
            with suppress(StoreUnavailableError):
                pause_s = await self.survey()


class Page(Protocol):
    def opened(self) -> AbstractContextManager[object]: ...

    def draw(self) -> None: ...


async def _watch(watcher: Watcher, page: Page, interval_s: float, count: int | None) -> None:
    try:
        pause_s = await watcher.open()
        with page.opened():
            async with asyncio.TaskGroup() as tasks:
                survey = tasks.create_task(watcher.keep_surveying(pause_s))
                await _tick(watcher, page, interval_s, count)
                survey.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # the others were cancelled by it
    finally:
        await watcher.close()


async def _tick(watcher: Watcher, page: Page, interval_s: float, count: int | None) -> None:
    loop = asyncio.get_running_loop()
    due, ticks = loop.time(), 0
    while True:
        await watcher.look()
        page.draw()
        ticks += 1
        if ticks == count:
            return
        # A tick that took too long is not made up for.
        due = max(due + interval_s, loop.time())
        await asyncio.sleep(due - loop.time())


class Pipe:
    """A block, or a line of JSON, per look."""

    def __init__(self, screen: Screen, view: View) -> None:
        self._screen = screen
        self._view = view

    def opened(self) -> AbstractContextManager[object]:
        return nullcontext()

    def draw(self) -> None:
        view, screen = self._view, self._screen
        if screen.as_json:
            screen.line(self._document())
            return
        lines = [view.header]
        if view.away:
            lines.append(render_watch.no_answer(view.where, view.answered_ms).text)
        elif view.queue is None:
            lines.append(plain(render_watch.all_queues(view.every())).rstrip("\n"))
        elif view.the_one is not None:
            lines.append(plain(render_watch.one_queue(view.the_one)).rstrip("\n"))
            lines.append(" ".join(word.text for word in render_watch.pace(view.the_one)))
        screen.write("\n".join(lines) + "\n\n")

    def _document(self) -> dict[str, object]:
        view = self._view
        at = {"at": iso(view.now_ms)}
        if view.away:
            return {**at, "no_answer_since": iso(view.answered_ms)}
        if view.the_one is not None:
            return {**at, **view.the_one.to_dict()}
        return {**at, "queues": [trend.to_dict() for trend in view.every()]}


class Terminal:
    """A picture that is drawn over and over again, as large as the terminal is at the moment."""

    def __init__(self, screen: Screen, view: View) -> None:
        from rich.live import Live

        self._screen = screen
        self._view = view
        self._live = Live(self, console=screen.console, screen=True, auto_refresh=False)

    @contextmanager
    def opened(self) -> Iterator[None]:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        loop.add_signal_handler(signal.SIGWINCH, self._live.refresh)
        if this is not None:  # a terminal gets its own picture back, whoever ends us
            loop.add_signal_handler(signal.SIGTERM, this.cancel)
        try:
            with self._live:
                yield
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            # The picture was on a screen of its own: the last one stays for whoever reads on.
            self._screen.console.print(self)

    def draw(self) -> None:
        self._live.refresh()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        view = self._view
        parts: list[RenderableType] = [Text(view.header, no_wrap=True, overflow="ellipsis")]
        if view.queue is None:
            room = console.height - 7  # the header, the table's frame, two lines below it
            parts.append(self._screen.drawn(render_watch.all_queues(view.every(), room)))
        elif view.the_one is not None:
            parts.append(self._screen.drawn(render_watch.one_queue(view.the_one)))
            parts.append(toned(render_watch.pace(view.the_one)))
            parts.append(toned(render_watch.curve(view.the_one, console.width)))
        if view.away:
            parts.append(toned([render_watch.no_answer(view.where, view.answered_ms)]))
        yield Group(*parts)
