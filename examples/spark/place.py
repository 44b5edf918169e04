"""Where these notebooks find a server: CHASQUI_REDIS_URL, or one that is started for them."""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack

from chasquimq.server import Server, find_server

_started = ExitStack()
atexit.register(_started.close)


def redis_url() -> str:
    """The URL of a server. One that was started here ends with the program."""
    given = os.environ.get("CHASQUI_REDIS_URL")
    if given:
        print("server: the one that CHASQUI_REDIS_URL names")
        return given
    binary = find_server()
    server = _started.enter_context(Server(binary))
    print(f"server: {binary}, started for this example")
    return server.url
