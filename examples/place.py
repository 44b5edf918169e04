"""Where the examples find a server: CHASQUI_REDIS_URL, or one that is started for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from chasquimq.server import Server, find_server


@contextmanager
def redis_url() -> Iterator[str]:
    """The URL of a server. One that was started here ends with the block."""
    given = os.environ.get("CHASQUI_REDIS_URL")
    if given:
        print("server: the one that CHASQUI_REDIS_URL names")
        yield given
        return
    binary = find_server()
    with Server(binary) as server:
        print(f"server: {binary}, started for this example")
        yield server.url
