"""`chasqui server`: a real server for development."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, examples
from chasquimq.server import Server

EXAMPLES = examples(
    "chasqui server                                gone with Ctrl-C",
    "chasqui server --port 6379 --folder ./data    ... whose data stays",
    "chasqui server --json                         url, port and pid, for programs",
)


def server(
    port: Annotated[int | None, typer.Option(help="Default: a free one.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the data here; default: it goes with the server.")
    ] = None,
    binary: Annotated[Path | None, typer.Option(help="The server program to run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start a real server for development, print its URL, stop on Ctrl-C.

    It is redis-server or valkey-server: the one on PATH, one that was fetched by `make redis`,
    or the one in the `embedded` extra. It listens on this machine only.
    """
    # Before the server starts, so that no signal falls between its start and our waiting.
    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    where = None if folder is None else str(folder)
    program = None if binary is None else str(binary)
    with Server(program, port=port, folder=where, appendonly=folder is not None) as started:
        if as_json:
            facts = {"url": started.url, "port": started.port, "pid": started.pid}
            Screen(as_json=True).line({**facts, "server": str(started.binary)})
        else:
            print(started.url, flush=True)
        print(f"{started.binary}; stop with Ctrl-C", file=sys.stderr, flush=True)
        signal.sigwait(stops)
