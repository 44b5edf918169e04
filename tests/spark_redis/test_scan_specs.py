"""Repeatable specs: each once, by when they fire next."""

from __future__ import annotations

import pytest

from chasquimq.spark.read import scan
from chasquimq.wire import Keys
from tests.servers import DialectServer
from tests.spark_redis.reading import Reading


def put(server: DialectServer, queue: str, key: bytes, score: float, **fields: bytes) -> None:
    client, keys = server.client(), Keys(queue)
    client.zadd(keys.repeat, {key: score})
    if fields:
        client.hset(keys.spec(key), mapping=fields)


@pytest.mark.parametrize("fetch_size", [1, 7, 5000])
def test_specs_and_what_lies_beside_them(
    dialect_server: DialectServer, queue_name: str, fetch_size: int
) -> None:
    for n in range(30):
        put(dialect_server, queue_name, b"spec %d" % n, n % 3, spec=b"%d" % n, fired=b"7")
    put(dialect_server, queue_name, b"no hash", 1)
    put(dialect_server, queue_name, b"no spec", 1, other=b"x")
    reading = Reading(dialect_server, queue_name, view="repeatables", fetchSize=fetch_size)
    [part] = reading.parts()
    assert all(0 < len(page) <= fetch_size for page in reading.pages(part))
    found = {key: rest for key, *rest in reading.rows()}
    assert len(found) == 32
    assert found[b"spec 11"] == [b"2", [b"11", None, b"7", None]]
    assert found[b"no hash"] == [b"1", [None, None, None, None]]
    assert found[b"no spec"] == [b"1", [None, None, None, None]]


def test_one_that_fires_meanwhile_comes_once(
    dialect_server: DialectServer, queue_name: str
) -> None:
    for n in range(30):
        put(dialect_server, queue_name, b"spec %02d" % n, n, spec=b"%d" % n)
    reading = Reading(dialect_server, queue_name, view="repeatables", fetchSize=10)
    [part] = reading.parts()
    found: list[bytes] = []
    for page in reading.pages(part):
        found += [row[0] for row in page]
        put(dialect_server, queue_name, page[0][0], 1000)
        put(dialect_server, queue_name, page[-1][0], 1001)
    assert sorted(found) == [b"spec %02d" % n for n in range(30)]


def test_pages_are_bounded_by_bytes(
    dialect_server: DialectServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "SCRIPT_BYTES", 250_000)
    for n in range(7):
        put(dialect_server, queue_name, b"%d" % n, n, spec=b"x" * 100_000)
    reading = Reading(dialect_server, queue_name, view="repeatables")
    [part] = reading.parts()
    assert [len(page) for page in reading.pages(part)] == [3, 3, 1]


def test_no_specs(dialect_server: DialectServer, queue_name: str) -> None:
    assert Reading(dialect_server, queue_name, view="repeatables").rows() == []
