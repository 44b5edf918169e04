"""Several real servers that belong together: a master with a replica under three Sentinels, or a
cluster of six nodes. All of them are processes on this machine's loopback."""

from __future__ import annotations

import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot

from chasquimq.server import Binary, Server
from chasquimq.server.run import Setting
from tests.ha.bus import Bus
from tests.replicas import AT_ONCE
from tests.servers import disposable

SERVICE = "the-master"
DOWN_MS = 1_000  # how long a master is silent before it is given up
SLOTS = 16_384
# A node's bus listens 10,000 above its port: both lie below the ports of outgoing connections.
PORTS = range(20_000, 22_000)


def until(what: Callable[[], Any], seconds: float = 30.0, every_s: float = 0.05) -> Any:
    """What it answers, once that is something. Meanwhile it may fail."""
    end = time.monotonic() + seconds
    while True:
        with suppress(redis.RedisError, OSError):
            if answer := what():
                return answer
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(every_s)


def free_port() -> int:
    for port in random.Random().sample(PORTS, 200):
        with socket.socket() as one, socket.socket() as bus, suppress(OSError):
            one.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + 10_000))
            return port
    raise AssertionError("no port is free")


def client(port: int | None) -> redis.Redis:
    assert port is not None
    return redis.Redis(port=port, socket_timeout=2)


class Sentinel:
    """One watching process; our own Server starts none, it is no server of jobs."""

    def __init__(
        self,
        binary: Binary,
        folder: Path,
        master: int,
        password: str | None = None,
        more: tuple[str, ...] = (),
    ) -> None:
        self.port = free_port()
        folder.mkdir()
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {folder}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {master} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_MS}",
            f"sentinel failover-timeout {SERVICE} 5000",
        ]
        if password:
            lines.append(f"requirepass {password}")
            lines.append(f"sentinel sentinel-pass {password}")
        lines += more
        file = folder / "sentinel.conf"
        file.write_text("\n".join(lines) + "\n")
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(binary.path), str(file), "--sentinel"], stdout=log, stderr=log
            )
        self.redis = redis.Redis(port=self.port, password=password, socket_timeout=2)
        until(self.redis.ping)

    def close(self) -> None:
        self.redis.close()
        self._process.kill()
        self._process.wait()


class Watched:
    """A master, its replica, and three who watch over them."""

    def __init__(
        self, master: Server, replica: Server, sentinels: list[Sentinel], options: str = ""
    ) -> None:
        self.master, self.replica, self.sentinels = master, replica, sentinels
        places = ",".join(f"127.0.0.1:{one.port}" for one in sentinels)
        self.url = f"redis+sentinel://{places}/{SERVICE}{options}"

    def named(self) -> int:
        """The port of the master, as all Sentinels name it; 0 while they do not agree."""
        ports = {one.redis.sentinel_get_master_addr_by_name(SERVICE)[1] for one in self.sentinels}
        return int(ports.pop()) if len(ports) == 1 else 0


@contextmanager
def watched(
    binary: Binary,
    folder: Path,
    password: str | None = None,
    config: Mapping[str, Setting] | None = None,
    more: tuple[str, ...] = (),
) -> Iterator[Watched]:
    """`password`: that of the Sentinels; `config` is for both servers, `more` for all Sentinels."""
    with ExitStack() as stack:
        both = {"repl-diskless-sync-delay": 0, **AT_ONCE, **(config or {})}
        master = stack.enter_context(disposable(Server(binary, appendonly=True, config=both)))
        source = {"replicaof": ("127.0.0.1", str(master.port)), **both}
        replica = stack.enter_context(disposable(Server(binary, appendonly=True, config=source)))
        assert master.port is not None
        until(lambda: client(replica.port).info("replication")["master_link_status"] == "up")
        sentinels = []
        for number in range(3):
            one = Sentinel(binary, folder / f"sentinel-{number}", master.port, password, more)
            stack.callback(one.close)
            sentinels.append(one)
        for one in sentinels:
            until(lambda one=one: _sees_all(one))
        options = "?sentinel_password_env=SENTINELS_WORD" if password else ""
        yield Watched(master, replica, sentinels, options)


def _sees_all(sentinel: Sentinel) -> bool:
    known = sentinel.redis.sentinel_master(SERVICE)
    return known["num-other-sentinels"] == 2 and known["num-slaves"] == 1


