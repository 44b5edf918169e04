"""What the nodes of a cluster say to each other, through lines of ours: a node can be cut off from
its peers and still be reached by everybody else."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from chasquimq.server.run import Setting

FIRST = 11  # of the addresses that nodes call from


class Bus:
    """Nodes are numbered in the order in which they are plugged in."""

    def __init__(self) -> None:
        self._ports: list[int] = []
        self._apart: set[int] = set()
        self._sockets: list[socket.socket] = []

    def plug_in(self, port: int) -> dict[str, Setting]:
        """The settings of a node whose own bus is at this port."""
        number = len(self._ports)
        listener = socket.create_server(("127.0.0.1", 0))
        self._sockets.append(listener)
        self._ports.append(listener.getsockname()[1])
        threading.Thread(target=self._accept, args=(listener, number, port), daemon=True).start()
        # Who calls is known by where it calls from.
        return {"bind-source-addr": _name(number), "cluster-announce-bus-port": self._ports[number]}

    def port(self, number: int) -> int:
        return self._ports[number]

    def cut_off(self, number: int) -> None:
        """Its lines stay open and carry nothing: what is said on them is gone for good."""
        self._apart.add(number)

    def close(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listener: socket.socket, callee: int, port: int) -> None:
        with suppress(OSError):
            while True:
                near, (address, _) = listener.accept()
                caller = int(address.rpartition(".")[2]) - FIRST
                far = socket.create_connection(("127.0.0.1", port))
                self._sockets += (near, far)
                for pair in ((near, far), (far, near)):
                    threading.Thread(
                        target=self._carry, args=(*pair, {caller, callee}), daemon=True
                    ).start()

    def _carry(self, source: socket.socket, target: socket.socket, ends: set[int]) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not self._apart & ends:
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def _name(number: int) -> str:
    return f"127.0.0.{FIRST + number}"
