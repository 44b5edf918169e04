"""idColumn: whoever brings a row, in whatever order and however often, it comes in once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType, StringType

from chasquimq import Queue
from chasquimq.errors import StoreError
from chasquimq.spark.write.way import Written
from tests.servers import DialectServer
from tests.spark_redis.writing import Row, Shelf, Writing, batches, numbered
from tests.sync.counter import eventually

HOUR_MS = 3_600_000


@pytest.fixture
def shelf(dialect_server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(dialect_server.client(), queue_name)


@pytest.fixture
def writing(dialect_server: DialectServer, queue_name: str) -> Writing:
    return start(dialect_server, queue_name)


def start(server: DialectServer, queue: str, **given: Any) -> Writing:
    columns: dict[str, DataType] = given.pop("columns", {})
    return Writing(server.url, queue, {"key": StringType(), **columns}, idColumn="key", **given)


def keyed(numbers: Sequence[int] | range, **columns: Any) -> list[Row]:
    return [numbered([number], key=f"order-{number}", **columns)[0] for number in numbers]


def shuffled(count: int, seed: int) -> list[Row]:
    rows = keyed(range(count))
    random.Random(seed).shuffle(rows)
    return rows


def test_rows_come_in_under_their_own_ids(writing: Writing, shelf: Shelf) -> None:
    told = writing.task(keyed(range(95)))
    assert told == Written(0, 0, 95, told.chunks)
    assert shelf.numbers() == list(range(95))
    assert [job.envelope.id for job in shelf.jobs()] == [f"order-{number}" for number in range(95)]
    writing.commit(told)
    run = shelf.run(writing.run)
    assert (run["state"], run["rows"], run["skipped"]) == ("done", "95", "0")
    assert told.chunks[1] == 10 and told.chunks[0] not in run


def test_a_commit_notices_that_a_server_knows_less_than_was_answered(
    writing: Writing, shelf: Shelf
) -> None:
    """As one does that took over from another: its last chunk is gone, with all it did."""
    rows = keyed(range(30))
    told = writing.task(rows)
    for entry_id, _ in shelf.client.xrevrange(shelf.keys.stream, count=10):
        shelf.client.xdel(shelf.keys.stream, entry_id)
    for row in rows[20:]:
        shelf.client.delete(shelf.keys.tag + f"spark:id:{row['key']}".encode())
    shelf.client.hincrby(writing.run.key, told.chunks[0], -1)
    shelf.client.hincrby(writing.run.key, "rows", -10)
    with pytest.raises(StoreError, match="brought 3 chunks, and Redis has counted 2"):
        writing.commit(told)
    again = writing.again()
    again.commit(again.task(rows))
    assert shelf.numbers() == list(range(30))


def test_another_run_adds_what_is_new(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    first = start(dialect_server, queue_name)
    first.commit(first.task(keyed(range(50))))
    second = start(dialect_server, queue_name)
    told = [second.task(list(reversed(keyed(range(part, 80, 3)))), part) for part in range(3)]
    second.commit(*told)
    assert sorted(shelf.numbers()) == list(range(80))
    run = shelf.run(second.run)
    assert (run["rows"], run["skipped"]) == ("30", "50")


def test_of_rows_with_one_id_the_first_wins(writing: Writing, shelf: Shelf) -> None:
    rows = keyed(range(30))
    rows += [row | {"payload": {"n": -1, "text": "a later one"}} for row in keyed(range(25))]
    rows[5:5] = [rows[3] | {"payload": {"n": -2, "text": "in the same chunk"}}]
    told = writing.task(rows)
    writing.commit(told)
    assert shelf.numbers() == list(range(30))
    run = shelf.run(writing.run)
    assert (run["rows"], run["skipped"]) == ("30", "26")


def test_whole_numbers_are_ids(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    writing = start(dialect_server, queue_name, columns={"key": LongType()})
    writing.task([numbered([n], key=n % 3)[0] for n in range(9)])
    assert [job.envelope.id for job in shelf.jobs()] == ["0", "1", "2"]


# -- attempts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_attempts_in_another_order_and_other_partitions_add_the_rest(
    writing: Writing, shelf: Shelf, seed: int
) -> None:
    dice = random.Random(seed)
    for attempt in range(4):
        rows = shuffled(200, dice.randrange(10**6))

        def breaking(
            rows: list[Row] = rows, after: int = dice.randrange(200)
        ) -> Iterator[pa.RecordBatch]:
            yield from batches(writing.schema, rows[:after], 7)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            writing.feed(breaking(), dice.randrange(9), attempt)
    rows = shuffled(200, seed)
    told = [writing.task(rows[part::3], part) for part in range(3)]
    writing.commit(*told)
    assert sorted(shelf.numbers()) == list(range(200))
    run = shelf.run(writing.run)
    assert (run["rows"], run["skipped"]) == ("200", "0")


def test_tasks_that_race_add_each_row_once(writing: Writing, shelf: Shelf) -> None:
    ready = threading.Barrier(3)

    def racing(seed: int) -> Written:
        ready.wait(20)
        return writing.task(shuffled(400, seed), seed, size=7)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(racing, range(3)))
    assert sorted(shelf.numbers()) == list(range(400))
    assert shelf.run(writing.run)["rows"] == "400"


def test_an_attempt_that_goes_on_after_the_commit_adds_nothing(
    writing: Writing, shelf: Shelf
) -> None:
    def late() -> Iterator[pa.RecordBatch]:
        yield from batches(writing.schema, keyed(range(20)))
        writing.commit(writing.task(keyed(range(40)), attempt=1))
        yield from batches(writing.schema, keyed(range(500, 600)))

    writing.feed(late())
    assert sorted(shelf.numbers()) == list(range(40))
    assert writing.task(keyed(range(900, 905)), 3).rows is None


def test_a_run_that_vanished_is_noticed(writing: Writing, shelf: Shelf) -> None:
    def forgotten() -> Iterator[pa.RecordBatch]:
        yield from batches(writing.schema, keyed(range(20)))
        shelf.client.delete(writing.run.key)
        yield from batches(writing.schema, keyed(range(20, 300)))

    with pytest.raises(StoreError, match="of the whole run, is gone"):
        writing.feed(forgotten())
    writing.commit(writing.task(keyed(range(300)), attempt=1))
    assert sorted(shelf.numbers()) == list(range(300))


def test_a_run_again_is_a_no_op(writing: Writing, shelf: Shelf) -> None:
    writing.commit(writing.task(keyed(range(20))))
    again = writing.again()
    again.commit(again.task(keyed(range(40))))
    assert shelf.numbers() == list(range(20))
    assert shelf.run(writing.run)["rows"] == "20"


# -- markers ---------------------------------------------------------------------------------------


def test_a_marker_lives_as_long_as_it_shall(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    start(dialect_server, queue_name, markerTtlMs=HOUR_MS).task(keyed([1]))
    marker = shelf.keys.tag + b"spark:id:order-1"
    assert 0 < int(shelf.client.pttl(marker)) <= HOUR_MS


def test_a_marker_that_is_over_lets_the_row_in_again(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    start(dialect_server, queue_name, markerTtlMs=1_000).task(keyed([1]))
    eventually(lambda: not shelf.client.exists(shelf.keys.tag + b"spark:id:order-1"))
    start(dialect_server, queue_name).task(keyed([1]))
    assert shelf.numbers() == [1, 1]


def test_markers_of_one_queue_are_not_those_of_another(
    dialect_server: DialectServer, queue_name: str
) -> None:
    for queue in (queue_name, f"{queue_name}-other"):
        start(dialect_server, queue).task(keyed(range(3)))
        assert Shelf(dialect_server.client(), queue).numbers() == [0, 1, 2]


def test_a_key_of_a_wrong_type_leaves_no_half_chunk(writing: Writing, shelf: Shelf) -> None:
    shelf.client.set(shelf.keys.delayed, "no set")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        writing.task(keyed(range(5)))
    assert shelf.jobs() == []
    shelf.client.delete(shelf.keys.delayed)
    writing.task(keyed(range(5)), attempt=1)
    assert shelf.numbers() == list(range(5))


# -- delayed ---------------------------------------------------------------------------------------


async def test_delayed_rows_come_in_once_and_can_be_cancelled(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    writing = start(dialect_server, queue_name, columns={"delay_ms": LongType()})
    rows = keyed(range(40), delay_ms=HOUR_MS)
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        told = writing.task(rows, seed)
    writing.commit(told)
    assert sorted(job.payload["n"] for job in shelf.delayed()) == list(range(40))
    async with Queue(queue_name, redis_url=dialect_server.url) as queue:
        assert await queue.cancel_delayed("order-7")
        assert await queue.reschedule("order-8", delay_ms=2 * HOUR_MS)
    again = start(dialect_server, queue_name, columns={"delay_ms": LongType()})
    again.commit(again.task(rows))
    left = sorted(job.payload["n"] for job in shelf.delayed())
    assert left == [number for number in range(40) if number != 7]  # cancelled stays cancelled
    assert shelf.run(again.run)["skipped"] == "40"


async def test_a_job_of_this_id_that_a_queue_scheduled_is_not_doubled(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    async with Queue(queue_name, redis_url=dialect_server.url) as queue:
        await queue.add("", {"n": -1}, delay_ms=HOUR_MS, job_id="order-1")
    writing = start(dialect_server, queue_name, columns={"delay_ms": LongType()})
    writing.commit(writing.task(keyed(range(3), delay_ms=HOUR_MS)))
    assert sorted(job.payload["n"] for job in shelf.delayed()) == [-1, 0, 2]
    run = shelf.run(writing.run)
    assert (run["rows"], run["skipped"]) == ("2", "1")
