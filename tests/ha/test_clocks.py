"""`chasqui doctor` compares the clocks of servers that take over from each other. One of them is
asked through a relay, which shifts what it says of the time."""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import suppress
from typing import Any, Self

import pytest

from chasquimq.cli.check.clock import check_clocks
from tests.cli.kit import Chasqui
from tests.ha.kit import Cluster, Home, Watched, client, until

TIME = re.compile(rb"(?<=\*2\r\n\$10\r\n)(\d{10})(?=\r\n\$\d\r\n\d{1,6}\r\n)")


class Relay:
    """To a real server, whose answers to TIME are so many seconds ahead."""

    def __init__(self, port: int, ahead_s: int) -> None:
        self._port, self._ahead_s = port, ahead_s
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._door.accept()
                there = socket.create_connection(("127.0.0.1", self._port))
                self._open += [here, there]
                for source, target, shift in ((here, there, False), (there, here, True)):
                    threading.Thread(
                        target=self._pump, args=(source, target, shift), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, target: socket.socket, shift: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(TIME.sub(self._shifted, data) if shift else data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _shifted(self, told: re.Match[bytes]) -> bytes:
        return b"%d" % (int(told[1]) + self._ahead_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._door, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def doctor(url: str, servers: Any, *words: str) -> list[dict[str, Any]]:
    ended = Chasqui(servers).call("doctor", "--quick", "--json", "--redis-url", url, *words)
    found: list[dict[str, Any]] = json.loads(ended.out)
    return [one for one in found if one["code"].startswith("server.clock")]


@pytest.mark.parametrize(("ahead_s", "side"), [(7, "ahead of"), (-3600, "behind")])
def test_nodes_of_a_cluster_are_compared(
    nodes: Cluster, queue_name: str, ahead_s: int, side: str
) -> None:
    home = Home(nodes, queue_name)
    assert doctor(nodes.url, home) == []
    odd = nodes.masters()[2]
    assert odd.port is not None
    with Relay(odd.port, ahead_s) as relay:
        client(odd.port).config_set("cluster-announce-port", relay.port)
        until(lambda: all(_names(node.port, relay.port) for node in nodes.nodes))
        found = {one["code"]: one for one in doctor(nodes.url, home)}
    assert set(found) == {"server.clocks-apart", "server.clock-skew"}
    apart, node = found["server.clocks-apart"], f"127.0.0.1:{relay.port}"
    assert (apart["severity"], apart["fix"]) == ("warning", "timedatectl set-ntp true")
    assert f"the clock of {node} is {abs(ahead_s):.1f} s {side} that of " in apart["text"]
    assert apart["facts"]["node"] == node
    assert abs(apart["facts"]["apart_ms"] - abs(ahead_s) * 1000) < 500
    assert len(apart["facts"]["clocks_ms"]) == 6, "three masters, and a replica of each"
    assert found["server.clock-skew"]["facts"]["node"] == node


def _names(port: int | None, relay: int) -> bool:
    """Whether this node tells others of the relay."""
    return f":{relay}@" in str(client(port).execute_command("CLUSTER", "NODES"))


def test_a_replica_that_sentinels_may_promote_is_compared(
    sentinels: Watched, queue_name: str
) -> None:
    master, replica = sentinels.master, sentinels.replica
    sentinels.forced_dialect = None  # type: ignore[attr-defined]
    assert doctor(sentinels.url, sentinels) == []
    assert replica.port is not None
    with Relay(replica.port, 90) as relay:
        client(replica.port).config_set("replica-announce-port", relay.port)
        client(master.port).execute_command("CLIENT", "KILL", "TYPE", "replica")
        until(lambda: client(master.port).info("replication")["slave0"]["port"] == relay.port)
        [apart] = doctor(sentinels.url, sentinels)
    assert apart["code"] == "server.clocks-apart"
    assert f"127.0.0.1:{relay.port} is 90.0 s ahead of that of the master" in apart["text"]
    assert doctor(sentinels.url, sentinels) == [], "who is not to be had is left out"


@pytest.mark.parametrize(
    ("clocks", "odd", "apart_ms"),
    [
        ({}, None, 0),
        ({"a": 70_000}, None, 0),
        ({"a": 70_000, "b": 70_999}, None, 0),
        ({"a": 0, "b": 1_000}, "b", 1_000),
        ({"a": -5_000, "b": 10}, "a", 5_010),
        ({"a": 60_000, "b": 60_010, "c": 3}, "c", 60_007),
        ({"a": 9_000, "b": -1, "c": 3}, "a", 9_001),
    ],
)
def test_the_odd_one_is_named(clocks: dict[str, int], odd: str | None, apart_ms: int) -> None:
    found = check_clocks(clocks)
    assert [(one.facts["node"], one.facts["apart_ms"]) for one in found] == (
        [] if odd is None else [(odd, apart_ms)]
    )
