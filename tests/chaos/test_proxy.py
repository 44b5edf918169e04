"""The proxy breaks what it says it breaks, and nothing else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chasquimq.server import Server
from tests.chaos.kit.frame import Frames, command
from tests.chaos.kit.proxy import Proxy
from tests.chaos.kit.wait import eventually


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    assert server.port is not None
    with Proxy(server.port) as proxy:
        yield proxy


def connect(url: str, timeout: float = 5.0) -> redis.Redis:
    """A client that tries once and says what happened."""
    return redis.Redis.from_url(
        url, protocol=2, socket_timeout=timeout, retry=Retry(NoBackoff(), 0), decode_responses=True
    )


def increment(client: Any) -> Any:
    return client.execute_command("INCR", "k")


def raw(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), 5)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side ends the connection."""
    got = b""
    try:
        while chunk := connection.recv(65536):
            got += chunk
    except ConnectionResetError:
        pass
    return got


def read_some(connection: socket.socket, until: bytes) -> bytes:
    got = b""
    while not got.endswith(until):
        got += connection.recv(65536)
    return got


def test_frames_are_found_wherever_the_bytes_are_split() -> None:
    frames = [
        b"*2\r\n$4\r\nXADD\r\n$0\r\n\r\n",
        b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nd\r\n$4\r\n\r\n*3\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"-ERR no\r\n",
        b">2\r\n+invalidate\r\n_\r\n",
        b"%1\r\n+a\r\n:1\r\n",
        b"|1\r\n+ttl\r\n:9\r\n$2\r\nok\r\n",
        b"PING\r\n",
        b"=7\r\ntxt:abc\r\n",
    ]
    stream = b"".join(frames)
    for size in range(1, 24):
        reader = Frames()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [frame for piece in pieces for frame in reader.feed(piece)] == frames


def test_commands_are_named_upper_case() -> None:
    assert command(b"*1\r\n$4\r\nping\r\n") == "PING"
    assert command(b"xlen s\r\n") == "XLEN"


def test_without_orders_everything_passes(proxy: Proxy) -> None:
    with connect(proxy.url) as client:
        big = "x" * 3_000_000
        assert client.set("big", big)
        assert client.get("big") == big
        pipe = client.pipeline(transaction=True)
        for number in range(500):
            pipe.rpush("list", number)
        assert pipe.execute() == list(range(1, 501))
    assert proxy.commands["RPUSH"] == 500
    assert proxy.cuts == []


@pytest.mark.parametrize("nth", [1, 2, 7])
def test_a_cut_command_was_executed_and_its_reply_never_arrives(
    server: Server, proxy: Proxy, nth: int
) -> None:
    cut = proxy.cut(nth, command="incr")
    with connect(proxy.url) as client:
        answers = [increment(client) for _ in range(nth - 1)]
        with pytest.raises(redis.ConnectionError):
            increment(client)
        assert answers == list(range(1, nth))
        assert increment(client) == nth + 1, "once means once"
    with connect(server.url) as client:
        assert client.get("k") == str(nth + 1)
    assert (cut.done, proxy.cuts) == (1, ["INCR"])