class Cluster:
    """Three masters with a replica each."""

    def __init__(self, nodes: list[Server]) -> None:
        self.nodes = nodes
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{one.port}" for one in nodes[:2])

    def owner(self, key: str, apart: Server | None = None) -> Server:
        """The node that serves a key, as one that lives sees it, and is not this one."""
        slot = key_slot(key.encode())
        for node in self.nodes:
            if node.is_running and node is not apart:
                for first, last, master, *_ in client(node.port).execute_command("CLUSTER SLOTS"):
                    if first <= slot <= last:
                        port = int(master[1])
                        return next(one for one in self.nodes if one.port == port)
        raise AssertionError(f"nobody serves {key}")

    def replica_of(self, master: Server) -> Server:
        for node in self.nodes:
            role = client(node.port).execute_command("ROLE")
            if role[0] == b"slave" and role[2] == master.port:
                return node
        raise AssertionError(f"{master} has no replica")

    def masters(self) -> list[Server]:
        rows = client(self.nodes[0].port).execute_command("CLUSTER SLOTS")
        ports = {int(row[2][1]) for row in rows}
        return [node for node in self.nodes if node.port in ports]

    def other(self, key: str) -> Server:
        """A master that does not serve the key."""
        owner = self.owner(key)
        return next(node for node in self.masters() if node is not owner)

    def begin_move(self, key: str, target: Server) -> Move:
        """The slot of a key is on its way; its keys are where they were."""
        return Move(key_slot(key.encode()), self.owner(key), target)

    def move(
        self,
        key: str,
        target: Server,
        at_once: int = 1,
        begun: Callable[[], object] = lambda: None,
    ) -> int:
        """Move the slot of a key while others use it, so many keys at once; how many there were.
        `begun` is called when it is said that the slot moves, and all keys are still there."""
        move = self.begin_move(key, target)
        begun()
        moved = 0
        while keys := move.left(at_once):
            move.carry(*keys)
            moved += len(keys)
            time.sleep(0.02)  # others find the queue in two halves meanwhile
        move.end()
        return moved

    def hand_over(self, key: str, target: Server) -> None:
        """Move the slot of a key as a whole: newer servers copy it, and then change its owner."""
        slot, there = key_slot(key.encode()), client(target.port)
        try:
            there.execute_command("CLUSTER", "MIGRATION", "IMPORT", slot, slot)
        except redis.ResponseError:  # Valkey has another word for it, and is asked at the source
            name = there.execute_command("CLUSTER MYID").decode()
            here = client(self.owner(key).port)
            here.execute_command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name)
        until(lambda: self.owner(key) is target)


class Move:
    """A slot that goes from one node to another, key by key."""

    def __init__(self, slot: int, source: Server, target: Server) -> None:
        self._slot, self._port = slot, target.port
        self.here, self.there = client(source.port), client(target.port)
        self._from, self._to = (
            one.execute_command("CLUSTER MYID").decode() for one in (self.here, self.there)
        )
        self.there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self._from)
        self.here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self._to)

    def left(self, most: int = 1) -> list[bytes]:
        """Keys that are still to go, so many at the most."""
        keys: list[bytes] = self.here.execute_command("CLUSTER", "GETKEYSINSLOT", self._slot, most)
        return keys

    def carry(self, *keys: bytes) -> None:
        self.here.execute_command("MIGRATE", "127.0.0.1", self._port, "", 0, 5_000, "KEYS", *keys)

    def end(self) -> None:
        for one in (self.there, self.here):
            one.execute_command("CLUSTER", "SETSLOT", self._slot, "NODE", self._to)


class Home:
    """A queue of a cluster, for kits that know one server: its node is the one of the moment."""

    forced_dialect = None

    def __init__(self, nodes: Cluster, queue: str) -> None:
        self.nodes, self.queue = nodes, queue
        self.key = f"{{chasqui:{queue}}}:stream"
        self.url = nodes.url

    def client(self) -> redis.Redis:
        return client(self.nodes.owner(self.key).port)

    def move(self, begun: Callable[[], object] = lambda: None) -> None:
        """To another node, key by key."""
        target = self.nodes.other(self.key)
        self.nodes.move(self.key, target, 20, begun)
        assert self.nodes.owner(self.key) is target

    def hand_over(self) -> None:
        """To another node, all keys at once."""
        self.nodes.hand_over(self.key, self.nodes.other(self.key))


@contextmanager
def cluster(binary: Binary, bus: Bus | None = None) -> Iterator[Cluster]:
    """`bus`: carries what the nodes say to each other, so that one can be cut off."""
    settings: dict[str, Setting] = {
        "cluster-enabled": "yes",
        "cluster-node-timeout": 1_500,
        "cluster-replica-validity-factor": 0,
        "repl-diskless-sync-delay": 0,
        **AT_ONCE,
    }
    with ExitStack() as stack:
        nodes = []
        for _ in range(6):
            port = free_port()
            more = bus.plug_in(port + 10_000) if bus is not None else {}
            node = Server(binary, port=port, appendonly=True, config=settings | more)
            nodes.append(stack.enter_context(disposable(node)))
        clients = [client(node.port) for node in nodes]
        for number, one in enumerate(clients):
            one.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, one in enumerate(clients[:3]):
            first, last = number * SLOTS // 3, (number + 1) * SLOTS // 3 - 1
            one.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        for number, node in enumerate(nodes[1:], 1):
            through = (bus.port(number),) if bus is not None else ()
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, *through)
        for one in clients:
            until(lambda one=one: _state(one)["cluster_known_nodes"] == "6")
        for number, one in enumerate(clients[3:]):
            master = clients[number].execute_command("CLUSTER MYID").decode()
            until(
                lambda one=one, master=master: one.execute_command("CLUSTER", "REPLICATE", master)
            )
        for one in clients:
            until(lambda one=one: _state(one)["cluster_state"] == "ok")
        for one in clients[3:]:
            until(lambda one=one: one.info("replication")["master_link_status"] == "up")
        yield Cluster(nodes)


def _state(one: redis.Redis) -> dict[str, str]:
    state: dict[str, str] = one.execute_command("CLUSTER INFO")
    return state
