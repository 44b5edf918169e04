"""The commands of `chasqui`, in the order of its help."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from typer.main import get_command

from chasquimq._version import __version__
from chasquimq.cli import (
    add,
    dev,
    dlq,
    doctor,
    events,
    inspect,
    jobs,
    pause,
    repeatable,
    server,
    spark,
    watch,
    worker,
)
from chasquimq.cli.exits import Exit
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


app.command(rich_help_panel=LOOK, epilog=inspect.EXAMPLES)(inspect.inspect)
app.command(rich_help_panel=LOOK, epilog=watch.EXAMPLES)(watch.watch)
app.command(rich_help_panel=LOOK, epilog=events.EXAMPLES)(events.events)
app.command(rich_help_panel=LOOK, epilog=doctor.EXAMPLES)(doctor.doctor)
app.command(rich_help_panel=OPERATE, epilog=add.EXAMPLES)(add.add)
app.add_typer(jobs.jobs, rich_help_panel=OPERATE)
app.add_typer(dlq.dlq, rich_help_panel=OPERATE)
app.add_typer(repeatable.repeatable, rich_help_panel=OPERATE)
app.command(rich_help_panel=OPERATE, epilog=pause.PAUSE_EXAMPLES)(pause.pause)
app.command(rich_help_panel=OPERATE, epilog=pause.RESUME_EXAMPLES)(pause.resume)
app.command(rich_help_panel=RUN, epilog=worker.EXAMPLES)(worker.worker)
app.command(rich_help_panel=RUN, epilog=dev.EXAMPLES)(dev.dev)
app.command(rich_help_panel=RUN, epilog=server.EXAMPLES)(server.server)
app.add_typer(spark.spark, rich_help_panel=RUN)


def build() -> Any:
    """All of it as one command. Takes longer than most commands run: to be done once."""
    return _flowing(get_command(app))


def _flowing(command: Any) -> Any:
    """Help texts are written in lines of our width, and read in lines of the terminal's."""
    if command.help:
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help)
    for one in getattr(command, "commands", {}).values():
        _flowing(one)
    return command
