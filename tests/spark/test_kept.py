"""Checkpoints and lakes of earlier versions: queries go on from them, and readers see the same.

`make freeze` does not touch these fixtures: see tests/spark/kept.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from chasquimq.spark.lake.compact import CompactOptions, compact
from chasquimq.spark.lake.table import read
from tests.servers import DialectServer, Servers
from tests.spark.kept import (
    BATCHES,
    FIXTURES,
    QUEUES,
    SOURCE,
    TARGET,
    WAYS,
    Row,
    add,
    bring_in,
    carry_over,
    follow,
    forget,
    rows,
    told,
)
from tests.spark.session import NATIVE
from tests.spark_redis.writing import Shelf

KEPT = BATCHES[-1][1]  # the last entry that was there when they were recorded
NEW = (KEPT + 1, KEPT + 3)


@pytest.fixture
def server(servers: Servers) -> Iterator[DialectServer]:
    """One kind: a checkpoint says the same of all. The queues have fixed names."""
    server = servers.shared(NATIVE)
    forget(server.client(), *QUEUES, SOURCE, TARGET)
    yield server
    forget(server.client(), *QUEUES, SOURCE, TARGET)


@pytest.fixture
def client(server: DialectServer) -> redis.Redis:
    return server.client()


def checkpoint(tmp_path: Path, name: str, planned: int, done: int) -> Path:
    """A copy of a recorded checkpoint in which `done` of `planned` batches are committed."""
    copy = tmp_path / "checkpoint"
    shutil.copytree(FIXTURES / "checkpoints" / name, copy)
    for folder, many in (("offsets", planned), ("commits", done)):
        for number in range(many, len(BATCHES)):
            (copy / folder / str(number)).unlink()
    return copy


# -- sources ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("planned", "done"),
    [(3, 3), (3, 2), (1, 0)],
    ids=["all-done", "in-a-batch", "in-the-first-batch"],
)
@pytest.mark.parametrize("view", ["events", "dlq"])
def test_a_query_goes_on_from_its_checkpoint(
    spark: SparkSession,
    server: DialectServer,
    client: redis.Redis,
    tmp_path: Path,
    view: str,
    planned: int,
    done: int,
) -> None:
    """A batch that was planned is run again as it was; then comes what is new, and no row twice."""
    where = checkpoint(tmp_path, view, planned, done)
    add(client, view, 1, NEW[1], *QUEUES)
    again = [rows(*batch, *QUEUES) for batch in BATCHES[done:planned]]
    rest = rows(BATCHES[planned - 1][1] + 1, NEW[1], *QUEUES)
    assert follow(spark, server.url, view, where) == [*again, rest]


def test_events_that_were_trimmed_after_they_were_read_are_no_loss(
    spark: SparkSession, server: DialectServer, client: redis.Redis, tmp_path: Path
) -> None:
    """And one more is: the checkpoint counts all that there ever were."""
    add(client, "events", 1, NEW[1], *QUEUES)
    for queue in QUEUES:
        client.xtrim(f"{{chasqui:{queue}}}:events", maxlen=3, approximate=False)
    where = checkpoint(tmp_path, "events", 3, 3)
    assert follow(spark, server.url, "events", where) == [rows(*NEW, *QUEUES)]
    client.xtrim(f"{{chasqui:{QUEUES[0]}}}:events", maxlen=2, approximate=False)
    shutil.rmtree(where)
    with pytest.raises(Exception, match="CHASQUI_DATA_LOSS: 1 events"):
        follow(spark, server.url, "events", checkpoint(tmp_path, "events", 3, 3))


# -- sinks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("came_in", [True, False], ids=["in", "not-in"])
@pytest.mark.parametrize("way", WAYS)
def test_a_write_goes_on_from_its_checkpoint(
    spark: SparkSession,
    server: DialectServer,
    client: redis.Redis,
    tmp_path: Path,
    way: str,
    came_in: bool,
) -> None:
    """Its driver died in the third batch: it had come in whole, as Redis tells, or it had not."""
    where = checkpoint(tmp_path, f"sink-{way}", 3, 2)
    query = json.loads((where / "metadata").read_text())["id"]
    client.hset(f"{{chasqui:{TARGET}}}:spark:queries", query, 2 if came_in else 1)
    add(client, "events", 1, NEW[1], SOURCE)
    carry_over(spark, server.url, where, way)
    first = NEW[0] if came_in else BATCHES[2][0]
    wanted = [entry_id for _, entry_id in rows(first, NEW[1], SOURCE)]
    found = [job.payload["entry_id"] for job in Shelf(client, TARGET).jobs()]
    assert sorted(found) == sorted(wanted)
    assert client.hget(f"{{chasqui:{TARGET}}}:spark:queries", query) == b"3"


# -- the lake --------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "lake", tmp_path / "lake"))


def lines(name: str) -> list[dict[str, Any]]:
    text = (FIXTURES / f"lake-{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_lake_is_read_as_it_was(spark: SparkSession, lake: Path) -> None:
    """Two days; folders that were put together beside those they hold; a second query that brought
    all of it in again; a batch that is half written. Rows and figures are the same."""
    for name, found in told(spark, lake).items():
        assert found == lines(name), name
    assert [(row["queue"], row["entry_id"]) for row in lines("events")] == rows(1, KEPT, *QUEUES)


@pytest.mark.parametrize("table", ["events", "dlq"])
def test_a_lake_takes_in_what_is_new_and_is_compacted(
    spark: SparkSession, server: DialectServer, client: redis.Redis, lake: Path, table: str
) -> None:
    add(client, table, 1, NEW[1], *QUEUES)
    bring_in(spark, server.url, lake, table)
    assert in_lake(spark, lake, table) == rows(1, NEW[1], *QUEUES)
    done = compact(spark, str(lake), CompactOptions(least=2, grace_ms=0))
    assert done.written == len(QUEUES) and done.removed > 0
    assert in_lake(spark, lake, table) == rows(1, NEW[1], *QUEUES)


def in_lake(spark: SparkSession, lake: Path, table: str) -> list[Row]:
    found = read(spark, str(lake), table).select("queue", "entry_id").collect()
    return sorted((row.queue, row.entry_id) for row in found)
