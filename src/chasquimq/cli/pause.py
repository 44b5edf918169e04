"""`chasqui pause` and `chasqui resume`: workers start nothing new, and go on again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from chasquimq.cli import render_pause as render
from chasquimq.cli.ask import refuse
from chasquimq.cli.bar import Bar
from chasquimq.cli.clock import now_ms
from chasquimq.cli.exits import Exit
from chasquimq.cli.inspect import note_unknown
from chasquimq.cli.moment import read_duration
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, QueueName, RedisUrl, examples, run_in
from chasquimq.errors import ConfigError
from chasquimq.store import Store
from chasquimq.store.hold import Hold, Unfinished

LOOK_S = 0.2

PAUSE_EXAMPLES = examples(
    "chasqui pause mail                          start nothing new",
    "chasqui pause mail --reason 'new schema'    for those who find it paused",
    "chasqui pause mail --wait --timeout 5m      and wait until nothing runs",
)
RESUME_EXAMPLES = examples("chasqui resume mail    let the workers go on")


def pause(
    queue: QueueName,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why, for those who find it paused.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until nothing runs.")] = False,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long to wait: 30s, 5m, 1h. Then the command ends with 1; the queue stays "
            "paused. Default: as long as it takes.",
        ),
    ] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Let the workers of a queue start nothing new.

    Producers go on adding, delayed and repeatable jobs go on coming due; what runs runs to its
    end. It lasts until `chasqui resume`, also over restarts.
    """
    limit_s = None if timeout is None else read_duration(timeout, "--timeout").total_seconds()
    if limit_s is not None and not wait:
        raise ConfigError("--timeout says how long to --wait; give both")
    screen = Screen(as_json=as_json)
    note_unknown(queue, redis_url)  # it may be paused before anybody adds to it, but seldom is

    async def verb(store: Store) -> tuple[str | None, list[Unfinished]]:
        hold = store.hold
        before = None if await hold.put(now_ms(), reason) else await hold.note() or ""
        groups = await hold.unfinished()
        if not as_json:
            screen.say(render.paused(queue, before, groups))
        if wait and render.running(groups):
            groups = await _until_none_runs(queue, hold, groups, limit_s)
            if not as_json and not render.running(groups):
                screen.say(f"{queue}: nothing runs any more")
        return before, groups

    before, groups = run_in(queue, redis_url, verb)
    left = render.running(groups)
    if as_json:
        screen.json(_told(queue, before is None, left))
    if wait and left:
        if as_json:
            raise typer.Exit(Exit.FAILED)
        refuse(render.in_vain(queue, groups, limit_s or 0.0))


def resume(queue: QueueName, redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Let the workers of a paused queue go on."""

    async def verb(store: Store) -> str | None:
        note = await store.hold.note()
        return (note or "") if await store.hold.lift() else None

    note = run_in(queue, redis_url, verb)
    screen = Screen(as_json=as_json)
    if as_json:
        screen.json({"queue": queue, "paused": False, "changed": note is not None})
        return
    screen.say(render.resumed(queue, note))


async def _until_none_runs(
    queue: str, hold: Hold, groups: Sequence[Unfinished], limit_s: float | None
) -> list[Unfinished]:
    """Look until nothing runs or the time is over; answers what was found last."""
    deadline = None if limit_s is None else time.monotonic() + limit_s
    began_with = left = render.running(groups)
    with Bar(render.waiting(queue, left), began_with, "ended") as bar:
        while left and (deadline is None or time.monotonic() < deadline):
            await asyncio.sleep(LOOK_S)
            groups = await hold.unfinished()
            before, left = left, render.running(groups)
            bar.say(render.waiting(queue, left))
            bar.forward(max(before - left, 0))
    return list(groups)


def _told(queue: str, changed: bool, running: int) -> dict[str, Any]:
    return {"queue": queue, "paused": True, "changed": changed, "running": running}
