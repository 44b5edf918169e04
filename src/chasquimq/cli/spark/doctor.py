"""`chasqui spark doctor`: is everything there that Spark needs?"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from chasquimq import wire
from chasquimq.address import Address
from chasquimq.cli.check.finding import PROBLEM, Finding, Shell, worst
from chasquimq.cli.check.server import check_server, unreachable
from chasquimq.cli.doctor import EXITS, show
from chasquimq.cli.exits import Exit
from chasquimq.cli.moment import read_duration
from chasquimq.cli.nodes import Node, nodes_of
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, RedisUrl, examples, the_address, the_url
from chasquimq.config import ConnectOptions
from chasquimq.errors import ChasquiError, StoreError
from chasquimq.store.exam.server import ServerFacts
from chasquimq.wire.info import parse_info

HASTY = ConnectOptions(timeout_ms=5_000, reply_ms=5_000)
EXAMPLES = examples(
    "chasqui spark doctor            this side, the server, and our rights there",
    "chasqui spark doctor mail       ... also on the keys of this queue",
    "chasqui spark doctor --session  ... and start Spark, write and read a queue",
    "chasqui spark doctor --json | jq '.[] | select(.severity == \"problem\")'",
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
        wire.check_stored_queue_name(name)
    from chasquimq.cli.check.spark import check_spark
    from chasquimq.spark import exam

    screen = Screen(as_json=as_json)
    address = the_address(redis_url)
    found = check_spark(exam.look()) + _servers(address, queues or ())
    if session and worst(found) is not PROBLEM:
        found += _session(address, the_url(redis_url), limit_s)
    if as_json:
        screen.json(found)
    else:
        show(screen, found)
    raise typer.Exit(EXITS.get(worst(found), Exit.DONE))


def _servers(address: Address, queues: Sequence[str]) -> list[Finding]:
    """Of a cluster: each node, or those that have the queues."""
    try:
        nodes = nodes_of(address, queues)
    except StoreError as error:
        return unreachable(str(error.args[0]), Shell(address))
    found: list[Finding] = []
    for node in nodes:
        told = {} if node.name is None else {"node": node.name}
        some = _server(node, Shell(node.address, address))
        found += [msgspec.structs.replace(one, facts={**one.facts, **told}) for one in some]
    return found


def _server(node: Node, shell: Shell) -> list[Finding]:
    from chasquimq.cli.check.spark import OF_THE_SERVER, check_rights
    from chasquimq.spark import right
    from chasquimq.spark.client import Client

    facts = ServerFacts(hidden=[])
    found: list[Finding] = []
    try:
        with Client(node.address, options=HASTY, patience_s=0) as client:
            info, known = client.ask_each([("INFO",), ("COMMAND", "INFO", "xcfgset")])
            if isinstance(info, bytes):
                facts.info = parse_info(info)
            else:
                facts.hidden.append("what it is (INFO)")
            if isinstance(known, list):
                facts.knows_idmp = bool(known and known[0])
            found += [one for one in check_server(facts, shell) if one.code in OF_THE_SERVER]
            found += check_rights(right.look(client, node.nowhere, node.queues), shell)
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
    with Client(address.of(wire.Keys(queue).stream.decode()), options=HASTY) as client:
        left = trial.clear(client, queue)
    return check_session(ended, left, Shell(address))
