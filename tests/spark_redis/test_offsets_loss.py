"""Events that went before they were read are noticed, to the entry; and a query can go on."""

from __future__ import annotations

import pytest

from chasquimq.errors import DataLossError
from tests.servers import DialectServer
from tests.spark_redis.events import Events
from tests.spark_redis.follower import Follow, Follower

Log = pytest.LogCaptureFixture
ON = {"failOnDataLoss": "false"}


def told(log: Log) -> list[int | str]:
    """How many were reported, each time."""
    found = [record.args[0] for record in log.records if "are gone" in record.msg]  # type: ignore[index]
    log.clear()
    return found  # type: ignore[return-value]


def fails(query: Follower) -> int | None:
    """The query fails with so many lost, and again and again."""
    lost = set()
    for _ in range(2):
        with pytest.raises(DataLossError, match="CHASQUI_DATA_LOSS") as raised:
            query.batch()
        lost.add(raised.value.lost)
        query.crash()
    [count] = lost
    return count


# -- trimmed -----------------------------------------------------------------------------------


def test_trimmed_before_it_was_planned(events: Events, follow: Follow, caplog: Log) -> None:
    query = follow()
    query.batch()
    rows = events.add(100)
    events.trim(40)
    assert fails(query) == 60
    query.crash(**ON)
    assert query.all() == rows[60:]
    assert told(caplog) == [60]
    query.crash(failOnDataLoss="true")
    more = events.add(5)
    assert query.all() == more, "what was reported is over"


def test_trimmed_between_plan_and_partitions(events: Events, follow: Follow, caplog: Log) -> None:
    query = follow()
    query.batch()
    rows = events.add(100)
    query.plan()
    more = events.add(10)
    events.trim(35)
    assert fails(query) == 75
    query.crash(**ON)
    assert query.batch() == rows[75:]
    assert query.batch() == more
    assert told(caplog) == [75]


def test_trimmed_between_partitions_and_read(events: Events, follow: Follow, caplog: Log) -> None:
    query = follow()
    query.batch()
    rows = events.add(100)
    query.plan()
    parts = query.parts()
    events.trim(1)
    with pytest.raises(DataLossError) as raised:
        query.read(parts)
    assert raised.value.lost == 99
    query.crash(**ON)
    assert query.read(parts) == rows[99:]
    assert told(caplog) == [99]


def test_trimmed_while_it_is_read(events: Events, follow: Follow, caplog: Log) -> None:
    query = follow(fetchSize=10)
    query.batch()
    rows = events.add(50)
    query.plan()
    pages = query.reader.read(query.parts()[0])
    seen = next(pages).column("entry_id").to_pylist()
    events.trim(0)
    with pytest.raises(DataLossError) as raised:
        seen.extend(entry_id for page in pages for entry_id in page.column("entry_id").to_pylist())
    assert seen == [entry_id for _, entry_id in rows[: len(seen)]]
    assert raised.value.lost == 50 - len(seen) > 0


def test_trimmed_in_the_first_batch(events: Events, follow: Follow, caplog: Log) -> None:
    """Its start is known though Spark has written down only its end."""
    rows = events.add(30)
    query = follow(maxOffsetsPerTrigger=20)
    query.plan()
    events.trim(15)
    query.crash()
    assert fails(query) == 15
    query.crash(**ON)
    assert query.all() == rows[15:]
    assert told(caplog) == [15]


def test_all_of_it_was_trimmed(events: Events, follow: Follow, caplog: Log) -> None:
    query = follow()
    query.batch()
    events.add(10)
    events.trim(0)
    assert fails(query) == 10
    query.crash(**ON)
    assert query.all() == []
    assert told(caplog) == [10]
    more = events.add(2)
    assert query.all() == more


@pytest.mark.parametrize("limit", [7, 1_000])
def test_a_limit_does_not_blur_the_count(
    limit: int, events: Events, follow: Follow, caplog: Log
) -> None:
    query = follow(maxOffsetsPerTrigger=limit, **ON)
    seen = query.all()
    rows = events.add(50)
    events.trim(30)
    seen += query.batch() or []
    if limit == 7:
        assert query.lag(events.queue) == 23
        events.trim(10)
    seen += query.all()
    kept = rows[20:27] + rows[40:] if limit == 7 else rows[20:]
    assert seen == kept
    assert sum(told(caplog)) == 50 - len(kept)  # type: ignore[arg-type]
    assert query.lag(events.queue) == 0


def test_one_queue_of_two(events: Events, other: Events, follow: Follow, caplog: Log) -> None:
    query = follow(f"{events.queue},{other.queue}")
    query.batch()
    mine, others = events.add(10), other.add(10)
    other.trim(6)
    with pytest.raises(DataLossError) as raised:
        query.batch()
    assert (raised.value.queue, raised.value.lost) == (other.queue, 4)
    query.crash(**ON)
    assert sorted(query.batch() or []) == sorted(mine + others[4:])


