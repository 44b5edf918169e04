"""Which dialect a server speaks is asked of the server, and some servers are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from chasquimq import wire
from chasquimq.address import read_url
from chasquimq.errors import AccessError, StoreError, StoreUnavailableError
from chasquimq.store import Dialer, Store, build
from chasquimq.store.resp import bulk
from tests.servers import DialectServer
from tests.store.puppet import answer_ping, command, puppet
from tests.store.shelf import QUICK, Shelf


async def opened(url: str) -> Store:
    store = Store(wire.Keys("q"), Dialer(read_url(url), options=QUICK))
    try:
        await store.open()
    finally:
        await store.close()
    return store


async def test_the_server_says_what_it_can_do(dialect_server: DialectServer) -> None:
    store = await opened(dialect_server.url)
    assert store.dialect_name == (
        "native" if dialect_server.name.startswith("redis") else "portable"
    )


async def test_a_dialect_can_be_forced(shelf: Shelf) -> None:
    expected = {"redis-native": "native", "redis-portable": "portable", "valkey": "portable"}
    assert shelf.store.dialect_name == expected.get(shelf.server.name, "portable")
    assert shelf.dialect().name == shelf.store.dialect_name


def test_a_dialect_is_built_by_its_name() -> None:
    for name in ("native", "portable"):
        assert build(name, wire.Keys("q")).name == name


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
async def test_a_server_that_evicts_any_key_is_refused(
    own_server: DialectServer, policy: str
) -> None:
    own_server.client().config_set("maxmemory-policy", policy)
    with pytest.raises(StoreError, match=rf"maxmemory-policy {policy}.*Set .* noeviction"):
        await opened(own_server.url)


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru", "volatile-ttl"])
async def test_a_server_that_keeps_what_has_no_end_is_accepted(
    own_server: DialectServer, policy: str
) -> None:
    own_server.client().config_set("maxmemory-policy", policy)
    await opened(own_server.url)


async def test_a_refused_server_is_left(own_server: DialectServer) -> None:
    client = own_server.client()
    client.config_set("maxmemory-policy", "allkeys-lru")
    store = Store(wire.Keys("q"), Dialer(read_url(own_server.url), options=QUICK))
    with pytest.raises(StoreError):
        await store.open()
    async with asyncio.timeout(5):
        while client.info("clients")["connected_clients"] > 1:
            await asyncio.sleep(0.005)


async def test_who_may_not_read_the_facts_is_served_all_the_same(
    dialect_server: DialectServer, new_user: Callable[..., str]
) -> None:
    await opened(new_user("+@all", "-info", "~*"))


async def test_who_may_not_ask_for_commands_is_told_so(
    dialect_server: DialectServer, new_user: Callable[..., str]
) -> None:
    with pytest.raises(AccessError, match="asking the server for its commands: NOPERM"):
        await opened(new_user("+@all", "-command", "~*"))


@pytest.mark.parametrize(
    ("facts", "refused"),
    [
        ("redis_version:8.2.0\r\n", True),
        ("redis_version:8.2.1\r\nserver_name:redis\r\n", True),
        ("redis_version:8.2.2\r\n", False),
        ("redis_version:8.2.1\r\nserver_name:valkey\r\n", False),
        ("redis_version:8.6.3\r\n", False),
        ("", False),
    ],
)
async def test_a_version_that_crashes_is_refused(facts: str, refused: bool) -> None:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer_ping(reader, writer)
        assert await command(reader) == [b"COMMAND", b"INFO", b"xcfgset"]
        assert (await command(reader))[0] == b"INFO"
        writer.write(b"*1\r\n*-1\r\n" + bulk(facts))
        await reader.read()

    async with puppet(act) as server:
        if refused:
            with pytest.raises(StoreError, match=r"crashes on XACKDEL; upgrade to 8\.6\.2"):
                await opened(server.url)
        else:
            assert (await opened(server.url)).dialect_name == "portable"


async def test_a_server_that_hangs_up_while_it_is_asked_is_away() -> None:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer_ping(reader, writer)
        await command(reader)

    async with puppet(act) as server:
        with pytest.raises(StoreUnavailableError, match="broke before the answer came"):
            await opened(server.url)
