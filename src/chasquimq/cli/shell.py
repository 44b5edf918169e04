"""What all commands share: their options, and how a verb is run on a queue.

The doors are opened by those who go through: commands without a queue do not wait for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer
from rich.markup import escape

from chasquimq.address import DEFAULT_URL, Address, read_url
from chasquimq.config import DialectName, one_of

if TYPE_CHECKING:
    from chasquimq.queue import Queue
    from chasquimq.store import Dialer, Link, Store

T = TypeVar("T")

URL_VARIABLE = "CHASQUI_REDIS_URL"
DIALECT_VARIABLE = "CHASQUI_DIALECT"

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=f"The server; else ${URL_VARIABLE}, which shows a password to nobody, "
        f"else {DEFAULT_URL}.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Group = Annotated[str, typer.Option(help="The workers' consumer group.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]

_given: list[str] = []  # by `chasqui --redis-url ... command`, where a command has none of its own


def remember_url(url: str | None) -> None:
    _given[:] = [url] if url else []


def the_url(own: str | None) -> str:
    """The command's own option, that of `chasqui`, the environment's, the usual place."""
    return own or next(iter(_given), None) or os.environ.get(URL_VARIABLE) or DEFAULT_URL


def was_given(own: str | None) -> bool:
    """On the command line, by the command's own option or that of `chasqui`."""
    return bool(own or _given)


def the_address(own: str | None) -> Address:
    return read_url(the_url(own))


def the_dialect() -> DialectName | None:
    """Forced by the environment; else the server is asked, which is right for everybody."""
    forced = os.environ.get(DIALECT_VARIABLE)
    if not forced:
        return None
    one_of(DIALECT_VARIABLE, forced, ("native", "portable"))
    return cast(DialectName, forced)


def run(main: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(main)


def run_on(queue: str, url: str | None, verb: Callable[[Queue], Awaitable[T]], **options: Any) -> T:
    """Run a verb on a Queue that is closed afterwards."""
    from chasquimq.queue import Queue

    async def main() -> T:
        place, dialect = the_url(url), the_dialect()
        async with Queue(queue, redis_url=place, dialect=dialect, **options) as door:
            return await verb(door)

    return run(main())


def run_in(queue: str, url: str | None, verb: Callable[[Store], Awaitable[T]]) -> T:
    """The same on the queue's drawers, for what only looks."""
    from chasquimq import wire
    from chasquimq.store import Dialer, Store

    async def main() -> T:
        store = Store(wire.Keys(queue), Dialer(the_address(url)), the_dialect())
        await store.open()
        try:
            return await verb(store)
        finally:
            await store.close()

    return run(main())


def run_at(url: str | None, queue: str, verb: Callable[[Link], Awaitable[T]]) -> T:
    """The same on the server that holds the queue, whether there is such a queue or not."""
    from chasquimq import wire
    from chasquimq.store import Dialer

    return run(_linked(Dialer(the_address(url)).of(wire.Keys(queue).stream), verb))


def run_at_all(url: str | None, verb: Callable[[Link], Awaitable[list[T]]]) -> list[T]:
    """The same on each server that holds queues, one after another: a cluster has several."""
    from chasquimq.store import Dialer

    async def main() -> list[T]:
        nodes = await asyncio.to_thread(the_address(url).nodes)
        return [one for node in nodes for one in await _linked(Dialer(node), verb)]

    return run(main())


async def _linked(dialer: Dialer, verb: Callable[[Link], Awaitable[T]]) -> T:
    from chasquimq.store import Link

    link = Link(dialer)
    await link.open()
    try:
        return await verb(link)
    finally:
        await link.close()


def examples(*lines: str) -> str:
    """The end of a `--help`: one example per line."""
    return "[bold]Examples[/bold]\n\n" + "\n".join(map(escape, lines))