def test_what_was_read_may_go(events: Events, follow: Follow, caplog: Log) -> None:
    query = follow()
    for keep in (0, 3, 100, 1):
        rows = events.add(20)
        assert query.all() == rows
        events.trim(keep)
    rows = events.rows()
    events.remove(*rows)
    assert query.all() == []
    assert told(caplog) == []


# -- taken from the middle ---------------------------------------------------------------------


def test_taken_from_the_middle(events: Events, follow: Follow, caplog: Log) -> None:
    query = follow()
    query.batch()
    rows = events.add(20)
    events.remove(rows[3], rows[11], rows[19])
    assert fails(query) == 3
    query.crash(**ON)
    assert query.all() == [row for n, row in enumerate(rows) if n not in (3, 11, 19)]
    assert told(caplog) == [3]
    assert query.end[events.queue]["n"] == 20
    query.crash(failOnDataLoss="true")
    more = events.add(5)
    assert query.all() == more


def test_taken_from_the_middle_of_what_a_limit_spreads(
    events: Events, follow: Follow, caplog: Log
) -> None:
    """Nobody knows which batch misses them; that they are missing is known at the stream's end."""
    query = follow(maxOffsetsPerTrigger=4, **ON)
    query.batch()
    rows = events.add(3)
    seen = query.all()
    rows += events.add(20)
    events.remove(rows[5], rows[11], rows[12])
    seen += query.all()
    assert seen == [row for n, row in enumerate(rows) if n not in (5, 11, 12)]
    assert told(caplog) == [3]
    assert query.end[events.queue]["n"] == 23, "no drift"
    assert query.lag(events.queue) == 0
    query.crash(failOnDataLoss="true")
    more = events.add(9)
    assert query.all() == more


def test_taken_away_before_the_query_began(events: Events, follow: Follow, caplog: Log) -> None:
    rows = events.add(20)
    events.remove(*rows[5:8])
    events.trim(15)
    assert follow().all() == rows[2:5] + rows[8:]


# -- deleted and made anew ---------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 10, 40])
def test_made_anew(count: int, events: Events, follow: Follow, caplog: Log) -> None:
    """With fewer entries than were read, as many, and more."""
    query = follow()
    events.add(10)
    query.batch()
    events.delete()
    new = events.add(count)
    assert fails(query) is None
    query.crash(**ON)
    assert query.batch() == new
    assert told(caplog) == ["an unknown number of"]
    assert query.batch() is None
    query.crash(failOnDataLoss="true")
    more = events.add(4)
    assert query.all() == more


def test_deleted_and_not_made_anew_yet(events: Events, follow: Follow, caplog: Log) -> None:
    query = follow()
    events.add(10)
    query.batch()
    events.delete()
    assert fails(query) is None
    query.crash(**ON)
    assert query.batch() == []
    assert told(caplog) == ["an unknown number of"]
    assert query.batch() is None
    new = events.add(4)
    assert query.batch() == new
    assert told(caplog) == []


def test_made_anew_with_older_ids(events: Events, follow: Follow, caplog: Log) -> None:
    query = follow(**ON)
    events.add(10)
    query.batch()
    events.delete()
    new = events.add(5, "1000-*") + events.add(9, "2000-*")
    assert query.all() == new
    assert told(caplog) == ["an unknown number of"]
    new = events.add(2, "3000-*")
    assert query.all() == new


def test_made_anew_when_a_batch_was_written_down(
    events: Events, follow: Follow, caplog: Log
) -> None:
    query = follow()
    query.batch()
    events.add(10)
    query.plan()
    events.delete()
    new = events.add(4)
    assert fails(query) == 10
    query.crash(**ON)
    assert query.batch() == []
    assert told(caplog) == [10]
    assert query.batch() == new
    assert told(caplog) == ["an unknown number of"]


def test_back_in_an_older_state(events: Events, follow: Follow, caplog: Log) -> None:
    """As after a failover to a replica that lagged, or a crash without the last second."""
    query = follow(**ON)
    rows = events.add(10)
    older = events.redis.dump(events.key)
    rows += events.add(5)
    assert query.all() == rows
    events.delete()
    events.redis.restore(events.key, 0, older)
    rows = events.add(1)
    assert query.all() == rows, "what was read stays read, where ids go on"
    assert told(caplog) == ["an unknown number of"]
    query.crash(failOnDataLoss="true")
    more = events.add(3)
    assert query.all() == more


def test_back_and_nothing_came_since(events: Events, follow: Follow, caplog: Log) -> None:
    """Whether these were read nobody can tell: twice is better than never."""
    query = follow(**ON)
    rows = events.add(10)
    older = events.redis.dump(events.key)
    events.add(5)
    query.all()
    events.delete()
    events.redis.restore(events.key, 0, older)
    assert query.all() == rows
    assert told(caplog) == ["an unknown number of"]


def test_a_flushed_server(own_server: DialectServer, queue_name: str, caplog: Log) -> None:
    events = Events(own_server, queue_name)
    with Follower(own_server.url, queue_name) as query:
        events.add(5)
        query.batch()
        events.redis.flushall()
        assert fails(query) is None
        query.crash(**ON)
        new = events.add(2)
        assert query.all() == new
