"""A password that is given by name is seen nowhere, and works over TLS and with an ACL user."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args
from urllib.parse import quote

import pytest
import redis
from pyspark.sql import SparkSession

from chasquimq.server import Server
from chasquimq.spark import right
from chasquimq.spark.options import View
from chasquimq.wire import Keys
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
    assert seen["rows"] == "40" and seen["streamed"] == "TrueNone"
    assert "WRONGPASS" in seen["read WRONG"] and "WRONGPASS" in seen["write WRONG"]
    assert "NOPERM" in seen["read WEAK"]
    assert "GONE, which is not set on" in seen["read GONE"]
    texts = {**seen, "stdout": "", "stderr": ended.err}
    for path in folder.rglob("*"):  # the log of events, the checkpoint, what Spark spilled
        if path.is_file():
            texts[str(path)] = path.read_text(errors="replace")
    assert any("SparkListenerSQLExecutionStart" in text for text in texts.values())
    assert any("checkpoint/offsets" in name for name in texts)
    leaks = [name for name, text in texts.items() if any(secret in text for secret in SECRETS)]
    assert leaks == []


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


def test_users_with_just_the_rights_they_need_over_tls(
    spark: SparkSession, tmp_path: Path, queue_name: str
) -> None:
    """Executors find address, authority and password in a file; what is listed is enough."""
    keys = Keys(queue_name)
    rights = {
        "reader": [name for name, _ in right.reading(keys)],
        "writer": [*(name for name, _ in right.writing(keys)), *right.ASKED],
    }
    said = {user: {"secretFile": str(tmp_path / user), "queue": queue_name} for user in rights}
    with encrypted(Authority(tmp_path)) as (client, place):
        for user, names in rights.items():
            (tmp_path / user).write_text(f"rediss://{user}:{quote(PASSWORD, safe='')}@{place}")
            rules = [f"~{{chasqui:{queue_name}}}:*", *(f"+{name}" for name in names)]
            client.execute_command("ACL", "SETUSER", user, "on", f">{PASSWORD}", *rules)

        rows = spark.range(20).selectExpr(
            "struct(id) AS payload",
            "string(id) AS id",
            "IF(id < 5, 60000, NULL) AS delay_ms",
        )
        for way in ({}, {"commitMode": "staged"}, {"idColumn": "id"}):
            rows.write.format("chasqui").options(**said["writer"], **way).mode("append").save()
        client.xgroup_create(keys.stream, "default", "0")
        client.xreadgroup("default", "worker", {keys.stream: ">"}, count=3)
        counts = {
            view: spark.read.format("chasqui").options(**said["reader"], view=view).load().count()
            for view in get_args(View)
        }
    assert (counts["jobs"], counts["pending"], counts["delayed"]) == (45, 3, 5)
