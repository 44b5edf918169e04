"""Runs that nobody finished are found, completed, cleared away or given up, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from chasquimq.errors import QueueFullError, StoreError
from chasquimq.spark.client import Client
from chasquimq.spark.write import recover
from chasquimq.spark.write import run as runs
from chasquimq.spark.write.run import Run, run_of_batch
from tests.servers import DialectServer
from tests.spark_redis.staging import Shelf, Write


@pytest.fixture
def shelf(dialect_server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(dialect_server.client(), queue_name)


@pytest.fixture
def client(dialect_server: DialectServer) -> Iterator[Client]:
    where = Write(dialect_server.url, "any").options.where
    with Client(where.address(), recover.SCRIPTS) as client:
        yield client


def half_way(url: str, queue: str, run_id: str = "half", run: Run | None = None) -> Write:
    """100 rows are promised, 40 are in."""
    write = Write(url, queue, run_id, run=run, max_stream_len=40, on_full="fail")
    with suppress(QueueFullError):
        write.commit(write.stage(0, range(50)), write.stage(1, range(50, 100)))
    return write


def test_what_is_not_finished_is_found(
    dialect_server: DialectServer, queue_name: str, client: Client
) -> None:
    url = dialect_server.url
    half_way(url, queue_name)
    write = Write(url, queue_name, "staging", marker_ttl_ms=60_000)
    write.stage(0, range(7))
    write.stage(0, range(5), attempt=1)
    done = Write(url, queue_name, "done", max_stream_len=1_000)
    done.commit(done.stage(0, []))
    runs.begin(client, Run(queue_name, "direct"), "direct", 0, 60_000)
    batch = Write(url, queue_name, run=run_of_batch(queue_name, "query", 0), max_stream_len=1_000)
    batch.commit(batch.stage(0, []))
    found = {one.run.run_id: one for one in recover.unfinished(client, queue_name)}
    told = {
        name: (one.state, one.mode, one.rows, one.staged, one.total, one.missing, one.remedy)
        for name, one in found.items()
    }
    assert told == {
        "half": ("moving", "staged", 40, 60, 100, 0, "complete"),
        "staging": ("open", "staged", 0, 12, None, 0, "abort"),
        "direct": ("open", "direct", 0, 0, None, 0, "rerun"),
    }
    assert found["half"].expires_ms is None
    assert 0 < (found["staging"].expires_ms or 0) <= 60_000


def test_queues_whose_names_look_like_patterns_are_kept_apart(
    dialect_server: DialectServer, queue_name: str, client: Client
) -> None:
    names = [f"{queue_name}{tail}" for tail in ("", "*", "?", "[ab]", "a", "\\", "^-")]
    for name in names:
        Write(dialect_server.url, name, "run").stage(0, [1])
    for name in names:
        assert [one.run for one in recover.unfinished(client, name)] == [Run(name, "run")]


def test_what_is_promised_comes_in(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, client: Client
) -> None:
    run = run_of_batch(queue_name, "query", 5)
    half_way(dialect_server.url, queue_name, run=run)
    [one] = recover.unfinished(client, queue_name)
    with pytest.raises(QueueFullError, match="CHASQUI_QUEUE_FULL"):
        recover.carry_out(client, one, "complete")  # as full as the writer wanted it, no fuller
    told: list[int] = []
    assert (
        recover.carry_out(
            client, one, "complete", max_stream_len=100, tell=lambda rows, full: told.append(rows)
        )
        == 100
    )
    assert shelf.payloads() == list(range(100))
    assert sum(told) == 60
    assert (recover.unfinished(client, queue_name), shelf.left()) == ([], set())
    assert shelf.client.hget(run.queries, "query") == b"5"  # a stream will skip it


def test_what_nobody_saw_goes(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, client: Client
) -> None:
    write = Write(dialect_server.url, queue_name)
    stage = write.stage(0, range(30))
    write.stage(0, range(12), attempt=1)
    [one] = recover.unfinished(client, queue_name)
    assert recover.carry_out(client, one, "abort") == 42
    assert (shelf.left(), shelf.run(write.run), shelf.payloads()) == (set(), {}, [])
    with pytest.raises(StoreError, match="aborted meanwhile"):
        write.commit(stage)  # its driver was alive after all: it hears of it, and can try again
    assert shelf.payloads() == []


def test_a_manifest_that_came_meanwhile_is_left_alone(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, client: Client
) -> None:
    write = Write(dialect_server.url, queue_name, max_stream_len=40, on_full="fail")
    stage = write.stage(0, range(50))
    [one] = recover.unfinished(client, queue_name)
    with suppress(QueueFullError):
        write.commit(stage)
    with pytest.raises(StoreError, match="manifest meanwhile"):
        recover.carry_out(client, one, "abort")
    [one] = recover.unfinished(client, queue_name)
    assert recover.carry_out(client, one, "complete", max_stream_len=50) == 50
    assert shelf.payloads() == list(range(50))


def test_what_is_given_up_counts_as_done(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, client: Client
) -> None:
    write = half_way(dialect_server.url, queue_name)
    shelf.client.delete(write.run.stages)  # which expires
    [one] = recover.unfinished(client, queue_name)
    assert recover.carry_out(client, one, "give up") == 60
    assert (recover.unfinished(client, queue_name), shelf.left()) == ([], set())
    again = Write(dialect_server.url, queue_name, "half")
    again.commit(again.stage(0, range(100)))
    assert shelf.payloads() == list(range(40))


def test_promised_rows_that_are_gone_are_told(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, client: Client
) -> None:
    """By an eviction, or by somebody who deletes keys."""
    write = half_way(dialect_server.url, queue_name)
    stage = shelf.client.lindex(write.run.manifest, 1)
    shelf.client.delete(stage)  # type: ignore[arg-type]
    [one] = recover.unfinished(client, queue_name)
    assert (one.missing, one.remedy) == (50, "give up")
    with pytest.raises(StoreError, match=r"has moved 50 of the 100 rows.*--give-up"):
        recover.carry_out(client, one, "complete", max_stream_len=1_000)
    again = Write(dialect_server.url, queue_name, "half")
    with pytest.raises(StoreError, match="are gone"):
        again.commit(again.stage(0, range(100)))
    assert shelf.payloads() == list(range(50))
    [one] = recover.unfinished(client, queue_name)
    assert recover.carry_out(client, one, "give up") == 0
    assert recover.unfinished(client, queue_name) == []
    again.commit(again.stage(0, range(100)))
    assert shelf.payloads() == list(range(50))
