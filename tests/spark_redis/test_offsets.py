"""Where a streaming query begins and goes on, with its checkpoint and after crashes."""

from __future__ import annotations

import json

import pytest

from chasquimq.errors import ConfigError
from chasquimq.spark.place import read_place
from tests.servers import DialectServer
from tests.spark_redis.events import Events
from tests.spark_redis.follower import Follow, Follower

# -- batch by batch ----------------------------------------------------------------------------


def test_each_event_comes_once_and_in_order(events: Events, follow: Follow) -> None:
    first = events.add(10)
    query = follow()
    assert query.batch() == first
    assert query.batch() is None, "nothing came"
    assert query.batch() is None
    second = events.add(7)
    assert query.batch() == second
    assert query.batch() is None
    assert events.rows() == first + second, "a query takes nothing away"


def test_what_comes_while_a_batch_is_read_is_for_the_next(events: Events, follow: Follow) -> None:
    first = events.add(10)
    query = follow()
    assert query.plan()
    second = events.add(5)
    parts = query.parts()
    third = events.add(5)
    assert query.read(parts) == first
    query.commit()
    assert query.batch() == second + third


def test_queues_are_read_together(events: Events, other: Events, follow: Follow) -> None:
    mine, others = events.add(5), other.add(3)
    query = follow(f"{other.queue}, {events.queue}")
    assert sorted(query.batch() or []) == sorted(mine + others)
    more = other.add(2)
    assert query.batch() == more, "a queue that stands still is not read again"
    assert query.batch() is None


def test_a_queue_without_events_is_waited_for(events: Events, follow: Follow) -> None:
    query = follow()
    assert query.batch() == []
    nothing = {"id": "0-0", "n": 0}
    assert query.end == {events.queue: {**nothing, "from": nothing}}
    assert query.batch() is None
    assert query.batch() is None
    added = events.add(3)
    assert query.batch() == added


def test_the_lag_is_a_subtraction(events: Events, other: Events, follow: Follow) -> None:
    events.add(10)
    query = follow(f"{events.queue},{other.queue}", maxOffsetsPerTrigger=4)
    lags = []
    for _ in query.batches():
        lags.append(query.lag(events.queue))
        assert query.lag(other.queue) == 0
    assert lags == [6, 2, 0]


# -- where it begins ---------------------------------------------------------------------------


def test_earliest_is_what_is_still_there(events: Events, follow: Follow) -> None:
    rows = events.add(10)
    events.trim(4)
    query = follow()
    assert query.batch() == rows[6:]
    assert query.end[events.queue]["n"] == 10


def test_latest_is_what_comes(events: Events, follow: Follow) -> None:
    events.add(10)
    query = follow(startingOffsets="latest")
    assert query.batch() == []
    later = events.add(2)
    assert query.batch() == later


def test_an_entry_id_is_part_of_what_is_read(events: Events, other: Events, follow: Follow) -> None:
    rows, others = events.add(10), other.add(2)
    places = json.dumps({events.queue: rows[6][1]})
    query = follow(f"{events.queue},{other.queue}", startingOffsets=places)
    assert sorted(query.batch() or []) == sorted(rows[6:] + others), "not named: from the earliest"
    assert query.end[events.queue]["from"]["n"] == 6


def test_an_entry_id_that_is_gone_means_those_behind_it(events: Events, follow: Follow) -> None:
    rows = events.add(10)
    events.trim(3)
    query = follow(startingOffsets=json.dumps({events.queue: rows[2][1]}))
    assert query.batch() == rows[7:]


def test_a_time_is_when_events_came_into_the_stream(events: Events, follow: Follow) -> None:
    old = events.add(1, "1000-0") + events.add(1, "1000-1")
    new = events.add(1, "2000-0") + events.add(1, "2000-5") + events.add(1, "2001-0")
    assert follow(startingTimestamp=2000).batch() == new
    assert follow(startingTimestamp=1001).batch() == new
    assert follow(startingTimestamp=1000).batch() == old + new
    assert follow(startingTimestamp=0).batch() == old + new
    query = follow(startingTimestamp=2001)
    assert query.batch() == new[2:]
    assert query.end[events.queue]["from"]["n"] == 4


def test_a_time_behind_the_last_event_means_what_comes(events: Events, follow: Follow) -> None:
    events.add(2, "1000-*")
    query, unborn = follow(startingTimestamp=2000), follow("unborn", startingTimestamp=2000)
    assert query.batch() == []
    assert unborn.batch() == []
    later = events.add(3)
    assert query.batch() == later


