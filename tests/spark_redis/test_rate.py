"""rowsPerSecond: no stretch of time gets more rows than it should, as the server's clock tells.

What is looked at are the ids of entries, which are times of the server: data, not a stopwatch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType

from chasquimq.errors import QueueFullError
from chasquimq.spark.client import Client
from chasquimq.spark.write import recover
from tests.servers import DialectServer
from tests.spark_redis import staging
from tests.spark_redis.writing import Row, Shelf, Writing, batches, numbered

RATE = 400
BURST = RATE // 4
BY_ID: tuple[dict[str, DataType], dict[str, str]] = ({"key": LongType()}, {"idColumn": "key"})
Given = tuple[dict[str, DataType], dict[str, str]]


@pytest.fixture
def shelf(dialect_server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(dialect_server.client(), queue_name)


@pytest.fixture(params=[pytest.param(({}, {}), id="direct"), pytest.param(BY_ID, id="id")])
def given(request: pytest.FixtureRequest) -> Given:
    """Both ways in which tasks write into the queue themselves."""
    way: Given = request.param
    return way


def start(server: DialectServer, queue: str, given: Given = ({}, {}), **options: Any) -> Writing:
    columns, more = given
    chosen = {"rowsPerSecond": RATE, "chunkRows": 250, **more, **options}
    return Writing(server.url, queue, columns, **chosen)


def rows_of(numbers: range) -> list[Row]:
    return [row | {"key": row["payload"]["n"]} for row in numbered(numbers)]


def moments(shelf: Shelf | staging.Shelf) -> list[int]:
    """When each row came in, ms."""
    return [int(entry.split(b"-")[0]) for entry, _ in shelf.client.xrange(shelf.keys.stream)]


def crowded(came: Sequence[int], rate: float, burst: int) -> list[str]:
    """The stretches of time that got more than they should."""
    found = []
    for first, began in enumerate(came):
        for last in range(first, len(came)):
            lasts_ms = came[last] - began + 1  # ids tell no part of a millisecond
            count, most = last - first + 1, rate * lasts_ms / 1000 + burst
            if count > most:
                found.append(f"{count} rows within {lasts_ms} ms, {most:.1f} may")
    return found


def test_what_is_crowded_is_seen() -> None:
    assert not crowded([0, 0, 1_000, 2_000], 1, 2)
    assert crowded([0, 0, 1_000, 1_000], 1, 2) == ["4 rows within 1001 ms, 3.0 may"]


def test_tasks_share_one_rate(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, given: Given
) -> None:
    writing = start(dialect_server, queue_name, given)
    parts = [range(part * 60, part * 60 + 60) for part in range(5)]
    with ThreadPoolExecutor(5) as pool:
        told = list(pool.map(lambda part: writing.task(rows_of(part), part.start // 60), parts))
    writing.commit(*told)
    assert sorted(shelf.numbers()) == list(range(300))
    assert crowded(moments(shelf), RATE, BURST) == []


def test_a_low_rate_is_smooth(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, given: Given
) -> None:
    """One row at a time, not a chunk of many and a long silence."""
    writing = start(dialect_server, queue_name, given, rowsPerSecond=7)
    writing.commit(writing.task(rows_of(range(5))))
    assert sorted(shelf.numbers()) == list(range(5))
    assert crowded(moments(shelf), 7, 1) == []


def test_tasks_that_fail_and_run_again_share_it_too(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, given: Given
) -> None:
    writing = start(dialect_server, queue_name, given)
    parts = [range(part * 100, part * 100 + 100) for part in range(2)]

    def failing(numbers: range) -> Iterator[pa.RecordBatch]:
        yield from batches(writing.schema, rows_of(numbers)[:70])
        raise RuntimeError("the first attempt fails")

    def task(numbers: range) -> Any:
        part = numbers.start // 100
        with pytest.raises(RuntimeError):
            writing.feed(failing(numbers), part)
        return writing.task(rows_of(numbers), part, attempt=1)

    with ThreadPoolExecutor(2) as pool:
        writing.commit(*pool.map(task, parts))
    assert sorted(shelf.numbers()) == list(range(200))
    assert crowded(moments(shelf), RATE, BURST) == []


def test_those_who_come_late_do_not_come_all_at_once(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    """All tasks begin, are held up, and go on in the same moment."""
    writing = start(dialect_server, queue_name, chunkRows=20)
    together = threading.Barrier(8)

    def held_up(part: int) -> Iterator[pa.RecordBatch]:
        rows = rows_of(range(part * 100, part * 100 + 40))
        yield from batches(writing.schema, rows[:20], 20)
        together.wait(60)
        yield from batches(writing.schema, rows[20:], 20)

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda part: writing.feed(held_up(part), part), range(8)))
    writing.commit(*told)
    assert len(shelf.numbers()) == 320
    assert crowded(moments(shelf), RATE, BURST) == []


def paid_until(shelf: Shelf, writing: Writing) -> str | None:
    return shelf.run(writing.run).get("paid_us")


def test_rows_that_are_in_cost_nothing(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, given: Given
) -> None:
    """At this rate none of it could come in again while the test lasts."""
    writing = start(dialect_server, queue_name, given, rowsPerSecond=10_000)
    writing.task(rows_of(range(400)))
    paid = paid_until(shelf, writing)
    slow = writing.again(rowsPerSecond=0.001)
    slow.task(rows_of(range(400)), attempt=1)
    assert (paid_until(shelf, writing), len(shelf.numbers())) == (paid, 400)
    if writing.options.id_column:  # ... by any other run, too
        other = start(dialect_server, queue_name, given, rowsPerSecond=0.001)
        other.task(rows_of(range(400)))
        assert (paid_until(shelf, other), len(shelf.numbers())) == (None, 400)


def test_a_full_queue_is_not_paid_for(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, given: Given
) -> None:
    full = {"maxStreamLen": 4, "onFull": "fail"}
    writing = start(dialect_server, queue_name, given, **full)
    with pytest.raises(QueueFullError):
        writing.task(rows_of(range(6)))
    paid = paid_until(shelf, writing)
    with pytest.raises(QueueFullError):
        writing.task(rows_of(range(6)), attempt=1)
    assert (paid_until(shelf, writing), shelf.numbers()) == (paid, [0, 1, 2, 3])


def test_who_waits_for_its_turn_is_not_forgotten(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    """It waits for longer than markers live."""
    writing = start(dialect_server, queue_name, rowsPerSecond=0.6, markerTtlMs=1_000)
    told = writing.task(rows_of(range(2)))
    writing.commit(told)
    assert shelf.numbers() == [0, 1]
    assert crowded(moments(shelf), 0.6, 1) == []


def test_staged_rows_come_in_at_the_rate(dialect_server: DialectServer, queue_name: str) -> None:
    shelf = staging.Shelf(dialect_server.client(), queue_name)
    write = staging.Write(dialect_server.url, queue_name, rows_per_second=RATE)
    stages = [write.stage(part, range(part * 100, part * 100 + 100)) for part in range(2)]
    write.commit(*stages)
    assert shelf.payloads() == list(range(200))
    assert crowded(moments(shelf), RATE, BURST) == []


def test_whoever_moves_staged_rows_keeps_to_their_rate(
    dialect_server: DialectServer, queue_name: str
) -> None:
    shelf = staging.Shelf(dialect_server.client(), queue_name)
    full = {"max_stream_len": 20, "on_full": "fail"}
    write = staging.Write(dialect_server.url, queue_name, rows_per_second=RATE, **full)
    with pytest.raises(QueueFullError):
        write.commit(write.stage(0, range(200)))
    with Client(write.options.where.address(), recover.SCRIPTS) as client:
        [left] = recover.unfinished(client, queue_name)
        recover.carry_out(client, left, "complete", max_stream_len=1_000)
    assert shelf.payloads() == list(range(200))
    assert crowded(moments(shelf), RATE, BURST) == []
