"""Who we are, and over which line: passwords, users and certificates, none of them ever shown."""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
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
from tests.store.test_tls import VERSIONS, Authority, Mounted, secured, strict

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


def ask(url: str, options: ConnectOptions = QUICK, patience_s: float = 0.1) -> bytes:
    with Client(read_url(url), ["counts"], options, patience_s=patience_s) as client:
        return bytes(client.ask("ECHO", "well"))


def refusal(
    url: str,
    kind: type[ChasquiError],
    options: ConnectOptions = QUICK,
    patience_s: float = 0.1,
) -> str:
    with pytest.raises(kind) as refused:
        ask(url, options, patience_s)
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


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("fault", ["none", "authority", "time"])
def test_a_certificate_of_ours_that_is_refused_is_no_reason_to_try_again(
    authority: Authority, tmp_path: Path, version: str, fault: str
) -> None:
    signer = Authority(tmp_path) if fault == "authority" else authority
    over = datetime(2020, 1, 1, tzinfo=UTC) if fault == "time" else None
    signed, key = signer.certificate("client", until=over)
    with strict(authority, authority.certificate("localhost"), version) as url:
        url = url.replace(":canary@", f":{ENCODED}@")
        if fault == "none":
            told = refusal(url, AccessError, patience_s=30)
            assert "a certificate of ours, and none was presented" in told
        else:
            more = f"&ssl_certfile={signed}&ssl_keyfile={key}"
            told = refusal(url + more, AccessError, patience_s=30)
            said = "unknown ca" if fault == "authority" else "certificate expired"
            assert f"refused our certificate {signed} ({said})" in told


@pytest.mark.parametrize("version", VERSIONS)
def test_plain_tcp_to_a_port_of_tls_is_no_reason_to_try_again(
    authority: Authority, version: str
) -> None:
    with strict(authority, authority.certificate("localhost"), version) as url:
        plain = url.partition("?")[0].replace("rediss://", "redis://")
        plain = plain.replace(":canary@", f":{ENCODED}@")
        told = refusal(plain, StoreError, patience_s=30)
    assert "speaks TLS, and was greeted in plain TCP; write rediss://" in told


async def test_an_alert_in_answer_to_plain_tcp() -> None:
    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x15\x03\x01\x00\x02\x02\x46")

    async with puppet(alert) as server:
        told = await asyncio.to_thread(refusal, server.url, StoreError, patience_s=30)
    assert "write rediss://" in told


@pytest.mark.parametrize("how", ["in place", "renamed", "links"])
async def test_renewed_certificates_are_read_by_the_next_connect(
    dialect_server: DialectServer,
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    shown: list[int] = []
    mounted = Mounted(tmp_path / "mounted", how)
    number = mounted.renew(authority)
    async with secured(
        dialect_server.server, authority.certificate("localhost"), authority.ca, shown=shown
    ) as port:
        address = read_url(f"rediss://localhost:{port}?{mounted.options()}")

        def again() -> int:
            client.close()
            assert client.ask("ECHO", "well") == b"well"
            return shown.pop()

        with Client(address, options=QUICK, patience_s=0.1) as client:
            for _ in range(2):
                assert await asyncio.to_thread(again) == number
                os.truncate(mounted.folder / "tls.key", 7)
                assert await asyncio.to_thread(again) == number
                assert await asyncio.to_thread(again) == number
                assert caplog.text.count("cannot load the TLS files") == 1
                caplog.clear()
                number = mounted.renew(authority)
            assert await asyncio.to_thread(again) == number


def test_files_of_tls_that_are_not_there_name_the_address_alone(tmp_path: Path) -> None:
    url = f"rediss://:{ENCODED}@localhost?ssl_ca_certs={tmp_path}/none.pem"
    assert "cannot load the TLS files" in refusal(url, ChasquiError)