@pytest.mark.parametrize("what", ["startingTimestamp", "startingOffsets"])
def test_the_future_is_refused(what: str, events: Events, follow: Follow) -> None:
    events.add(1)
    ms = read_place(events.rows()[0][1]).ms + 3_600_000
    told = str(ms) if what == "startingTimestamp" else json.dumps({events.queue: f"{ms}-0"})
    with pytest.raises(ConfigError, match="by the server's clock it is only"):
        follow(**{what: told}).batch()


def test_where_to_begin_is_asked_once(events: Events, follow: Follow) -> None:
    rows = events.add(4)
    query = follow()
    assert query.batch() == rows
    query.crash(startingOffsets="latest")
    more = events.add(4)
    assert query.batch() == more


# -- crashes -----------------------------------------------------------------------------------


def test_a_batch_that_was_written_down_is_read_again(events: Events, follow: Follow) -> None:
    query = follow()
    first = events.add(5)
    assert query.batch() == first
    second = events.add(6)
    query.plan()
    assert query.read(query.parts()) == second
    events.add(4)
    query.crash()
    assert query.read(query.parts()) == second, "with the same rows"
    query.crash()
    assert query.batch() == second
    assert query.all() == events.rows()[11:]


@pytest.mark.parametrize("begin", ["earliest", "latest"])
def test_the_first_batch_begins_where_it_began(begin: str, events: Events, follow: Follow) -> None:
    before = events.add(5)
    query = follow(startingOffsets=begin)
    query.plan()
    after = events.add(5)
    query.crash()
    assert query.all() == (before + after if begin == "earliest" else after)


def test_a_queue_added_to_a_query_begins_with_what_is_there(
    events: Events, other: Events, follow: Follow
) -> None:
    others = other.add(6)
    query = follow(startingOffsets="latest")
    assert query.batch() == []
    other.trim(4)
    query.crash(queue=f"{events.queue},{other.queue}")
    mine = events.add(3)
    query.plan()
    query.crash()
    assert sorted(query.batch() or []) == sorted(mine + others[2:])
    assert query.batch() is None


def test_a_queue_taken_from_a_query_is_given_up_if_that_is_said(
    events: Events, other: Events, follow: Follow
) -> None:
    query = follow(f"{events.queue},{other.queue}")
    query.batch()
    mine, others = events.add(3), other.add(3)
    query.plan()
    query.crash(queue=events.queue)
    assert sorted(query.batch() or []) == sorted(mine + others), "the batch was written down"
    other.add(3)
    with pytest.raises(ConfigError, match="failOnDataLoss=false") as raised:
        query.batch()
    assert "CHASQUI_DATA_LOSS" in str(raised.value)
    assert other.queue in str(raised.value)
    query.crash(failOnDataLoss="false")
    more = events.add(2)
    assert query.all() == more
    assert query.end.keys() == {events.queue}


def test_the_checkpoint_of_another_view_is_refused(events: Events, follow: Follow) -> None:
    events.add(1)
    query = follow(view="dlq")
    query.batch()
    query.crash(view="events")
    with pytest.raises(ConfigError, match="checkpointLocation"):
        query.batch()


def test_a_query_outlives_its_server(own_server: DialectServer, queue_name: str) -> None:
    events = Events(own_server, queue_name)
    with Follower(own_server.url, queue_name, maxOffsetsPerTrigger=3) as query:
        rows = events.add(5)
        seen = query.batch() or []
        own_server.server.kill()
        own_server.server.start()
        seen += query.batch() or []
        rows += events.add(2)
        query.plan()
        own_server.server.kill()
        own_server.server.start()
        parts = query.parts()
        own_server.server.kill()
        own_server.server.start()
        seen += query.read(parts)
        query.commit()
        assert seen + query.all() == rows


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["jobs", "pending", "delayed", "results", "repeatables"])
def test_views_that_are_no_streams_are_refused(view: str) -> None:
    with pytest.raises(ConfigError, match="events and dlq can") as raised:
        Follower("redis://localhost", "q", view=view)
    assert "spark.read" in str(raised.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [("endingOffsets", '{"q": "1-0"}'), ("endingTimestamp", "5"), ("pushdown", "true")],
)
def test_options_that_are_for_batches_are_refused(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}.*for spark.read"):
        Follower("redis://localhost", "q", **{option: value})
