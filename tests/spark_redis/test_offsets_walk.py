"""The script that walks along a stream: bounded steps, and counts that do not drift."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chasquimq.address import read_url
from chasquimq.errors import StoreError
from chasquimq.spark.client import Client
from chasquimq.spark.place import END, LAST_SEQ, START, Place, read_place
from chasquimq.spark.read.mark import Mark
from chasquimq.spark.read.walk import SCRIPT, STEP, STEP_BYTES, locate, look, walk
from tests.servers import DialectServer
from tests.spark_redis.events import Events
from tests.spark_redis.follower import Follow

ALL = read_place(END)


@pytest.fixture
def client(dialect_server: DialectServer) -> Iterator[Client]:
    with Client(read_url(dialect_server.url), [SCRIPT]) as client:
        yield client


@pytest.fixture
def events(dialect_server: DialectServer, queue_name: str) -> Events:
    return Events(dialect_server, queue_name)


def test_streams_are_looked_at_in_one_go(client: Client, events: Events) -> None:
    ids = [read_place(entry_id) for _, entry_id in events.add(5)]
    events.trim(3)
    there, none = look(client, [events.key, events.key + b":none"])
    assert (there.last, there.added, there.length, there.first) == (ids[-1], 5, 3, ids[2])
    assert there.head == Mark(ids[2].before, 2)
    assert (none.tip, none.head, none.length) == (Mark(Place(0, 0)), Mark(Place(0, 0)), 0)
    assert abs(there.now_ms - there.last.ms) < 60_000


def test_an_empty_stream_keeps_its_count(client: Client, events: Events) -> None:
    last = read_place(events.add(4)[-1][1])
    events.trim(0)
    [stream] = look(client, [events.key])
    assert stream.tip == stream.head == Mark(last, 4)


def test_a_key_of_another_kind_is_an_error(client: Client, events: Events) -> None:
    events.redis.set(events.key, "x")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        look(client, [events.key])


def test_a_step_is_bounded_in_rows(client: Client, events: Events) -> None:
    rows = events.add(25)
    reply = client.run(SCRIPT, (events.key,), (START, END, 12, STEP_BYTES))
    assert reply[:3] == [12, rows[11][1].encode(), 0]
    reply = client.run(SCRIPT, (events.key,), (rows[11][1], END, 13, STEP_BYTES))
    assert reply[:3] == [13, rows[24][1].encode(), 0]
    reply = client.run(SCRIPT, (events.key,), (rows[11][1], END, 14, STEP_BYTES))
    assert reply[:3] == [13, rows[24][1].encode(), 1]


def test_a_step_is_bounded_in_bytes(client: Client, events: Events) -> None:
    rows = events.add(40, text="x" * 4_000)
    reply = client.run(SCRIPT, (events.key,), (START, END, 1_000, 50_000))
    assert reply[:3] == [20, rows[19][1].encode(), 0]


def test_a_walk_takes_as_many_steps_as_it_needs(client: Client, events: Events) -> None:
    rows = events.add(2 * STEP + 7)
    walked = walk(client, events.key, Mark(Place(0, 0)), ALL)
    assert walked == (Mark(read_place(rows[-1][1]), len(rows)), len(rows), True)
    walked = walk(client, events.key, Mark(Place(0, 0)), ALL, STEP + 3)
    assert walked == (Mark(read_place(rows[STEP + 2][1]), STEP + 3), STEP + 3, False)
    heavy = Events.__new__(Events)
    heavy.__dict__ |= vars(events) | {"key": events.key + b":heavy"}
    many = heavy.add(30, text="x" * (STEP_BYTES // 8))
    assert walk(client, heavy.key, Mark(Place(0, 0)), ALL, 25).mark.place == read_place(many[24][1])


def test_a_walk_ends_where_it_should(client: Client, events: Events) -> None:
    rows = events.add(10)
    upto = read_place(rows[5][1])
    assert walk(client, events.key, Mark(Place(0, 0)), upto) == (Mark(upto, 6), 6, True)
    assert walk(client, events.key, Mark(upto, 6), upto) == (Mark(upto, 6), 0, True)
    assert walk(client, events.key, Mark(upto, 6), upto, 0) == (Mark(upto, 6), 0, False)


def test_trims_between_two_steps_are_counted(client: Client, events: Events) -> None:
    rows = events.add(20)
    first = walk(client, events.key, Mark(Place(0, 0)), ALL, 5)
    assert first.mark == (read_place(rows[4][1]), 5)
    events.trim(8)
    second = walk(client, events.key, first.mark, ALL, 3)
    assert second == (Mark(read_place(rows[14][1]), 15), 3, False)


def test_a_walk_does_not_take_over_the_count_of_a_stream_made_anew(
    client: Client, events: Events
) -> None:
    events.add(20)
    mark = walk(client, events.key, Mark(Place(0, 0)), ALL, 15).mark
    events.delete()
    events.add(3)
    again = walk(client, events.key, mark, ALL, 2)
    assert again.mark.n == 17
    assert not look(client, [events.key])[0].knows(again.mark)


def test_entries_taken_from_the_middle_leave_a_debt_and_never_a_surplus(
    client: Client, events: Events
) -> None:
    rows = events.add(20)
    events.remove(rows[2], rows[7], rows[15])
    mark, seen = Mark(read_place(rows[0][1]), 1), 1
    while not (walked := walk(client, events.key, mark, ALL, 4)).over:
        mark, seen = walked.mark, seen + walked.rows
        [stream] = look(client, [events.key])
        behind = walk(client, events.key, mark, ALL).rows
        assert stream.added - behind - mark.n == 3, "the debt is not the same everywhere"
    assert seen + walked.rows == 17
    # In front of the first entry there is nobody else who could be missing.
    assert walk(client, events.key, Mark(Place(0, 0)), ALL, 4).mark.n == 7


def test_the_count_at_a_place_in_the_middle(client: Client, events: Events) -> None:
    rows = events.add(STEP + 20)
    events.trim(STEP + 10)
    [stream] = look(client, [events.key])
    for n in (10, 11, STEP + 5, STEP + 19, STEP + 20):
        place = read_place(rows[n - 1][1])
        assert locate(client, events.key, stream, place) == Mark(place, n)
    assert locate(client, events.key, stream, Place(5, 0)) == stream.head
    assert locate(client, events.key, stream, ALL) == stream.tip


def test_a_place_that_is_trimmed_while_it_is_counted(client: Client, events: Events) -> None:
    rows = events.add(30)
    [stream] = look(client, [events.key])
    events.trim(5)
    place = read_place(rows[19][1])
    assert locate(client, events.key, stream, place) == Mark(place, 25), "as if it began there"


@pytest.mark.parametrize("view", ["events", "dlq"])
@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": 3}], ids=["all", "some"])
def test_the_last_possible_entry_is_followed(
    dialect_server: DialectServer, queue_name: str, follow: Follow, view: str, limit: dict[str, int]
) -> None:
    """Nothing can be asked for behind it: a server says that there is no such place."""
    events = Events(dialect_server, queue_name, dlq=view == "dlq")
    rows = events.add(9) + events.add(1, f"{LAST_SEQ}-{LAST_SEQ}")
    query = follow(view=view, **limit)
    assert query.all() == rows
    assert query.batch() is None


def test_a_walk_ends_at_the_last_possible_entry(client: Client, events: Events) -> None:
    events.add(9)
    events.add(1, f"{LAST_SEQ}-{LAST_SEQ}")
    walked = walk(client, events.key, Mark(Place(0, 0)), ALL)
    assert (walked.rows, walked.mark, walked.over) == (10, Mark(ALL, 10), True)
    assert walk(client, events.key, walked.mark, ALL).rows == 0
