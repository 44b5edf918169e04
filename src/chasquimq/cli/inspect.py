"""`chasqui inspect`: how much a queue holds, and where; or all queues at a glance."""

from __future__ import annotations

from typing import Annotated

import typer

from chasquimq import wire
from chasquimq.cli import render
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, Group, RedisUrl, examples, run_at
from chasquimq.store import Link
from chasquimq.store.inspect import Inspect, Overview, Survey

EXAMPLES = examples(
    "chasqui inspect                      every queue of the server, a row each",
    "chasqui inspect mail --consumers     one queue, and who works on it",
    "chasqui inspect --json | jq '.[] | select(.dlq_depth > 0)'",
)


def inspect(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Name of the queue; default: all.")
    ] = None,
    group: Group = "default",
    consumers: Annotated[bool, typer.Option("--consumers", help="List the workers, too.")] = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show how many jobs wait, run, are delayed and are dead, and for how long."""
    screen = Screen(as_json=as_json)
    if queue is None:
        every = run_at(redis_url, lambda link: _all(link, group))
        screen.json(every) if as_json else screen.show(render.overviews(every))
        return
    keys = wire.Keys(queue)
    one = run_at(redis_url, lambda link: Inspect(keys, link).overview(group))
    if as_json:
        screen.json(one)
        return
    screen.show(render.overview(one), *([render.consumers(one)] if consumers else []))


async def _all(link: Link, group: str) -> list[Overview]:
    names = await Survey(link).queues()
    return [await Inspect(wire.Keys(name), link).overview(group) for name in names]
