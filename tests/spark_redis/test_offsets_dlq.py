"""Dead jobs as a stream: best effort. They leave from anywhere, and that is no loss."""

from __future__ import annotations

import pytest

from tests.servers import DialectServer
from tests.spark_redis.events import Events
from tests.spark_redis.follower import Follow

DLQ = {"view": "dlq"}


@pytest.fixture
def dead(dialect_server: DialectServer, queue_name: str) -> Events:
    return Events(dialect_server, queue_name, dlq=True)


def test_dead_jobs_come_once(dead: Events, follow: Follow) -> None:
    rows = dead.add(5)
    query = follow(**DLQ)
    assert query.batch() == rows
    assert query.batch() is None
    assert query.end[dead.queue]["id"] == rows[-1][1]
    assert "n" not in query.end[dead.queue]
    more = dead.add(3)
    assert query.batch() == more
    assert query.batch() is None
    assert dead.rows() == rows + more


def test_those_that_left_before_they_were_read_are_not_seen(dead: Events, follow: Follow) -> None:
    query = follow(**DLQ)
    query.batch()
    rows = dead.add(10)
    dead.remove(rows[0], rows[4], rows[9])
    assert query.batch() == [*rows[1:4], *rows[5:9]]
    dead.remove(*rows[1:4])
    assert query.batch() is None
    rows = dead.add(4)
    query.plan()
    parts = query.parts()
    dead.remove(*rows[:3])
    assert query.read(parts) == rows[3:]


def test_an_emptied_or_deleted_dlq_is_no_loss(dead: Events, follow: Follow) -> None:
    query = follow(**DLQ)
    rows = dead.add(5)
    assert query.all() == rows
    dead.trim(0)
    assert query.all() == []
    dead.delete()
    assert query.all() == []
    rows = dead.add(2)
    assert query.all() == rows


@pytest.mark.parametrize("begin", ["earliest", "latest"])
def test_the_first_batch_begins_where_it_began(begin: str, dead: Events, follow: Follow) -> None:
    before = dead.add(3)
    query = follow(startingOffsets=begin, **DLQ)
    query.plan()
    after = dead.add(3)
    query.crash()
    assert query.all() == (before + after if begin == "earliest" else after)


def test_a_time_to_begin(dead: Events, follow: Follow) -> None:
    dead.add(3, "1000-*")
    rows = dead.add(3, "2000-*")
    assert follow(startingTimestamp=2000, **DLQ).all() == rows


def test_a_limit(dead: Events, follow: Follow, dialect_server: DialectServer) -> None:
    other = Events(dialect_server, f"{dead.queue}-other", dlq=True)
    rows = sorted(dead.add(12) + other.add(4))
    query = follow(f"{dead.queue},{other.queue}", maxOffsetsPerTrigger=4, **DLQ)
    batches = list(query.batches())
    assert [len(batch) for batch in batches] == [4, 4, 4, 4]
    assert sorted(row for batch in batches for row in batch) == rows
    assert all({queue for queue, _ in batch} == {dead.queue, other.queue} for batch in batches[:3])


def test_a_limit_where_some_have_left(dead: Events, follow: Follow) -> None:
    rows = dead.add(12)
    query = follow(maxOffsetsPerTrigger=5, **DLQ)
    seen = query.batch() or []
    dead.remove(*rows[5:8])
    seen += query.all()
    assert seen == rows[:5] + rows[8:]


def test_it_reads_what_was_there_and_ends(dead: Events, follow: Follow) -> None:
    rows = dead.add(10)
    query = follow(available_now=True, maxOffsetsPerTrigger=4, **DLQ)
    seen = []
    while (batch := query.batch()) is not None:
        seen += batch
        rows += dead.add(2)
    assert seen == rows[:10]
    query.crash()
    assert query.all() == rows[10:]


def test_it_ends_though_the_last_ones_have_left(dead: Events, follow: Follow) -> None:
    rows = dead.add(10)
    query = follow(available_now=True, maxOffsetsPerTrigger=4, **DLQ)
    seen = query.batch() or []
    dead.remove(*rows[4:])
    dead.add(1)
    assert seen + query.all() == rows[:4]


@pytest.mark.parametrize("wanted", [1, 3, 20])
def test_parts(wanted: int, dead: Events, follow: Follow) -> None:
    rows = dead.add(10)
    query = follow(minPartitions=wanted, **DLQ)
    query.plan()
    parts = query.parts()
    assert len(parts) == min(wanted, 10)
    dead.remove(rows[3])
    assert query.read(parts) == rows[:3] + rows[4:], "nobody counts"
