"""The `chasqui` command. So far it starts a server; queues and workers are used from Python."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from chasquimq._version import __version__
from chasquimq.errors import ChasquiError
from chasquimq.server import Server

EXAMPLES = """\
examples:
  chasqui server                                a server on a free port, gone with Ctrl-C
  chasqui server --port 6379 --folder ./data    ... whose data stays
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 is success, 2 is a wrong command line or something that cannot be had."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return _serve(options)
    except ChasquiError as error:
        print(f"chasqui: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="chasqui",
        description="ChasquiMQ: background jobs on Redis Streams.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"chasqui {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands")
    server = commands.add_parser(
        "server",
        help="start a real server for development, print its URL, stop on Ctrl-C",
        description="Start redis-server or valkey-server: the one on PATH, one that was fetched "
        "by `make redis`, or the one in the `embedded` extra. It listens on this machine only.",
    )
    server.add_argument("--port", type=int, help="default: a free one")
    server.add_argument("--folder", help="keep the data here; default: it goes with the server")
    server.add_argument("--binary", help="the server program to run")
    return parser


def _serve(options: argparse.Namespace) -> int:
    # Before the server starts, so that no signal falls between its start and our waiting.
    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    kept = options.folder is not None
    with Server(
        options.binary, port=options.port, folder=options.folder, appendonly=kept
    ) as server:
        print(server.url, flush=True)
        print(f"{server.binary}; stop with Ctrl-C", file=sys.stderr, flush=True)
        signal.sigwait(stops)
    return 0
