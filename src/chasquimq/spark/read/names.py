"""The keys of a queue whose names begin alike, found by a walk over all keys of its server.

A cursor means something to the server that gave it and to no other, and a node of a cluster answers
a walk as readily when the queue has left it. So the walk begins anew where the connection was made
anew meanwhile, and ends with a question that only the node which has the whole queue answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from chasquimq.spark.client import Arg, Client
from chasquimq.wire import Keys

STEP = 1_000  # keys that a SCAN looks at
_GLOB = re.compile(rb"([*?\[\]\\^-])")  # names of queues may hold what is a pattern's


def names(client: Client, keys: Keys, prefix: bytes, *kind: Arg) -> Iterator[list[bytes]]:
    """Each once, some at a time. `kind`: more words for SCAN, as TYPE and what type."""
    words = ("MATCH", _GLOB.sub(rb"\\\1", prefix) + b"*", "COUNT", STEP, *kind)
    known: set[bytes] = set()  # a SCAN may tell a key twice
    held: list[bytes] = []
    began, walked = 0, -1
    while began != walked:
        began, cursor = _connection(client, keys), b""
        while cursor != b"0" and client.opened == began:
            cursor, found = client.ask("SCAN", cursor or b"0", *words)
            fresh = set(found) - known
            known |= fresh
            held += fresh
            if len(held) >= STEP:
                yield held
                held = []
        walked = _connection(client, keys)
    if held:
        yield held


def _connection(client: Client, keys: Keys) -> int:
    """Which one it is by now, and that it leads to where the queue is: a key that nobody has is
    refused (ASK, MOVED) by a node whose slot is on its way or gone, and the client goes there."""
    client.ask("EXISTS", keys.tag + b"spark:nowhere")
    return client.opened
