"""A password that is given by name is seen nowhere, and works over TLS and with an ACL user."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import redis
from pyspark.sql import SparkSession

from chasquimq.server import Server
from tests.servers import DIALECTS, binary_for
from tests.spark.launch import launch
from tests.store.test_tls import Authority

APP = Path(__file__).with_name("app_canary.py")
PASSWORD = "c4nary p@ss/w"  # not a secret
SECRETS = (PASSWORD, quote(PASSWORD, safe=""), "wr0ng-canary", "weak-c4nary")


@pytest.mark.timeout(300)
def test_a_password_is_seen_nowhere(queue_name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{PASSWORD}\n")
    folder = tmp_path / "seen"
    folder.mkdir()
    with Server(binary_for(DIALECTS[0]), password=PASSWORD) as server:
        with redis.Redis.from_url(server.url) as client:
            client.xadd(f"{{chasqui:{queue_name}}}:events", {"e": "waiting", "id": "a"})
            client.execute_command("ACL", "SETUSER", "weak", "on", ">weak-c4nary", "~*", "+ping")
        place = f"127.0.0.1:{server.port}"
        ended = launch(
            [sys.executable, str(APP), str(folder), queue_name, place, str(tmp_path / "secret")],
            folder,
            QUEUES=server.url,
            WRONG=f"redis://:wr0ng-canary@{place}",  # not a secret
            WEAK=f"redis://weak:weak-c4nary@{place}",  # not a secret
        )
    seen = ended.told
    assert seen["rows"] == "20" and seen["streamed"] == "TrueNone"
    assert "WRONGPASS" in seen["read WRONG"] and "WRONGPASS" in seen["write WRONG"]
    assert "NOPERM" in seen["read WEAK"]
    texts = {**seen, "stderr": ended.err, **texts_in(folder)}
    assert any("SparkListenerSQLExecutionStart" in text for text in texts.values())
    assert any("checkpoint/offsets" in name for name in texts)
    assert leaks(texts) == []


def texts_in(folder: Path) -> dict[str, str]:
    """The log of events, checkpoints, what Spark spilled, and whatever else was written there."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.read_text(errors="replace") for path in paths}


def leaks(texts: dict[str, str]) -> list[str]:
    return [name for name, text in texts.items() if any(secret in text for secret in SECRETS)]


@contextmanager
def encrypted(authority: Authority) -> Iterator[tuple[redis.Redis, str]]:
    """A server that speaks TLS: a plain client for the test, and where TLS is spoken."""
    certificate, key = authority.certificate("localhost")
    with Server(binary_for(DIALECTS[0])) as spare:
        port = spare.port
    config = {
        "tls-port": str(port),
        "tls-cert-file": str(certificate),
        "tls-key-file": str(key),
        "tls-ca-cert-file": str(authority.ca),
        "tls-auth-clients": "no",
    }
    with Server(binary_for(DIALECTS[0]), config=config) as server:
        client = redis.Redis.from_url(server.url)
        yield client, f"localhost:{port}?ssl_ca_certs={authority.ca}"
        client.close()


def test_executors_find_address_user_and_authority_in_a_file(
    spark: SparkSession, tmp_path: Path, queue_name: str
) -> None:
    """TLS, and a user that may use this queue and no other."""
    rules = [f"~{{chasqui:{queue_name}}}:*", "+@all", "-@admin"]
    said = {"secretFile": str(tmp_path / "secret"), "queue": queue_name}
    with encrypted(Authority(tmp_path)) as (client, place):
        client.execute_command("ACL", "SETUSER", "app", "on", f">{PASSWORD}", *rules)
        (tmp_path / "secret").write_text(f"rediss://app:{quote(PASSWORD, safe='')}@{place}")
        rows = spark.range(20).selectExpr("id AS payload")
        rows.write.format("chasqui").options(**said).mode("append").save()
        jobs = spark.read.format("chasqui").options(**said).load().select("payload").collect()
        assert client.xlen(f"{{chasqui:{queue_name}}}:stream") == 20
    assert sorted(int(row.payload) for row in jobs) == list(range(20))
