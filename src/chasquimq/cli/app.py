"""The commands of `chasqui`, in the order of its help."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.main import get_command

from chasquimq._version import __version__
from chasquimq.cli.exits import Exit
from chasquimq.cli.later import Later, add_later, flowing, load_all
from chasquimq.cli.shell import RedisUrl, examples, remember_url

LOOK, OPERATE, RUN = "Look", "Operate", "Run"

app = typer.Typer(
    name="chasqui",
    help="ChasquiMQ: background jobs on Redis Streams.",
    epilog=examples(
        "chasqui dev app:worker                     a server, your workers, and reload",
        "chasqui add mail welcome '{\"user\": 42}'    add a job",
        "chasqui inspect                            all queues at a glance",
        "chasqui doctor                             what is wrong, and what mends it",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
    invoke_without_command=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@app.callback()
def chasqui(
    context: typer.Context,
    redis_url: RedisUrl = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    remember_url(redis_url)
    if version:
        typer.echo(f"chasqui {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(Exit.USAGE)


COMMANDS = (
    Later(
        "inspect",
        LOOK,
        "chasquimq.cli.inspect",
        "Show how many jobs wait, run, are delayed and are dead, and for how long.",
    ),
    Later(
        "watch",
        LOOK,
        "chasquimq.cli.watch",
        "Follow how many jobs wait, come and go, until Ctrl-C.",
    ),
    Later(
        "events",
        LOOK,
        "chasquimq.cli.events",
        "Follow the events of a queue, a line each, until Ctrl-C.",
    ),
    Later(
        "doctor",
        LOOK,
        "chasquimq.cli.doctor",
        "Look for trouble, and name the command that mends it.",
    ),
    Later(
        "add",
        OPERATE,
        "chasquimq.cli.add",
        "Add a job, or one for each record of a file or a pipe.",
    ),
    Later(
        "pause",
        OPERATE,
        "chasquimq.cli.pause",
        "Let the workers of a queue start nothing new.",
        "PAUSE_EXAMPLES",
    ),
    Later(
        "resume",
        OPERATE,
        "chasquimq.cli.pause",
        "Let the workers of a paused queue go on.",
        "RESUME_EXAMPLES",
    ),
    Later("worker", RUN, "chasquimq.cli.worker", "Run Workers, in processes that are kept alive."),
    Later(
        "dev",
        RUN,
        "chasquimq.cli.dev",
        "Start a server and run Workers on it, again whenever a Python file changes.",
    ),
    Later(
        "server",
        RUN,
        "chasquimq.cli.server",
        "Start a real server for development, print its URL, stop on Ctrl-C.",
    ),
    Later(
        "jobs",
        OPERATE,
        "chasquimq.cli.jobs",
        "Find a job, list jobs, cancel or reschedule delayed ones.",
    ),
    Later(
        "dlq",
        OPERATE,
        "chasquimq.cli.dlq",
        "Look at dead jobs, bring them back, throw them away, carry them elsewhere.",
    ),
    Later(
        "repeatable",
        OPERATE,
        "chasquimq.cli.repeatable",
        "Jobs that are made again and again: list, add, pause and remove their specs.",
    ),
    Later(
        "spark",
        RUN,
        "chasquimq.cli.spark",
        "Bulk and analytical work on Spark: what happened to jobs, dead ones, and large writes.",
    ),
)


def build() -> Any:
    """The command, with nothing loaded but what the help of `chasqui` shows."""
    return flowing(add_later(get_command(app), COMMANDS))


def build_whole() -> Any:
    """All of it. Takes longer than most commands run."""
    return load_all(build())
