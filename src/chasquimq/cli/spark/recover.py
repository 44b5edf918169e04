"""`chasqui spark recover`: what a run has left behind."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chasquimq.cli import render_spark as render
from chasquimq.cli.ask import confirm, refuse
from chasquimq.cli.bar import Bar
from chasquimq.cli.exits import Exit
from chasquimq.cli.moment import duration_ms, read_duration
from chasquimq.cli.near import near
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, DryRun, QueueName, RedisUrl, Yes, examples, the_address
from chasquimq.errors import ConfigError, StoreError
from chasquimq.wire import Keys

if TYPE_CHECKING:
    from chasquimq.spark.client import Client
    from chasquimq.spark.write.recover import Unfinished, Verb

PATIENCE_S = 2.0  # with a server that is away
EXAMPLES = examples(
    "chasqui spark recover mail                      what is not finished",
    "chasqui spark recover mail --complete           bring in what is promised",
    "chasqui spark recover mail nightly-412 --yes    the same for one run",
    "chasqui spark recover mail --abort --idle 1d    clear away what was left lying",
    "chasqui spark recover mail --json | jq '.runs[].remedy'",
)


def recover(
    queue: QueueName,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Only these; without --abort or --give-up they are completed.",
            show_default=False,
        ),
    ] = None,
    complete: Annotated[
        bool,
        typer.Option("--complete", help="Move what manifests promise into the queue."),
    ] = False,
    abort: Annotated[
        bool,
        typer.Option(
            "--abort", help="Delete what runs without a manifest have staged; nobody ever saw it."
        ),
    ] = False,
    give_up: Annotated[
        bool,
        typer.Option(
            "--give-up",
            help="Of the named runs, delete what is promised and not in; they count as done.",
        ),
    ] = False,
    idle: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="--abort without names is for runs that have staged nothing for so long.",
        ),
    ] = "1h",
    timeout: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How long to wait for room in a full queue."),
    ] = "10m",
    max_stream_len: Annotated[
        int | None,
        typer.Option(min=1, help="How full it may get; else as the run's writer said."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Finish what a Spark driver that died has left behind, or clear it away.

    A staged write is promised once its manifest is written: from then on it can be completed by
    anybody, at any time, and each row comes in once. Completing a run whose driver still works
    is safe, too. Without options, what is not finished is listed.
    """
    idle_ms = duration_ms(read_duration(idle, "--idle"))
    wait_ms = duration_ms(read_duration(timeout, "--timeout"))
    if give_up and (complete or abort or not names):
        raise ConfigError("--give-up deletes what was promised: name the runs, and give it alone")
    from chasquimq.spark.client import Client
    from chasquimq.spark.write import recover as runs

    screen = Screen(as_json=as_json)
    address = the_address(redis_url).of(Keys(queue).stream.decode())
    with Client(address, runs.SCRIPTS, patience_s=PATIENCE_S) as client:
        found = runs.unfinished(client, queue)
        if not (names or complete or abort):
            _list_runs(screen, queue, found)
            return
        verbs = {"give up"} if give_up else set()
        verbs |= {"complete"} if complete or not (abort or give_up) else set()
        verbs |= {"abort"} if abort else set()
        plan = _plan(queue, found, names or [], verbs, idle_ms)
        if plan and not dry_run:
            confirm(f"{render.plan(plan)} of queue '{queue}'", yes)
        done = [
            _carry_out(screen, client, verb, one, wait_ms, max_stream_len, dry_run)
            for verb, one in plan
        ]
    if as_json:
        screen.json({"queue": queue, "runs": done, "dry_run": dry_run})
    elif not plan:
        screen.say(render.nothing(queue, verbs))
    if any("error" in one for one in done):
        raise typer.Exit(Exit.FAILED)


def _carry_out(
    screen: Screen,
    client: Client,
    verb: Verb,
    one: Unfinished,
    wait_ms: int,
    max_stream_len: int | None,
    dry_run: bool,
) -> dict[str, Any]:
    from chasquimq.spark.write.recover import carry_out

    told: dict[str, Any] = {"run": one.run.run_id, "verb": verb, "rows": one.staged}
    title = f"{verb} run {one.run.run_id}"
    try:
        with Bar(title, one.staged, "rows") as bar:
            tell = partial(_tell, bar, title)
            if not dry_run:
                told["rows"] = carry_out(client, one, verb, wait_ms, max_stream_len, tell)
    except StoreError as error:
        if type(error) is not StoreError:  # the queue is full, the server is away: that ends it
            raise
        print(f"chasqui: {error}", file=sys.stderr)
        return {**told, "rows": 0, "error": str(error)}
    if not screen.as_json:
        screen.say(render.ended(told, dry_run))
    return told


def _list_runs(screen: Screen, queue: str, found: list[Unfinished]) -> None:
    told = [one.told() for one in found]
    if screen.as_json:
        screen.json({"queue": queue, "runs": told})
    else:
        screen.show(render.unfinished(queue, told, screen.width))


def _plan(
    queue: str, found: list[Unfinished], names: list[str], verbs: set[str], idle_ms: int
) -> list[tuple[Verb, Unfinished]]:
    """What to do with which runs. One that was named and cannot be helped ends the command."""
    known = {one.run.run_id: one for one in found}
    for name in names:
        if name not in known:
            refuse(f"queue {queue} has no unfinished run '{name}'; {near(name, list(known))}")
    plan: list[tuple[Verb, Unfinished]] = []
    left = 0
    for one in [known[name] for name in dict.fromkeys(names)] or found:
        verb = one.verb(verbs)
        if verb is None and names:
            refuse(render.cannot(one.told(), verbs))
        if verb == "abort" and not names and one.idle_ms < idle_ms:
            left += 1
        elif verb is not None:
            plan.append((verb, one))
    if left:
        print(render.left_alone(left, idle_ms), file=sys.stderr)
    return plan


def _tell(bar: Bar, title: str, rows: int, full: bool) -> None:
    bar.say(f"{title}: the queue is full" if full else title)
    bar.forward(rows)
