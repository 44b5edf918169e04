"""What the server forgets or mixes up is noticed, and brings no row in twice."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType

from chasquimq.errors import StoreError
from tests.servers import DialectServer
from tests.spark_redis.writing import Shelf, Writing, batches, numbered


@pytest.fixture
def shelf(dialect_server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(dialect_server.client(), queue_name)


@pytest.fixture
def writing(dialect_server: DialectServer, queue_name: str) -> Writing:
    """Chunks of ten rows."""
    return Writing(dialect_server.url, queue_name)


def test_a_server_that_lost_everything_is_noticed_by_the_task(
    writing: Writing, shelf: Shelf
) -> None:
    def forgotten() -> Iterator[pa.RecordBatch]:
        yield from batches(writing.schema, numbered(range(30)))
        shelf.client.delete(writing.run.key, writing.run.marker(0), shelf.keys.stream)
        yield from batches(writing.schema, numbered(range(30, 200)))

    with pytest.raises(StoreError, match=r"lost its data .*or markerTtlMs"):
        writing.feed(forgotten())
    writing.commit(writing.task(numbered(range(200)), attempt=1))
    assert shelf.numbers() == list(range(200))


def test_a_run_that_is_gone_before_its_first_row_is_noticed(writing: Writing, shelf: Shelf) -> None:
    """Another attempt would begin it anew, at another time: with other bytes in its rows."""

    def forgotten() -> Iterator[pa.RecordBatch]:
        shelf.client.delete(writing.run.key)
        yield from batches(writing.schema, numbered(range(30)))

    with pytest.raises(StoreError, match="of the whole run, is gone"):
        writing.feed(forgotten())
    assert shelf.jobs() == []


def test_a_server_that_lost_a_partition_is_noticed_by_the_commit(
    writing: Writing, shelf: Shelf
) -> None:
    first = writing.task(numbered(range(30)), 0)
    shelf.client.delete(writing.run.key, writing.run.marker(0), shelf.keys.stream)
    second = writing.task(numbered(range(30, 60)), 1)
    with pytest.raises(
        StoreError, match=r"brought 60 rows, and Redis has counted 30.*lost its data"
    ):
        writing.commit(first, second)


def test_a_marker_that_is_over_does_not_let_its_rows_in_again(
    writing: Writing, shelf: Shelf
) -> None:
    """Other partitions keep the run alive."""
    writing.task(numbered(range(30)))
    shelf.client.delete(writing.run.marker(0))
    with pytest.raises(StoreError, match=r"markerTtlMs \(86400000\) is over"):
        writing.task(numbered(range(30)), attempt=1)
    assert shelf.numbers() == list(range(30))


@pytest.mark.parametrize("which", ["stream", "delayed", "run", "marker"])
def test_a_key_of_a_wrong_type_leaves_no_half_chunk(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, which: str
) -> None:
    writing = Writing(dialect_server.url, queue_name, {"delay_ms": LongType()})
    keys = {
        "stream": shelf.keys.stream,
        "delayed": shelf.keys.delayed,
        "run": writing.run.key,
        "marker": writing.run.marker(0),
    }
    shelf.client.sadd(keys[which], "x")
    rows = numbered(range(5), delay_ms=None) + numbered(range(5, 10), delay_ms=60_000)
    with pytest.raises(StoreError, match="WRONGTYPE"):
        writing.task(rows)
    shelf.client.delete(keys[which])
    assert shelf.jobs() == shelf.delayed() == []
    writing.commit(writing.task(rows, attempt=1))
    assert shelf.numbers() == list(range(5))
    assert sorted(job.payload["n"] for job in shelf.delayed()) == list(range(5, 10))
