"""`chasqui watch`: the same as `inspect`, over and over, with what changed and how fast.

1. look at the queue, or at all of them, in one round trip per tick; which queues there are is
   looked up beside that, and seldom: it means walking over all keys of the server;
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
from chasquimq.cli import render_watch
from chasquimq.cli.aside import logged_to
from chasquimq.cli.clock import now_ms
from chasquimq.cli.render import iso
from chasquimq.cli.screen import Screen, plain, toned
from chasquimq.cli.shell import AsJson, RedisUrl, examples, run, the_address
from chasquimq.cli.shell import Group as GroupName
from chasquimq.cli.trend import Trend
from chasquimq.errors import ConfigError, StoreUnavailableError
from chasquimq.store import Dialer, Link
from chasquimq.store.inspect import overviews
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
    dialer = Dialer(address)
    if keys is not None:
        dialer = dialer.of(keys.stream)
    elif address.kind == "cluster":
        raise ConfigError(f"{address} is a cluster, whose queues lie on several servers: name one")
    link = Link(dialer)
    watcher = Watcher(link, keys, group, view)
    page: Page = Terminal(screen, view) if screen.is_live else Pipe(screen, view)
    # What a connection logs while it is mended would be written into the picture.
    quiet = logged_to(logging.NullHandler())
    with quiet, screen.until_nobody_reads(), suppress(KeyboardInterrupt, asyncio.CancelledError):
        run(_watch(link, watcher, page, interval_ms / 1_000, count))


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


class Watcher:
    """Looks at one queue, or at all."""

    def __init__(self, link: Link, keys: wire.Keys | None, group: str, view: View) -> None:
        self._link = link
        self._group = group
        self._view = view
        self._all = keys is None
        self._queues = [] if keys is None else [keys]

    async def look(self) -> None:
        view = self._view
        patience_s = NO_PATIENCE_S if self._link.pipe is None else PATIENCE_S
        try:
            async with asyncio.timeout(patience_s):
                every = await overviews(self._link, self._queues, self._group)
        except (StoreUnavailableError, TimeoutError):
            view.now_ms = now_ms()
            view.away = True
            return
        view.now_ms = view.answered_ms = now_ms()
        view.away = False
        known, view.trends = view.trends, {}
        for one in every:
            trend = view.trends[one.queue] = known.get(one.queue) or Trend(one)
            if trend.last is not one:
                trend.add(one)

    async def survey(self) -> float:
        """Look up which queues there are; answers after how many seconds to do so again."""
        if not self._all:
            return float("inf")
        began = time.monotonic()
        self._queues = [wire.Keys(name) for name in await Survey(self._link).queues()]
        return max(SURVEY_S, 10 * (time.monotonic() - began))

    async def keep_surveying(self, pause_s: float) -> None:
        while self._all:
            await asyncio.sleep(pause_s)
            with suppress(StoreUnavailableError):
                pause_s = await self.survey()


class Page(Protocol):
    def opened(self) -> AbstractContextManager[object]: ...

    def draw(self) -> None: ...


async def _watch(
    link: Link, watcher: Watcher, page: Page, interval_s: float, count: int | None
) -> None:
    await link.open()
    try:
        pause_s = await watcher.survey()
        with page.opened():
            async with asyncio.TaskGroup() as tasks:
                survey = tasks.create_task(watcher.keep_surveying(pause_s))
                await _tick(watcher, page, interval_s, count)
                survey.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # the others were cancelled by it
    finally:
        await link.close()


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
