"""Results: found by their keys, whatever the queue is called and whatever else lies there."""

from __future__ import annotations

import pytest

from chasquimq.spark.read import result
from chasquimq.wire import Keys
from tests.servers import DialectServer
from tests.spark_redis.reading import Reading

NAMES = ["*", "?", "[a-z]", "[^x]", "back\\slash", "\\*", "ein ß", "a-b^c]"]


def results(server: DialectServer, queue: str, **options: object) -> dict[bytes, tuple[bytes, int]]:
    rows = Reading(server, queue, view="results", **options).rows()
    found = {job_id: (value, ttl) for job_id, value, ttl in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("fetch_size", [1, 7, 5000])
def test_values_and_how_long_they_live(
    dialect_server: DialectServer, queue_name: str, fetch_size: int
) -> None:
    client, keys = dialect_server.client(), Keys(queue_name)
    for n in range(40):
        client.set(keys.result(f"job:{n}"), b"%d" % n, px=60_000 if n % 2 else None)
    found = results(dialect_server, queue_name, fetchSize=fetch_size)
    assert {job_id: value for job_id, (value, _) in found.items()} == {
        b"job:%d" % n: b"%d" % n for n in range(40)
    }
    assert all(0 < ttl <= 60_000 if int(value) % 2 else ttl == -1 for value, ttl in found.values())


@pytest.mark.parametrize("odd", NAMES)
def test_a_queue_of_any_name(dialect_server: DialectServer, queue_name: str, odd: str) -> None:
    """Characters that mean something in patterns mean themselves."""
    client, queue = dialect_server.client(), f"{queue_name}{odd}"
    client.set(Keys(queue).result("mine"), b"1")
    for other in (f"{queue_name}x", f"{queue_name}xx", f"{queue_name}b", f"{queue_name}\\x"):
        client.set(Keys(other).result("theirs"), b"2")
    assert results(dialect_server, queue) == {b"mine": (b"1", -1)}


def test_what_is_no_result(dialect_server: DialectServer, queue_name: str) -> None:
    client, keys = dialect_server.client(), Keys(queue_name)
    client.set(keys.result("good"), b"1")
    client.set(keys.result(""), b"no id")
    client.set(keys.result("empty"), b"")
    client.rpush(keys.result("a list"), b"1")
    client.hset(keys.result("a hash"), mapping={"a": "b"})
    client.set(keys.unique("good"), b"2")
    client.set(keys.tag + b"results:x", b"3")
    assert results(dialect_server, queue_name) == {
        b"good": (b"1", -1),
        b"": (b"no id", -1),
        b"empty": (b"", -1),
    }


def test_what_expires_meanwhile_is_left_out(
    dialect_server: DialectServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, keys = dialect_server.client(), Keys(queue_name)
    for n in range(6):
        client.set(keys.result(f"{n}"), b"v" * 1000)
    monkeypatch.setattr(result, "PAGE_BYTES", 2_000)
    reading = Reading(dialect_server, queue_name, view="results")
    [part] = reading.parts()
    found: list[bytes] = []
    for number, page in enumerate(reading.pages(part)):
        found += [job_id for job_id, _, _ in page]
        assert len(page) <= 2
        if number == 0:  # the others are known by now, not fetched
            client.delete(*(keys.result(f"{n}") for n in range(6)))
    assert len(found) == 2


def test_more_than_one_step_of_the_walk(dialect_server: DialectServer, queue_name: str) -> None:
    client, keys = dialect_server.client(), Keys(queue_name)
    with client.pipeline(transaction=False) as pipe:
        for n in range(2_500):
            pipe.set(keys.result(f"{n}"), b"%d" % n)
            pipe.set(f"{queue_name}:another key {n}", b"x", px=60_000)
        pipe.execute()
    found = results(dialect_server, queue_name)
    assert {job_id: value for job_id, (value, _) in found.items()} == {
        b"%d" % n: b"%d" % n for n in range(2_500)
    }
