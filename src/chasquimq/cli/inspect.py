"""`chasqui inspect`: how much a queue holds, and where; or all queues at a glance."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from chasquimq import wire
from chasquimq.cli import render
from chasquimq.cli.ask import refuse
from chasquimq.cli.exits import Exit
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, Group, RedisUrl, examples, run_at, run_at_all
from chasquimq.errors import ConfigError, StoreError
from chasquimq.store import Link
from chasquimq.store.inspect import Overview, overviews
from chasquimq.store.survey import Survey
from chasquimq.text import shown

EXAMPLES = examples(
    "chasqui inspect                      every queue of the server, a row each",
    "chasqui inspect mail --consumers     one queue, and who works on it",
    "chasqui inspect --json | jq '.[] | select(.dlq_depth > 0)'",
)

_FEW = 10  # queues that a message names


def inspect(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Name of the queue; default: all.")
    ] = None,
    group: Group = "default",
    consumers: Annotated[bool, typer.Option("--consumers", help="List the workers, too.")] = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show how many jobs wait, run, are delayed and are dead, and for how long.

    Workers that have been silent for a minute do not count as workers. Exit code 1: there is no
    such queue, or one of its keys holds something else than it should.
    """
    screen = Screen(as_json=as_json)
    if queue is None:
        if consumers:
            raise ConfigError("--consumers is about one queue: name it")
        every = run_at_all(redis_url, lambda link: all_queues(link, group))
        screen.json(every) if as_json else screen.show(render.overviews(every))
        broken = any(one.problems for one in every)
    else:
        keys = wire.Keys(queue)
        one = run_at(redis_url, queue, lambda link: one_queue(link, keys, group))
        sheets = [render.overview(one), *([render.consumers(one)] if consumers else [])]
        screen.json(one) if as_json else screen.show(*sheets)
        broken = bool(one.problems)
    if broken:
        raise typer.Exit(Exit.FAILED)


async def all_queues(link: Link, group: str) -> list[Overview]:
    return await overviews(link, [wire.Keys(name) for name in await Survey(link).queues()], group)


async def one_queue(link: Link, keys: wire.Keys, group: str) -> Overview:
    """How it is; one that has no key at all is refused, with the name that may be meant."""
    [one] = await overviews(link, [keys], group)
    if (why := await unknown(link, one)) is not None:
        refuse(why)
    return one


async def unknown(link: Link, one: Overview) -> str | None:
    """What to say of a queue that is none; None: it is one."""
    if one.exists:
        return None
    names = await Survey(link).queues()
    if one.queue in names:  # results and markers may be all that is left of it
        return None
    return f"there is no queue {one.queue!r} here: {_rather(one.queue, names)}"


def note_unknown(queue: str, url: str | None) -> bool:
    """Say on stderr that there is no such queue, if so: where nothing is found, a slip of the
    keyboard is not to look like good news."""

    async def why(link: Link) -> str | None:
        [one] = await overviews(link, [wire.Keys(queue)], "default")
        return await unknown(link, one)

    with suppress(StoreError):  # whoever may not look further has had the answer
        if (words := run_at(url, queue, why)) is not None:
            print(f"chasqui: {shown(words)}", file=sys.stderr, flush=True)
            return True
    return False


def _rather(name: str, names: Sequence[str]) -> str:
    if not names:
        return "the server has no queues at all"
    folded = {one.casefold(): one for one in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    if len(names) <= _FEW:
        return f"known: {', '.join(names)}"
    return f"`chasqui inspect` lists all {len(names):,}"
