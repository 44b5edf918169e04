"""`chasqui spark`: is everything there that Spark needs, and what a run has left behind.

Spark, Java and Arrow are imported when a command runs: whoever has none of them loses nothing.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chasquimq import wire
from chasquimq.address import Address
from chasquimq.cli import render_spark as render
from chasquimq.cli.ask import confirm, refuse
from chasquimq.cli.bar import Bar
from chasquimq.cli.check.finding import PROBLEM, Finding, Shell, worst
from chasquimq.cli.check.server import check_server, unreachable
from chasquimq.cli.doctor import EXITS, show
from chasquimq.cli.exits import Exit
from chasquimq.cli.moment import duration_ms, read_duration
from chasquimq.cli.near import near
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import (
    AsJson,
    DryRun,
    QueueName,
    RedisUrl,
    Yes,
    examples,
    the_address,
    the_url,
)
from chasquimq.config import ConnectOptions
from chasquimq.errors import ChasquiError, ConfigError, StoreError
from chasquimq.store.exam.server import ServerFacts
from chasquimq.wire.info import parse_info

if TYPE_CHECKING:
    from chasquimq.spark.client import Client
    from chasquimq.spark.write.recover import Unfinished, Verb

PATIENCE_S = 2.0  # with a server that is away
HASTY = ConnectOptions(timeout_ms=5_000, reply_ms=5_000)

spark = typer.Typer(
    name="spark",
    help="Queues as DataFrames: what Spark needs here, and what its runs have left behind.",
    epilog=examples(
        "chasqui spark doctor              Java, Python, Spark, and what the server allows",
        "chasqui spark recover mail        what a driver that died has left behind",
    ),
)


@spark.callback()
def _group() -> None:
    """A group stays a group, however few commands it has."""


@spark.command(
    epilog=examples(
        "chasqui spark doctor            this side, the server, and our rights there",
        "chasqui spark doctor mail       ... also on the keys of this queue",
        "chasqui spark doctor --session  ... and start Spark, write and read a queue",
        "chasqui spark doctor --json | jq '.[] | select(.severity == \"problem\")'",
    )
)
def doctor(
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUEUE",
            help="Queues whose keys we must be allowed to use.",
            show_default=False,
        ),
    ] = None,
    session: Annotated[
        bool,
        typer.Option(
            "--session", help="Start Spark here, write a queue made for it, read and remove it."
        ),
    ] = False,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="How long --session may take.")
    ] = "3m",
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Look whether Spark can read and write queues from here, and say what is missing.

    Exit code 0: all is well (there may be notes); 4: there are warnings; 5: there are problems.
    Nothing is changed; --session uses a queue with a name of its own.
    """
    limit_s = read_duration(timeout, "--timeout").total_seconds()
    for name in queues or ():
        wire.check_queue_name(name)
    from chasquimq.cli.check.spark import check_spark
    from chasquimq.spark import exam

    screen = Screen(as_json=as_json)
    address = the_address(redis_url)
    found = check_spark(exam.look()) + _server(address, queues or ())
    if session and worst(found) is not PROBLEM:
        found += _session(address, the_url(redis_url), limit_s)
    if as_json:
        screen.json(found)
    else:
        show(screen, found)
    raise typer.Exit(EXITS.get(worst(found), Exit.DONE))


def _server(address: Address, queues: Sequence[str]) -> list[Finding]:
    from chasquimq.cli.check.spark import OF_THE_SERVER, check_rights
    from chasquimq.spark import right
    from chasquimq.spark.client import Client

    shell, facts = Shell(address), ServerFacts(hidden=[])
    found: list[Finding] = []
    try:
        with Client(address, options=HASTY, patience_s=0) as client:
            info, known = client.ask_each([("INFO",), ("COMMAND", "INFO", "xcfgset")])
            if isinstance(info, bytes):
                facts.info = parse_info(info)
            else:
                facts.hidden.append("what it is (INFO)")
            if isinstance(known, list):
                facts.knows_idmp = bool(known and known[0])
            found += [one for one in check_server(facts, shell) if one.code in OF_THE_SERVER]
            found += check_rights(right.look(client, queues), shell)
    except ChasquiError as error:
        if worst(found) is not PROBLEM:  # else it has been said why: a replica takes no writes
            found += unreachable(str(error.args[0]), shell)
    return found


def _session(address: Address, url: str, limit_s: float) -> list[Finding]:
    """In a process of its own: what Spark prints would stand between our words."""
    from chasquimq.cli.check.spark import check_session
    from chasquimq.spark import trial
    from chasquimq.spark.client import Client

    if sys.stderr.isatty():
        print("starting Spark, which takes a while ...", file=sys.stderr)
    queue = f"chasqui-doctor-{uuid.uuid4().hex[:12]}"
    ended = trial.run(queue, url, limit_s)
    with Client(address, options=HASTY) as client:
        left = trial.clear(client, queue)
    return check_session(ended, left, Shell(address))


@spark.command(
    epilog=examples(
        "chasqui spark recover mail                      what is not finished",
        "chasqui spark recover mail --complete           bring in what is promised",
        "chasqui spark recover mail nightly-412 --yes    the same for one run",
        "chasqui spark recover mail --abort --idle 1d    clear away what was left lying",
        "chasqui spark recover mail --json | jq '.runs[].remedy'",
    )
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
    with Client(the_address(redis_url), runs.SCRIPTS, patience_s=PATIENCE_S) as client:
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
        width = screen.console.width if screen.is_terminal else None
        screen.show(render.unfinished(queue, told, width))


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
