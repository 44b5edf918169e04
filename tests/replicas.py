"""A replica of a test's server: a second real process, behind a line that can be cut."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import redis

from chasquimq.server import Server
from tests.servers import DialectServer, disposable

PATIENCE_S = 30.0  # ends a test that would fail anyway
# A replica that first writes what it gets to its disk, as is usual, looks a second later whether it
# has all of it (Valkey). One that is empty may as well load it from the line.
AT_ONCE = {"repl-diskless-load": "on-empty-db"}


class Line:
    """Carries bytes between a replica and its master. Cut, it stays open and carries nothing:
    what was on it is gone for good, as when a network splits."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._cut = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._cut.set()

    def close(self) -> None:
        self.cut()
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._upstream))
                self._sockets += (near, far)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not self._cut.is_set():
                    target.sendall(data)
            if not self._cut.is_set():
                target.shutdown(socket.SHUT_WR)


class Replica:
    def __init__(self, server: Server, line: Line) -> None:
        self.server = server
        self.line = line
        self.redis = redis.Redis.from_url(server.url)

    def pause(self) -> None:
        """Stop the process: it acknowledges nothing any more."""
        self.server.pause()

    def resume(self) -> None:
        self.server.resume()

    def promote(self) -> None:
        self.redis.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def replica_of(master: DialectServer) -> Iterator[Replica]:
    """One that has caught up."""
    client, port = master.client(), master.server.port
    assert port is not None
    client.config_set("repl-diskless-sync-delay", 0)
    line = Line(port)
    source = {"replicaof": ("127.0.0.1", str(line.port)), **AT_ONCE}
    try:
        with disposable(Server(master.server.binary, config=source)) as server:
            replica = Replica(server, line)
            try:
                _wait_until_online(client, replica.redis)
                yield replica
            finally:
                with suppress(Exception):
                    server.resume()
                replica.redis.close()
    finally:
        line.close()


def _wait_until_online(client: redis.Redis, replica: redis.Redis) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        up = replica.info("replication")["master_link_status"] == "up"
        client.publish("caught up?", "")  # a wait looks at what its connection sent replicas last
        if up and client.execute_command("WAIT", 1, 10) == 1:
            return
        time.sleep(0.005)
    raise AssertionError("the replica never caught up")
