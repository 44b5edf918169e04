"""The Spark side's connection: whatever happens to it, every command is answered, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from chasquimq.address import read_url
from chasquimq.config import ConnectOptions
from chasquimq.errors import StoreError, StoreUnavailableError
from chasquimq.server import Server
from chasquimq.spark.client import Client
from tests.chaos.kit.proxy import Proxy
from tests.replicas import replica_of
from tests.servers import DialectServer
from tests.store.puppet import command, puppet

QUICK = ConnectOptions(timeout_ms=5_000, reply_ms=5_000, retry_ms=5, max_retry_ms=50)
IMPATIENT = ConnectOptions(timeout_ms=200, reply_ms=200, retry_ms=5, max_retry_ms=20)


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


@pytest.fixture
def client(dialect_server: DialectServer) -> Iterator[Client]:
    with Client(read_url(dialect_server.url), ["counts"], QUICK) as client:
        yield client


def echoes(numbers: range) -> list[tuple[str, int]]:
    return [("ECHO", number) for number in numbers]


def texts(numbers: range) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def test_answers_come_in_order(client: Client) -> None:
    assert client.ask_each(echoes(range(5_000))) == texts(range(5_000))
    for number in range(10):
        client.post("ECHO", number)
    assert client.waiting == 10
    first = client.collect(until=4)
    assert client.waiting == 4 and len(first) == 6
    assert first + client.collect() == texts(range(10))
    assert client.ask_each([]) == []


def test_an_error_is_a_value_among_many_and_raised_alone(client: Client, queue_name: str) -> None:
    client.ask("SET", queue_name, "text")
    one, error, two = client.ask_each([("ECHO", 1), ("LLEN", queue_name), ("ECHO", 2)])
    assert (one, two) == (b"1", b"2") and isinstance(error, Exception)
    with pytest.raises(StoreError, match="LLEN: WRONGTYPE"):
        client.ask("LLEN", queue_name)
    assert client.ask("GET", queue_name) == b"text"


def test_answers_that_wait_are_not_mixed_up_with_others(client: Client) -> None:
    client.post("ECHO", 1)
    with pytest.raises(AssertionError, match="collect"):
        client.ask("ECHO", 2)
    assert client.collect() == [b"1"]


def test_a_connection_killed_midway_is_not_noticed(
    client: Client, dialect_server: DialectServer, caplog: pytest.LogCaptureFixture
) -> None:
    number = client.ask("CLIENT", "ID")
    for each in range(200):
        client.post("ECHO", each)
    first = client.collect(until=150)
    dialect_server.client().client_kill_filter(_id=str(number))
    for each in range(200, 300):
        client.post("ECHO", each)
    assert first + client.collect() == texts(range(300))
    assert client.ask("CLIENT", "ID") != number
    assert not caplog.records, "servers close what is idle: nobody needs to hear of it"


def test_only_what_was_not_answered_is_sent_again() -> None:
    async def main() -> list[list[bytes]]:
        heard: list[list[bytes]] = []

        async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await command(reader) == [b"PING"]
            writer.write(b"+PONG\r\n")
            heard.append([])
            while len(heard) > 1 or len(heard[0]) < 5:
                [_, number] = await command(reader)
                heard[-1].append(number)
                if len(heard) > 1 or len(heard[0]) <= 3:
                    writer.write(b"$1\r\n%b\r\n" % number)
                    await writer.drain()

        async with puppet(act) as server:
            client = Client(read_url(server.url), options=QUICK)
            answers = await asyncio.to_thread(client.ask_each, echoes(range(6)))
            assert answers == texts(range(6))
            client.close()
        return heard

    first, second = asyncio.run(main())
    assert first == texts(range(5))
    assert second == texts(range(3, 6))


def test_a_server_that_restarts_is_waited_for(
    own_server: DialectServer, aside: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(read_url(own_server.url), ["counts"], QUICK) as client:
        client.ask_each([("SET", f"key:{number}", number) for number in range(2_000)])
        own_server.server.kill()
        work = aside.submit(client.ask_each, [("GET", f"key:{number}") for number in range(2_000)])
        while "trying again" not in caplog.text and not work.done():
            pass
        own_server.server.start()
        assert work.result(30) == texts(range(2_000))
    assert "cannot reach Redis at redis://127.0.0.1" in caplog.text


def test_scripts_that_were_forgotten_are_loaded_again(
    own_server: DialectServer, queue_name: str
) -> None:
    keys = [f"{{chasqui:{queue_name}}}:{name}" for name in ("stream", "delayed", "dlq", "repeat")]
    with Client(read_url(own_server.url), ["counts"], QUICK) as client:
        before = client.run("counts", keys, ["default"])
        own_server.client().script_flush()
        assert client.run("counts", keys, ["default"]) == before
    with Client(read_url(own_server.url), options=QUICK) as other, pytest.raises(AssertionError):
        other.run("counts", keys, ["default"])


def test_a_replica_is_waited_for_until_it_is_promoted(
    own_server: DialectServer, aside: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    with replica_of(own_server) as replica:
        with Client(read_url(replica.server.url), options=QUICK) as client:
            work = aside.submit(client.ask, "SET", "key", "value")
            while "READONLY" not in caplog.text and not work.done():
                pass
            replica.promote()
            assert work.result(30) == b"OK"
        assert replica.redis.get("key") == b"value"


def test_a_server_that_is_loading_is_waited_for() -> None:
    loading = b"-LOADING Redis is loading the dataset in memory\r\n"
    pong = b"+PONG\r\n"
    said = [(loading,), (loading,), (pong, loading), (pong, b"$1\r\n1\r\n")]

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for words in said.pop(0):
            await command(reader)
            writer.write(words)

    async def main() -> None:
        async with puppet(act) as server:
            client = Client(read_url(server.url), options=QUICK)
            assert await asyncio.to_thread(client.ask, "ECHO", 1) == b"1"
            client.close()

    asyncio.run(main())


def test_a_server_that_stands_still_is_waited_for(
    own_server: DialectServer, aside: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(read_url(own_server.url), options=IMPATIENT) as client:
        client.ask("SET", "key", "value")
        own_server.server.pause()
        work = aside.submit(client.ask_each, [("GET", "key"), *echoes(range(100))])
        while "trying again" not in caplog.text and not work.done():
            pass
        own_server.server.resume()
        assert work.result(30) == [b"value", *texts(range(100))]


def test_clients_that_are_paused_wait(own_server: DialectServer, aside: ThreadPoolExecutor) -> None:
    with Client(read_url(own_server.url), options=IMPATIENT) as client:
        own_server.client().client_pause(700, all=True)
        assert aside.submit(client.ask, "ECHO", 1).result(30) == b"1"


def test_patience_ends_and_says_what_was_tried(own_server: DialectServer) -> None:
    client = Client(read_url(own_server.url), options=IMPATIENT, patience_s=0.3)
    client.ask("PING")
    own_server.server.pause()
    with pytest.raises(StoreUnavailableError, match=r"no answer from Redis at redis://127.+:\d+$"):
        client.ask_each(echoes(range(3)))
    own_server.server.resume()
    own_server.server.kill()
    with pytest.raises(StoreUnavailableError, match=r"refused\); is it running there\?$"):
        client.ask("ECHO", 1)
    own_server.server.start()
    assert client.waiting == 0
    assert client.ask("ECHO", 2) == b"2", "what failed is not sent any more"
    client.close()


def test_patience_that_ends_says_how_long_it_was() -> None:
    client = Client(read_url("redis://127.0.0.1:1"), options=IMPATIENT, patience_s=1)
    with pytest.raises(StoreUnavailableError, match=r"is it running there\? \(tried for 1 s\)$"):
        client.ask("PING")


def test_patience_ends_on_a_server_that_does_not_serve(own_server: DialectServer) -> None:
    own_server.client().config_set("min-replicas-to-write", 1)
    with Client(read_url(own_server.url), options=IMPATIENT, patience_s=0.2) as client:
        with pytest.raises(StoreUnavailableError, match=r"does not serve us \(NOREPLICAS"):
            client.ask("SET", "key", "value")
        assert client.ask("GET", "key") is None


def test_a_name_that_leads_nowhere() -> None:
    client = Client(read_url("redis://nowhere.invalid"), options=IMPATIENT, patience_s=0.1)
    with pytest.raises(StoreUnavailableError, match=r"cannot reach Redis at redis://nowhere\.inv"):
        client.ask("PING")


def test_what_is_no_redis_is_said_so() -> None:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await command(reader)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async def main() -> None:
        async with puppet(act) as server:
            client = Client(read_url(server.url), options=IMPATIENT, patience_s=0.1)
            with pytest.raises(StoreUnavailableError, match="what answers there is no Redis"):
                await asyncio.to_thread(client.ask, "ECHO", 1)

    asyncio.run(main())


@pytest.mark.parametrize("reply", [b"%1\r\n*0\r\n:1\r\n", b"*2\r\n:1\r\n%1\r\n*0\r\n:1\r\n"])
def test_a_reply_that_python_cannot_hold_is_a_broken_connection(
    dialect_server: DialectServer, reply: bytes
) -> None:
    """A map whose key is a list: what is asked is asked again over a new connection."""
    with (
        Proxy(dialect_server.server.port) as proxy,
        Client(read_url(proxy.url), options=QUICK) as client,
    ):
        assert client.ask("ECHO", 1) == b"1"
        proxy.corrupt(2, reply)
        assert client.ask_each(echoes(range(5))) == texts(range(5))
        assert client.opened == 2 and proxy.cuts == ["ECHO"]


def test_huge_answers(client: Client, queue_name: str) -> None:
    size = 48 << 20
    client.ask("SETRANGE", queue_name, size - 1, "x")
    first, second, third = client.ask_each(
        [("ECHO", 1), ("GET", queue_name), ("GETRANGE", queue_name, size - 3, size)]
    )
    assert (first, len(second), third) == (b"1", size, b"\0\0x")
    client.ask("DEL", queue_name)


def test_much_may_be_posted_before_anything_is_read(client: Client) -> None:
    text = b"x" * 4_096
    for number in range(10_000):
        client.post("ECHO", b"%d:%b" % (number, text))
    assert client.waiting == 10_000
    for number, answer in enumerate(client.collect()):
        assert answer == b"%d:%b" % (number, text)


def test_a_server_that_waits_to_be_read_is_read() -> None:
    """It takes no command before its last answer is taken: who only writes would wait for ever."""
    text = b"x" * 50_000
    many = 1_000

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)
        while True:
            words = await command(reader)
            writer.write(b"+PONG\r\n" if words == [b"PING"] else b"$50000\r\n%b\r\n" % text)
            await writer.drain()

    def work(client: Client) -> list[bytes]:
        for _ in range(many):
            client.post("ECHO", text)
        return client.collect()

    async def main() -> None:
        async with puppet(act) as server:
            client = Client(read_url(server.url), options=QUICK, patience_s=0)
            assert await asyncio.to_thread(work, client) == [text] * many
            assert server.connections == 1
            client.close()

    asyncio.run(main())


def test_a_unix_socket_and_a_database(dialect_server: DialectServer, tmp_path: Path) -> None:
    with Server(dialect_server.server.binary, unix_socket=True) as server:
        with Client(read_url(f"{server.url}?db=3"), options=QUICK) as client:
            client.ask("SET", "key", "value")
        with redis.Redis.from_url(f"{server.url}?db=3") as other:
            assert other.get("key") == b"value"
        with redis.Redis.from_url(server.url) as first:
            assert first.get("key") is None
        server.kill()
        server.start()
        with Client(read_url(f"{server.url}?db=3"), options=QUICK) as client:
            number = client.ask("CLIENT", "ID")
            client.ask("SET", "key", "again")
            with redis.Redis.from_url(server.url) as other:
                other.client_kill_filter(_id=str(number))
            assert client.ask("GET", "key") == b"again", "after a break it is the same database"


def test_ipv6(dialect_server: DialectServer) -> None:
    binds = {"bind": ("127.0.0.1", "::1")}
    with (
        Server(dialect_server.server.binary, config=binds) as server,
        Client(read_url(f"redis://[::1]:{server.port}"), options=QUICK) as client,
    ):
        assert client.ask("ECHO", 1) == b"1"


def test_an_address_that_moves_is_asked_for_at_every_connect(
    own_server: DialectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover: the resolver answers with another place."""
    with Server(own_server.server.binary) as other:
        address = read_url(own_server.url)
        with Client(address, options=QUICK) as client:
            client.ask("SET", "key", "first")
            there = read_url(other.url).endpoint
            monkeypatch.setattr(type(address), "resolve", lambda self: there)
            own_server.server.kill()
            assert client.ask("GET", "key") is None


def test_a_client_that_was_closed_connects_again(client: Client) -> None:
    client.post("ECHO", 1)
    client.close()
    assert client.waiting == 0
    assert client.ask("ECHO", 2) == b"2"
