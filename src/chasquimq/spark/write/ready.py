"""Before the first row: may a queue live on this server, may we write to it, is its stream there?

What is found out here is not found out half-way through a chunk.
"""

from __future__ import annotations

from chasquimq.config import StreamOptions
from chasquimq.spark.client import Client
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write.check import Layout
from chasquimq.wire import Keys
from chasquimq.wire.fault import as_error
from chasquimq.wire.info import parse_info, refuse_dangerous
from chasquimq.wire.right import Calls, asked, refuse_without

SCRIPTS = ("open_stream", "may")

# What scripts run after their first write, and how many arguments follow the key: an ACL that
# refuses one of these must not do so in the middle.
WRITES = {"XADD": 3, "APPEND": 1, "HINCRBY": 2, "PEXPIRE": 1}
LATER = {"EXISTS": 0, "ZADD": 2, "ZRANGE": 2, "SET": 1}  # ... for rows that are to run later
ENDING = {"HSET": 2, "DEL": 0, "HDEL": 1}  # ... when all rows are in: a write must not fail then
DIRECT = {"UNLINK": 0, **ENDING}
BY_ID = {"SET": 1, **ENDING}  # ... for rows that are known by their ids
IN_TIME = {"HSET": 2}  # ... for rowsPerSecond


def needed(layout: Layout, options: SinkOptions) -> dict[str, int]:
    later = LATER if {"delay_ms", "run_at"} & set(layout.places) else {}
    return WRITES | later | (IN_TIME if options.rows_per_second is not None else {})


def make_ready(client: Client, queue: str, commands: dict[str, int]) -> None:
    """StoreError, or one of its kind, where a write could not go well."""
    keys = Keys(queue)
    known, facts = client.ask_each([("COMMAND", "INFO", "xcfgset"), ("INFO", "server", "memory")])
    if isinstance(facts, bytes):  # else an ACL keeps it from us
        refuse_dangerous(parse_info(facts))
    if isinstance(known, Exception):
        raise as_error(known, "asking the server for its commands")
    check_rights(client, keys, commands)
    # As a Queue would set it up; who has no IDMP has no settings for it.
    options = StreamOptions()
    max_size = options.idmp_max_size if known and known[0] else 0
    client.run("open_stream", [keys.stream], ["", max_size, options.idmp_duration_s, ""])


def check_rights(client: Client, keys: Keys, commands: Calls, who: str = "") -> None:
    """AccessError that names what is missing."""
    refused = client.run("may", [keys.stream], asked(commands))
    refuse_without(
        refused, keys, who or f"a write to queue {keys.queue!r} needs; nothing was written"
    )
