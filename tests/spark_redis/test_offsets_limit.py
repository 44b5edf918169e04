"""So many rows per batch, no further than at the start, in so many parts: to the row."""

from __future__ import annotations

from collections import Counter

import pytest

from chasquimq.errors import DataLossError
from chasquimq.spark.read.walk import STEP
from tests.spark_redis.events import Events
from tests.spark_redis.follower import Follow

ON = {"failOnDataLoss": "false"}


# -- maxOffsetsPerTrigger ----------------------------------------------------------------------


def test_a_batch_has_so_many_rows(events: Events, follow: Follow) -> None:
    rows = events.add(2 * STEP + 100)
    query = follow(maxOffsetsPerTrigger=STEP + 1)
    batches = list(query.batches())
    assert [len(batch) for batch in batches] == [STEP + 1, STEP + 1, 98]
    assert [row for batch in batches for row in batch] == rows


@pytest.mark.parametrize("limit", [10, 20])
def test_a_limit_that_comes_out_even(limit: int, events: Events, follow: Follow) -> None:
    rows = events.add(20)
    query = follow(maxOffsetsPerTrigger=limit)
    assert [len(batch) for batch in query.batches()] == [limit] * (20 // limit)
    assert query.end[events.queue] | {"from": None} == {"id": rows[-1][1], "n": 20, "from": None}


def test_queues_share_a_limit_in_proportion_to_their_lags(
    events: Events, other: Events, follow: Follow
) -> None:
    mine, others = events.add(300), other.add(100)
    query = follow(f"{events.queue},{other.queue}", maxOffsetsPerTrigger=40)
    batches = list(query.batches())
    shares = [Counter(queue for queue, _ in batch) for batch in batches]
    assert shares == [{events.queue: 30, other.queue: 10}] * 10
    assert [row for batch in batches for row in batch if row[0] == events.queue] == mine
    assert [row for batch in batches for row in batch if row[0] == other.queue] == others


def test_no_queue_goes_without(events: Events, other: Events, follow: Follow) -> None:
    query = follow(f"{events.queue},{other.queue}", maxOffsetsPerTrigger=1)
    seen = []
    query.batch()
    other.add(3, at="5-*")
    for ms in range(10, 16):  # to the busy one come two whenever one leaves
        events.add(2, at=f"{ms}-*")
        seen += query.batch() or []
    assert Counter(queue for queue, _ in seen) == {events.queue: 3, other.queue: 3}


def test_lost_rows_do_not_count(events: Events, follow: Follow) -> None:
    query = follow(maxOffsetsPerTrigger=10, **ON)
    query.batch()
    rows = events.add(100)
    events.trim(15)
    assert [len(batch) for batch in query.batches()] == [10, 5]
    assert query.end[events.queue] == {"id": rows[-1][1], "n": 100}


def test_lost_rows_take_no_share(events: Events, other: Events, follow: Follow) -> None:
    query = follow(f"{events.queue},{other.queue}", maxOffsetsPerTrigger=20, **ON)
    query.batch()
    events.add(1_000)
    other.add(100)
    events.trim(100)
    assert Counter(queue for queue, _ in query.batch() or []) == {events.queue: 10, other.queue: 10}


# -- trigger(availableNow=True) ----------------------------------------------------------------


@pytest.mark.parametrize("limit", [4, 10, 1_000])
def test_it_reads_what_was_there_and_ends(limit: int, events: Events, follow: Follow) -> None:
    rows = events.add(10)
    query = follow(available_now=True, maxOffsetsPerTrigger=limit)
    seen = []
    while (batch := query.batch()) is not None:
        seen += batch
        events.add(3)
    assert seen == rows
    assert query.lag(events.queue) > 0, "the progress tells of what came later"

    rest = events.rows()[10:]
    query.crash()
    assert query.all() == rest, "the next run has a target of its own"
    assert query.batch() is None


def test_latest_is_when_it_started(events: Events, follow: Follow) -> None:
    events.add(5)
    query = follow(available_now=True, startingOffsets="latest")
    rows = events.add(5)
    assert query.all() == []
    query.crash()
    assert query.all() == rows


def test_a_batch_that_was_written_down_comes_first(events: Events, follow: Follow) -> None:
    rows = events.add(10)
    query = follow(available_now=True, maxOffsetsPerTrigger=4)
    query.batch()
    query.plan()
    rows += events.add(5)
    query.crash()
    events.add(5)
    assert query.all() == rows[4:]


def test_a_queue_added_to_it_is_reached_too(events: Events, other: Events, follow: Follow) -> None:
    query = follow(available_now=True, maxOffsetsPerTrigger=5)
    mine = events.add(10)
    others = other.add(10)
    query.crash(queue=f"{events.queue},{other.queue}")
    events.add(1)
    assert sorted(query.all()) == sorted(mine + others)


def test_a_target_that_was_trimmed_away_is_lost(events: Events, follow: Follow) -> None:
    query = follow(available_now=True)
    query.batch()
    events.add(10)
    query.crash(available_now=True, maxOffsetsPerTrigger=4)
    query.batch()
    more = events.add(10)
    events.trim(5)
    with pytest.raises(DataLossError) as raised:
        query.batch()
    assert raised.value.lost == 6
    query.crash(**ON)
    assert query.all() == more[5:]


def test_a_stream_made_anew_meanwhile_is_for_the_next_run(events: Events, follow: Follow) -> None:
    query = follow(available_now=True, **ON)
    query.batch()
    events.add(10)
    query.crash(maxOffsetsPerTrigger=4)
    query.batch()
    events.delete()
    new = events.add(20)
    assert query.batch() is None
    query.crash()
    assert query.all() == new


# -- minPartitions -----------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [1, 2, 3, 7, 50])
def test_parts_know_what_they_must_hold(wanted: int, events: Events, follow: Follow) -> None:
    rows = events.add(23)
    query = follow(minPartitions=wanted)
    query.plan()
    parts = query.parts()
    assert len(parts) == min(wanted, 23)
    sizes = [part.expect for part in parts]
    assert sum(sizes) == 23
    assert max(sizes) - min(sizes) <= 1
    for part in parts:
        assert len(query.read([part])) == part.expect
    assert query.read(parts) == rows


def test_queues_are_cut_by_their_rows(events: Events, other: Events, follow: Follow) -> None:
    events.add(30)
    other.add(10)
    query = follow(f"{events.queue},{other.queue},{other.queue}-unborn", minPartitions=4)
    query.plan()
    assert Counter(part.queue for part in query.parts()) == {events.queue: 3, other.queue: 1}


def test_each_part_notices_its_own_loss(events: Events, follow: Follow) -> None:
    query = follow(minPartitions=4)
    query.batch()
    rows = events.add(40)
    query.plan()
    parts = query.parts()
    events.trim(25)
    for part, lost in zip(parts, (10, 5), strict=False):
        with pytest.raises(DataLossError) as raised:
            query.read([part])
        assert raised.value.lost == lost
    assert query.read(parts[2:]) == rows[20:]


def test_what_is_missing_in_the_middle_is_noticed_by_the_last_part(
    events: Events, follow: Follow
) -> None:
    query = follow(minPartitions=4)
    events.add(1)
    query.batch()
    rows = events.add(40)
    events.remove(rows[7], rows[8])
    query.plan()
    *parts, last = query.parts()
    assert len(parts) == 3
    assert query.read(parts) == [*rows[:7], *rows[9:32]]
    with pytest.raises(DataLossError) as raised:
        query.read([last])
    assert raised.value.lost == 2
