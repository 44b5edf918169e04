"""Find and run a real server, for development and for tests. Never a mock.

with Server() as server:
    queue = Queue("mail", redis_url=server.url)
"""

from __future__ import annotations

from chasquimq.server.find import Binary, Kind, find_server, find_servers
from chasquimq.server.run import Server

__all__ = ["Binary", "Kind", "Server", "find_server", "find_servers"]
