"""Who we are, and over which line: passwords, users and certificates, none of them ever shown."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from chasquimq.address import read_url
from chasquimq.config import ConnectOptions
from chasquimq.errors import AccessError, ChasquiError, StoreError, StoreUnavailableError
from chasquimq.server import Server
from chasquimq.spark.client import Client
from tests.servers import DialectServer
from tests.store.puppet import command, puppet
from tests.store.test_tls import Authority, secured

QUICK = ConnectOptions(timeout_ms=5_000, reply_ms=5_000, retry_ms=5, max_retry_ms=50)
PASSWORD = "c4nary p@ss:w/?#rd%"  # not a secret
ENCODED = quote(PASSWORD, safe="")


@pytest.fixture
def locked(dialect_server: DialectServer) -> Iterator[Server]:
    with Server(dialect_server.server.binary, password=PASSWORD) as server:
        yield server


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def ask(url: str, options: ConnectOptions = QUICK) -> bytes:
    with Client(read_url(url), ["counts"], options, patience_s=0.1) as client:
        return bytes(client.ask("ECHO", "well"))


def refusal(url: str, kind: type[ChasquiError], options: ConnectOptions = QUICK) -> str:
    with pytest.raises(kind) as refused:
        ask(url, options)
    told = "".join(traceback.format_exception(refused.value))
    for secret in (PASSWORD, ENCODED, "wr0ng"):
        assert secret not in told
    return told


def test_a_password_of_any_characters(locked: Server) -> None:
    assert ask(f"redis://:{ENCODED}@127.0.0.1:{locked.port}") == b"well"
    assert ask(f"redis://default:{ENCODED}@127.0.0.1:{locked.port}/2") == b"well"


def test_a_wrong_password_is_no_reason_to_try_again(locked: Server) -> None:
    told = refusal(f"redis://:wr0ng@127.0.0.1:{locked.port}", AccessError)  # not a secret
    assert "WRONGPASS" in told and "redis://:***@127.0.0.1" in told
    assert "check the user, its password" in told


def test_a_password_that_was_not_given_says_how_to_give_it(locked: Server) -> None:
    told = refusal(f"redis://127.0.0.1:{locked.port}", AccessError)
    assert "wants a password: give the address by urlEnv or secretFile" in told


def test_a_password_that_nobody_asked_for_will_do(dialect_server: DialectServer) -> None:
    assert ask(f"redis://:{ENCODED}@127.0.0.1:{dialect_server.server.port}") == b"well"


def test_a_password_that_was_changed_under_a_connection_is_said_so(locked: Server) -> None:
    with Client(read_url(locked.url), options=QUICK) as client:
        number = client.ask("CLIENT", "ID")
        client.post("CONFIG", "SET", "requirepass", "another")
        client.post("CLIENT", "KILL", "ID", number, "SKIPME", "no")
        client.collect()
        with pytest.raises(AccessError, match="WRONGPASS"):
            client.ask("ECHO", 1)
        assert client.waiting == 0


def test_a_server_without_auth_repeats_the_password_and_we_do_not() -> None:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words = b" ".join(await command(reader))
        writer.write(b"-ERR unknown command 'AUTH', with args beginning with: %b\r\n" % words)
        for _ in range(2):
            await command(reader)
            writer.write(b"+OK\r\n")
        await writer.drain()

    async def main() -> str:
        async with puppet(act) as server:
            url = server.url.replace("//", f"//u:{ENCODED}@")
            return await asyncio.to_thread(refusal, url, StoreError)

    assert "does not take AUTH" in asyncio.run(main())


@pytest.mark.parametrize(
    ("rules", "refused"),
    [("+ping +echo", "script"), ("+ping +script|load", "echo"), ("+echo +script|load", "ping")],
)
def test_a_user_that_may_not_is_told_what(
    own_server: DialectServer, rules: str, refused: str
) -> None:
    own_server.client().execute_command(
        "ACL", "SETUSER", "reader", "on", f">{PASSWORD}", "~*", *rules.split()
    )
    told = refusal(own_server.url.replace("//", f"//reader:{ENCODED}@"), AccessError)
    assert "NOPERM" in told and refused in told


def test_a_server_that_is_away_is_named_without_its_password(
    own_server: DialectServer, caplog: pytest.LogCaptureFixture
) -> None:
    own_server.server.kill()
    with caplog.at_level(logging.DEBUG):
        told = refusal(own_server.url.replace("//", f"//u:{ENCODED}@"), StoreUnavailableError)
    assert "redis://u:***@127.0.0.1" in told and "redis://u:***@127.0.0.1" in caplog.text
    assert ENCODED not in caplog.text and PASSWORD not in caplog.text


async def test_tls_is_verified(dialect_server: DialectServer, authority: Authority) -> None:
    certificate = authority.certificate("localhost")
    async with secured(dialect_server.server, certificate) as port:
        url = f"rediss://:{ENCODED}@localhost:{port}?ssl_ca_certs={authority.ca}"
        assert await asyncio.to_thread(ask, url) == b"well"
        other = f"rediss://:{ENCODED}@127.0.0.1:{port}?ssl_ca_certs={authority.ca}"
        assert "was refused" in await asyncio.to_thread(refusal, other, AccessError)
        unknown = f"rediss://:{ENCODED}@localhost:{port}"
        told = await asyncio.to_thread(refusal, unknown, AccessError)
        assert "give its authority by ?ssl_ca_certs=/path" in told
        assert await asyncio.to_thread(ask, f"{unknown}?insecure=true") == b"well"


async def test_much_goes_over_tls_both_ways(
    dialect_server: DialectServer, authority: Authority, queue_name: str
) -> None:
    text = b"x" * 300_000

    def work(url: str) -> None:
        with Client(read_url(url), options=QUICK) as client:
            for number in range(100):
                client.post("ECHO", b"%d:%b" % (number, text))
            assert client.collect() == [b"%d:%b" % (number, text) for number in range(100)]

    async with secured(dialect_server.server, authority.certificate("localhost")) as port:
        await asyncio.to_thread(work, f"rediss://localhost:{port}?ssl_ca_certs={authority.ca}")


def test_a_server_that_does_not_speak_tls_is_not_spoken_to_in_the_clear(
    own_server: DialectServer,
) -> None:
    url = own_server.url.replace("redis://", f"rediss://:{ENCODED}@")
    told = refusal(url, StoreUnavailableError, ConnectOptions(timeout_ms=200, retry_ms=5))
    assert "cannot reach Redis at rediss://:***@" in told
    assert "nobody answers in TLS" in told or "SSL" in told
    seen = own_server.client().info("commandstats")
    assert not any("auth" in name for name in seen)


def test_files_of_tls_that_are_not_there_name_the_address_alone(tmp_path: Path) -> None:
    url = f"rediss://:{ENCODED}@localhost?ssl_ca_certs={tmp_path}/none.pem"
    assert "cannot load the TLS files" in refusal(url, ChasquiError)
