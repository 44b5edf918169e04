"""Pending entries with their bodies: each once, as they are when they are read."""

from __future__ import annotations

import pytest

from chasquimq.spark.place import LAST_SEQ
from chasquimq.spark.read import scan
from chasquimq.spark.read.part import Part
from tests.servers import DialectServer
from tests.spark_redis.reading import Reading
from tests.spark_redis.test_scan_entries import fill, key_of


def deliver(server: DialectServer, queue: str, count: int, group: str = "default") -> None:
    client, key = server.client(), key_of(queue)
    client.xgroup_create(key, group, id="0", mkstream=True)
    for consumer, some in (("ann", count // 2), ("bob", count - count // 2)):
        if some:
            client.xreadgroup(group, consumer, {key: ">"}, count=some)


@pytest.mark.parametrize("fetch_size", [1, 7, 5000])
def test_what_was_delivered_and_is_not_done(
    dialect_server: DialectServer, queue_name: str, fetch_size: int
) -> None:
    bodies = [b"%d" % n for n in range(60)]
    ids = fill(dialect_server, key_of(queue_name), bodies)
    deliver(dialect_server, queue_name, 40)
    dialect_server.client().xack(key_of(queue_name), "default", ids[3])
    reading = Reading(dialect_server, queue_name, view="pending", fetchSize=fetch_size)
    rows = reading.rows()
    expected = [*range(3), *range(4, 40)]
    assert [row[0].decode() for row in rows] == [ids[at] for at in expected]
    assert [row[1] for row in rows] == [b"ann" if at < 20 else b"bob" for at in expected]
    assert all(row[2] >= 0 and row[3] == 1 for row in rows)
    assert [row[4] for row in rows] == [[b"d", bodies[at]] for at in expected]
    [part] = reading.parts()
    assert all(len(page) <= fetch_size for page in reading.pages(part))


def test_a_delivery_whose_entry_is_gone(dialect_server: DialectServer, queue_name: str) -> None:
    ids = fill(dialect_server, key_of(queue_name), [b"x"] * 3)
    deliver(dialect_server, queue_name, 3)
    dialect_server.client().xdel(key_of(queue_name), ids[1])
    rows = Reading(dialect_server, queue_name, view="pending").rows()
    assert [row[4] for row in rows] == [[b"d", b"x"], None, [b"d", b"x"]]


def test_of_another_group(dialect_server: DialectServer, queue_name: str) -> None:
    fill(dialect_server, key_of(queue_name), [b"x"] * 5)
    deliver(dialect_server, queue_name, 2)
    deliver(dialect_server, queue_name, 4, "audit")
    assert len(Reading(dialect_server, queue_name, view="pending").rows()) == 2
    assert len(Reading(dialect_server, queue_name, view="pending", group="audit").rows()) == 4


def test_no_group_no_stream_nothing_pending(dialect_server: DialectServer, queue_name: str) -> None:
    reading = Reading(dialect_server, queue_name, view="pending")
    part = Part(queue_name, "0-0", "9-0")
    assert reading.parts() == []
    assert reading.rows_of(part) == []
    fill(dialect_server, key_of(queue_name), [b"x"])
    assert reading.parts() == []
    assert reading.rows_of(part) == []
    deliver(dialect_server, queue_name, 1, "default")
    dialect_server.client().xack(key_of(queue_name), "default", "1-0")
    assert reading.parts() == []
    assert reading.rows_of(part) == []


def test_while_some_are_done_and_others_are_delivered(
    dialect_server: DialectServer, queue_name: str
) -> None:
    key, client = key_of(queue_name), dialect_server.client()
    ids = fill(dialect_server, key, [b"x"] * 80)
    deliver(dialect_server, queue_name, 60)
    reading = Reading(dialect_server, queue_name, view="pending", fetchSize=10)
    [part] = reading.parts()
    found: list[str] = []
    done: set[str] = set()
    for page in reading.pages(part):
        found += [row[0].decode() for row in page]
        at = len(found)
        done |= {ids[at - 1], ids[min(at + 15, 59)]}
        client.xack(key, "default", ids[at - 1], ids[min(at + 15, 59)])
        client.xreadgroup("default", "carl", {key: ">"}, count=2)
    assert len(found) == len(set(found))
    assert set(ids[:60]) - done <= set(found) <= set(ids[:60])


def test_pages_are_bounded_by_bytes(
    dialect_server: DialectServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "SCRIPT_BYTES", 250_000)
    fill(dialect_server, key_of(queue_name), [b"x" * 100_000] * 20)
    deliver(dialect_server, queue_name, 20)
    reading = Reading(dialect_server, queue_name, view="pending")
    [part] = reading.parts()
    assert [len(page) for page in reading.pages(part)] == [3] * 6 + [2]


def test_parts_by_ranges_of_entries(dialect_server: DialectServer, queue_name: str) -> None:
    ids = fill(dialect_server, key_of(queue_name), [b"x"] * 400)
    deliver(dialect_server, queue_name, 300)
    reading = Reading(dialect_server, queue_name, view="pending", minPartitions=3)
    parts = reading.parts()
    sizes = [len(reading.rows_of(part)) for part in parts]
    assert len(parts) == 3
    assert reading.ids() == ids[:300]
    assert max(sizes) < 200


def test_the_last_possible_entry(dialect_server: DialectServer, queue_name: str) -> None:
    client, last = dialect_server.client(), f"{LAST_SEQ}-{LAST_SEQ}"
    ids = ["1-0", f"{LAST_SEQ}-{LAST_SEQ - 1}", last]
    for one in ids:
        client.xadd(key_of(queue_name), {"d": b"x"}, id=one)
    deliver(dialect_server, queue_name, 3)
    for fetch_size in (1, 2, 3, 4):
        reading = Reading(dialect_server, queue_name, view="pending", fetchSize=fetch_size)
        assert [row[0].decode() for row in reading.rows()] == ids
