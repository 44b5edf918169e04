"""Reading does not look for cycles in rows, and leaves the collector as it was."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from chasquimq.spark.read.batch import BatchReader
from chasquimq.spark.read.collector import MOST_OBJECTS, seldom
from chasquimq.spark.read.stream import StreamReader
from tests.servers import DIALECTS, Servers
from tests.spark_redis.reading import Reading
from tests.spark_redis.test_scan_entries import fill, key_of

SCHEMA = StructType([StructField("entry_id", StringType())])


@pytest.mark.parametrize("reader", [BatchReader, StreamReader])
def test_a_read_collects_nothing(servers: Servers, queue_name: str, reader: Any) -> None:
    server = servers.shared(DIALECTS[0])
    fill(server, key_of(queue_name, "events"), [b"x"] * 10_000)
    reading = Reading(server, queue_name, view="events")
    [part] = reading.parts()
    collected: list[str] = []
    before = gc.get_threshold()
    rows = reader(SCHEMA, reading.options).read(part)
    next(rows)
    gc.callbacks.append(lambda phase, _: collected.append(phase))
    assert sum(batch.num_rows for batch in rows) > 4_000
    gc.callbacks.pop()
    assert collected.count("start") <= 1  # when the read is over
    assert gc.get_threshold() == before


def test_a_read_that_is_given_up_leaves_the_collector_as_it_was() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="given up"), seldom():
        raise ValueError("given up")
    assert gc.get_threshold() == before


def test_what_leaks_is_collected_all_the_same() -> None:
    class Leak:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Leak.alive += 1

        def __del__(self) -> None:
            Leak.alive -= 1

    with seldom():
        for _ in range(MOST_OBJECTS):
            Leak()
    assert Leak.alive < MOST_OBJECTS
    gc.collect()
