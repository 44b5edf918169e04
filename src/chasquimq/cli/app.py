"""The commands of `chasqui`, in the order of its help."""

from __future__ import annotations

from typing import Annotated

import typer

from chasquimq._version import __version__
from chasquimq.cli import inspect, server
from chasquimq.cli.exits import Exit
from chasquimq.cli.shell import RedisUrl, examples, remember_url

LOOK, RUN = "Look", "Run"

app = typer.Typer(
    name="chasqui",
    help="ChasquiMQ: background jobs on Redis Streams.",
    epilog=examples(
        "chasqui server --port 6379    a server to try things on",
        "chasqui inspect               all queues of the server at $CHASQUI_REDIS_URL",
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
app.command(rich_help_panel=RUN, epilog=server.EXAMPLES)(server.server)
