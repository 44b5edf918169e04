"""`chasqui dev`: a server and Workers with reload, in one command."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from chasquimq.cli.crew.message import Orders
from chasquimq.cli.shell import URL_VARIABLE, examples
from chasquimq.cli.worker import Level, LogLevel, Target
from chasquimq.server import Server

EXAMPLES = examples(
    "chasqui dev app.tasks:worker                    a server, and the worker on it",
    "chasqui dev app.tasks:worker --folder ./data    ... whose jobs stay",
)
USUAL_PORT = 6379
DRAIN_MS = 5_000  # whoever presses Ctrl-C waits


def dev(
    target: Target,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65_535, help="Of the server. Default: 6379 if that is free, else another."
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the data here; default: it goes with the server.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Handlers at a time. Default: the Worker's own.")
    ] = None,
    reload_dir: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Watch this folder, too; may be given several times.",
        ),
    ] = None,
    log_level: Level = LogLevel.info,
) -> None:
    """Start a server and run Workers on it, again whenever a Python file changes.

    For development, not for production. The server is a real one (see `chasqui server`) that this
    machine alone can reach. Workers that name no redis_url of their own use it. Every run of a job
    is a line here, and a run that fails shows its traceback. Ctrl-C ends both.
    """
    from chasquimq.cli.crew.run import Wish, check_current_folder, run_crew

    check_current_folder()
    where = port if port is not None else USUAL_PORT if _is_free(USUAL_PORT) else None
    data = None if folder is None else str(folder)
    with Server(port=where, folder=data, appendonly=folder is not None) as server:
        print(f"server     {server.url} ({server.binary})", file=sys.stderr)
        if server.port != USUAL_PORT:
            why = "" if port is not None else f"port {USUAL_PORT} is taken; "
            print(
                f"           {why}programs that add jobs need this URL as redis_url, and\n"
                f"           `chasqui` so: export {URL_VARIABLE}={server.url}",
                file=sys.stderr,
                flush=True,
            )
        orders = Orders(
            target=target,
            redis_url=server.url,
            concurrency=concurrency,
            drain_ms=DRAIN_MS,
            log_runs=True,
            log_level=log_level.value,
        )
        folders = [str(path.absolute()) for path in reload_dir or ()]
        code = run_crew(Wish(orders, folders))
    raise typer.Exit(code)


def _is_free(port: int) -> bool:
    with socket.socket() as trying:
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trying.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
