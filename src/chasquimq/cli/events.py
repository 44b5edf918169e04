"""`chasqui events`: what becomes of jobs while it happens, a line each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Annotated

import typer

from chasquimq import wire
from chasquimq.cli.aside import Aside, logged_to
from chasquimq.cli.clock import server_ms
from chasquimq.cli.inspect import note_unknown
from chasquimq.cli.moment import moment_ms, read_time
from chasquimq.cli.render_event import event_document, event_line
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import (
    AsJson,
    QueueName,
    RedisUrl,
    examples,
    run,
    the_address,
    the_url,
)
from chasquimq.config import nearest
from chasquimq.errors import ConfigError
from chasquimq.store import Dialer, Events, Link
from chasquimq.subscribe import KNOWN, QueueEvent, QueueEvents
from chasquimq.text import shown

EXAMPLES = examples(
    "chasqui events mail                              from now on, until Ctrl-C",
    "chasqui events mail --event failed --event dlq   only what went wrong",
    "chasqui events mail --from 10m --job welcome:42  what became of a job lately",
    "chasqui events mail --no-follow --json | jq -r .event | sort | uniq -c",
)

_ID = re.compile(r"\$|[0-9]+(-[0-9]+)?")
_LAST_SEQ = 2**64 - 1
_AGAIN_S = 0.05
_PAGE = 500


class _Follower(QueueEvents):
    """Also of queues whose names are refused by now: their events can still be looked at."""

    _check_name = staticmethod(wire.check_stored_queue_name)


def events(
    queue: QueueName,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Begin behind this event id; 0: with the oldest there is; $: with what is new; "
            "10m: with what is ten minutes old. Default: $, and 0 with --no-follow.",
            show_default=False,
        ),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(metavar="EVENT", help=f"Only these: {', '.join(KNOWN)}.", show_default=False),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only jobs of these names.", show_default=False),
    ] = None,
    job: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only these jobs.", show_default=False),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many.", show_default=False)
    ] = None,
    no_follow: Annotated[
        bool, typer.Option("--no-follow", help="Print what is there, and end.")
    ] = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Follow the events of a queue, a line each, until Ctrl-C.

    A line is: time, event id, event, id=, name=, and what else the event tells. The id of the last
    line you have dealt with is what --from takes to go on behind it. A server that goes away is
    waited for; nothing is missed by it. --event, --name and --job may be given several times.
    """
    for one in event or ():
        if one not in KNOWN:
            raise ConfigError(f"--event {shown(one)!r} is no event; {nearest(one, KNOWN)}")
    screen = Screen(as_json=as_json)
    place = from_ or ("0" if no_follow else "$")
    wire.check_stored_queue_name(queue)
    note_unknown(queue, redis_url)

    async def main() -> None:
        door = _Follower(
            queue,
            redis_url=the_url(redis_url),
            last_event_id=await _place(place, queue, redis_url),
            events=event or None,
            names=name or None,
            count=_PAGE,
        )
        until = await _tip(queue, redis_url) if no_follow else None
        async with door:
            await _print(_rows(door, until), screen, job or (), count)

    with logged_to(Aside()), screen.until_nobody_reads(), suppress(KeyboardInterrupt):
        run(main())


async def _print(
    rows: AsyncIterator[QueueEvent], screen: Screen, jobs: Sequence[str], count: int | None
) -> None:
    printed = 0
    async for row in rows:
        if jobs and row.job_id not in jobs:
            continue
        screen.line(event_document(row)) if screen.as_json else screen.words(event_line(row))
        printed += 1
        if printed == count:
            return


async def _rows(door: QueueEvents, until: str | None) -> AsyncIterator[QueueEvent]:
    """All events; `until`: those up to this one, which is there already."""
    if until is None:
        async for event in door:
            yield event
        return
    last = _order(until)
    # The last ones may be passed over by a filter: then the door waits for others, but its place
    # tells that it has seen them.
    while door.last_event_id != "$" and _order(door.last_event_id) < last:
        with suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN_S):
                event = await anext(door)
            if _order(event.id) > last:
                return
            yield event


async def _place(given: str, queue: str, url: str | None) -> str:
    """An id as it is; a time as the id that stands before all events since then."""
    if _ID.fullmatch(given):
        return given
    when = read_time(given, "--from")
    ms = moment_ms(-when if isinstance(when, timedelta) else when, await server_ms(url, queue))
    return f"{max(ms - 1, 0)}-{_LAST_SEQ}"


async def _tip(queue: str, url: str | None) -> str:
    keys = wire.Keys(queue)
    link = Link(Dialer(the_address(url)).of(keys.stream))
    await link.open()
    try:
        return await Events(keys, link).tip()
    finally:
        await link.close()


def _order(event_id: str) -> tuple[int, int]:
    ms, _, seq = event_id.partition("-")
    return int(ms), int(seq or 0)