def test_a_pipelined_batch_can_be_cut_at_any_reply(server: Server, proxy: Proxy) -> None:
    batch = 6
    requests = b"".join(b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n" for _ in range(batch))
    for nth in range(1, batch + 1):
        with connect(server.url) as client:
            client.delete("k")
        proxy.cut(nth)
        with raw(proxy) as connection:
            connection.sendall(requests)
            assert read_all(connection) == b"".join(b":%d\r\n" % n for n in range(1, nth))
        with connect(server.url) as client:
            assert client.get("k") == str(batch), "the server got the whole batch"
        proxy.heal()
    assert proxy.cuts == ["INCR"] * batch


def test_only_the_named_command_of_a_batch_is_cut(server: Server, proxy: Proxy) -> None:
    cut = proxy.cut(2, command="XADD")
    ping, add = b"PING\r\n", b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nd\r\n$1\r\nv\r\n"
    with raw(proxy) as connection:
        connection.sendall(ping + add + ping + add + ping)
        got = read_all(connection)
    assert got.count(b"+PONG\r\n") == 2
    assert got.count(b"$") == 1
    assert cut.seen == 2
    with connect(server.url) as client:
        assert client.xlen("s") == 2


def test_a_torn_reply_is_half_a_reply(proxy: Proxy) -> None:
    proxy.cut(torn=True)
    with raw(proxy) as connection:
        connection.sendall(b"*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n")
        got = read_all(connection)
    assert b"$10\r\n0123456789\r\n".startswith(got)
    assert 0 < len(got) < 17


def test_every_nth_reply_is_cut_until_healed(proxy: Proxy) -> None:
    cut = proxy.cut(3, command="INCR", every=True)
    failures = 0
    with connect(proxy.url) as client:
        for _ in range(12):
            try:
                increment(client)
            except redis.ConnectionError:
                failures += 1
        proxy.heal()
        assert increment(client) == 13
    assert failures == cut.done == 4


def test_a_black_hole_answers_nothing_and_forgets_nothing(server: Server, proxy: Proxy) -> None:
    with raw(proxy) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(100) == b"+PONG\r\n"
        proxy.black_hole()
        connection.sendall(b"INCR k\r\n")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        with connect(server.url) as client:
            assert client.get("k") is None
        proxy.heal()
        connection.settimeout(5)
        assert connection.recv(100) == b":1\r\n"


def test_one_connection_can_be_held_and_the_others_pass(server: Server, proxy: Proxy) -> None:
    with raw(proxy) as marked, raw(proxy) as other, raw(proxy) as successor:
        mark = proxy.hold("INCR", b"secret")
        marked.sendall(b"PING\r\n")
        assert marked.recv(100) == b"+PONG\r\n", "not before it says the word"
        marked.sendall(b"INCR secret\r\n")
        other.sendall(b"INCR open\r\n")
        assert other.recv(100) == b":1\r\n"
        successor.sendall(b"INCR secret\r\n")
        eventually(lambda: mark.seen == 2)
        assert proxy.held_connections == 2
        marked.sendall(b"PING\r\n")
        marked.settimeout(0.2)
        with pytest.raises(TimeoutError):
            marked.recv(100)
        with connect(server.url) as client:
            assert client.get("secret") is None
        proxy.heal()
        assert proxy.held_connections == 0
        marked.settimeout(5)
        assert read_some(marked, b"+PONG\r\n").startswith(b":")
        assert successor.recv(100).startswith(b":")


def test_a_hold_can_be_for_the_first_only_and_a_watch_only_counts(proxy: Proxy) -> None:
    held, watched = proxy.hold("INCR", times=1), proxy.watch("INCR")
    with raw(proxy) as first, raw(proxy) as second:
        first.sendall(b"INCR k\r\n")
        eventually(lambda: held.seen)
        second.sendall(b"INCR k\r\n")
        assert second.recv(100) == b":1\r\n"
        assert (held.seen, watched.seen, proxy.held_connections) == (2, 2, 1)


def test_latency_holds_replies_back(proxy: Proxy) -> None:
    proxy.latency(60_000, 60_000)
    with connect(proxy.url, timeout=0.3) as client, pytest.raises(redis.TimeoutError):
        client.ping()
    proxy.heal()
    with connect(proxy.url) as client:
        assert client.ping()


def test_reset_ends_every_connection_and_says_how_many(proxy: Proxy) -> None:
    connections = [raw(proxy) for _ in range(3)]
    eventually(lambda: proxy.open_connections == 3)
    assert proxy.reset() == 3
    for connection in connections:
        with connection, pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert proxy.resets == 3
    with connect(proxy.url) as client:
        assert client.ping()


def test_messages_nobody_asked_for_pass(server: Server, proxy: Proxy) -> None:
    with connect(proxy.url) as client, client.pubsub() as listener:
        listener.subscribe("news")
        assert eventually(lambda: listener.get_message(timeout=0.1))["type"] == "subscribe"
        proxy.cut()
        with connect(server.url) as speaker:
            speaker.publish("news", "hello")
        assert eventually(lambda: listener.get_message(timeout=0.1))["data"] == "hello"
    assert proxy.cuts == []


def test_replies_are_matched_beside_a_subscription(proxy: Proxy) -> None:
    proxy.cut(command="INCR")
    with raw(proxy) as connection:
        connection.sendall(b"HELLO 3\r\nSUBSCRIBE news\r\nINCR k\r\n")
        assert b">3\r\n$9\r\nsubscribe\r\n" in read_all(connection)
    assert proxy.cuts == ["INCR"]


def test_a_server_that_is_away_ends_the_connection_and_its_return_is_seen(
    server: Server, proxy: Proxy
) -> None:
    with connect(proxy.url) as client:
        client.set("k", "kept")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("k")
        with pytest.raises(redis.ConnectionError):
            client.get("k")
        assert proxy.unreachable
        server.start()
        assert client.get("k") == "kept"


def test_a_stopped_proxy_is_gone(server: Server) -> None:
    assert server.port is not None
    proxy = Proxy(server.port).start()
    with raw(proxy) as held:
        proxy.black_hole()
        held.sendall(b"PING\r\n")
        proxy.stop()
        with pytest.raises(ConnectionRefusedError):
            raw(proxy)
