"""What the driver plans: which queues, from where to where, in how many parts."""

from __future__ import annotations

import json

import pytest

from chasquimq.errors import ConfigError, StoreError
from chasquimq.spark.place import LAST_SEQ, Place, Range
from chasquimq.spark.read import plan
from chasquimq.spark.read.batch import BatchReader
from chasquimq.spark.read.filters import EVERYTHING, Wanted
from chasquimq.spark.read.part import Picked
from chasquimq.spark.schema import COLUMNS
from tests.servers import DialectServer
from tests.spark_redis.reading import Reading
from tests.spark_redis.test_scan_entries import fill, key_of

STREAMS = ["jobs", "dlq", "events"]
NAMES = {"jobs": "stream", "pending": "stream", "delayed": "delayed", "repeatables": "repeat"}


@pytest.mark.parametrize("view", STREAMS)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(1, 101)),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, range(1, 101)),
        ({"startingOffsets": '{"%s": "40"}'}, range(40, 101)),  # that entry is in
        ({"startingOffsets": '{"%s": "40-1"}'}, range(41, 101)),
        ({"endingOffsets": '{"%s": "40-0"}'}, range(1, 41)),  # ... and so is this one
        ({"startingTimestamp": "40"}, range(40, 101)),
        ({"endingTimestamp": "40"}, range(1, 40)),  # but not what came then
        ({"startingTimestamp": "40", "endingTimestamp": "50"}, range(40, 50)),
        ({"startingOffsets": '{"%s": "40"}', "endingTimestamp": "50"}, range(40, 50)),
        ({"startingTimestamp": "40", "endingTimestamp": "40"}, ()),
        ({"startingOffsets": '{"%s": "60"}', "endingOffsets": '{"%s": "40"}'}, ()),
        ({"startingOffsets": '{"%s": "101"}'}, ()),
        ({"startingOffsets": '{"%s": "0-0"}', "endingOffsets": '{"%s": "0-0"}'}, ()),
        ({"endingTimestamp": "0"}, ()),
        (
            {"startingOffsets": f'{{"%s": "{LAST_SEQ}-{LAST_SEQ}"}}'},
            (),
        ),
    ],
)
@pytest.mark.parametrize("parts", [1, 4])
def test_from_where_to_where(
    dialect_server: DialectServer,
    queue_name: str,
    view: str,
    options: dict[str, str],
    expected: range,
    parts: int,
) -> None:
    fill(dialect_server, key_of(queue_name, NAMES.get(view, view)), [b"x"] * 100)
    given = {name: text.replace("%s", queue_name) for name, text in options.items()}
    reading = Reading(dialect_server, queue_name, view=view, minPartitions=parts, **given)
    assert reading.ids() == [f"{ms}-0" for ms in expected]
    if len(expected) > 10:
        assert len(reading.parts()) == parts


def test_offsets_by_queue(dialect_server: DialectServer, queue_name: str) -> None:
    """A queue that is not named is read from its earliest to its latest entry."""
    other = f"{queue_name}-other"
    for queue in (queue_name, other):
        fill(dialect_server, key_of(queue), [b"x"] * 9)
    start, end = json.dumps({queue_name: "4-0"}), json.dumps({queue_name: "6-0"})
    reading = Reading(
        dialect_server, f"{queue_name},{other}", startingOffsets=start, endingOffsets=end
    )
    found = {part.queue: reading.rows_of(part) for part in reading.parts()}  # type: ignore[attr-defined]
    assert [len(found[queue_name]), len(found[other])] == [3, 9]


def test_queues_share_the_parts(dialect_server: DialectServer, queue_name: str) -> None:
    sizes = {f"{queue_name}-{size}": size for size in (0, 1, 100, 300)}
    for queue, size in sizes.items():
        fill(dialect_server, key_of(queue), [b"x"] * size)
    reading = Reading(dialect_server, ",".join(sizes), minPartitions=9)
    parts = [part.queue for part in reading.parts()]  # type: ignore[attr-defined]
    assert {queue: parts.count(queue) for queue in sizes} == dict(
        zip(sizes, (0, 1, 2, 6), strict=True)
    )
    fewer = Reading(dialect_server, ",".join(sizes), minPartitions=2).parts()
    assert len(fewer) == 3  # none goes without


def test_parts_by_the_number_of_rows(
    dialect_server: DialectServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "ROWS", 100)
    monkeypatch.setattr(plan, "MOST_PARTS", 5)
    sizes = {f"{queue_name}-{size}": size for size in (100, 101, 450, 900)}
    for queue, size in sizes.items():
        fill(dialect_server, key_of(queue), [b"x"] * size)
    reading = Reading(dialect_server, ",".join(sizes))
    parts = [part.queue for part in reading.parts()]  # type: ignore[attr-defined]
    assert [parts.count(queue) for queue in sizes] == [1, 2, 5, 5]
    assert len(reading.rows()) == sum(sizes.values())


def test_what_comes_later_is_not_in_the_plan(
    dialect_server: DialectServer, queue_name: str
) -> None:
    fill(dialect_server, key_of(queue_name), [b"x"] * 10)
    reading = Reading(dialect_server, queue_name)
    parts = reading.parts()
    fill(dialect_server, key_of(queue_name), [b"x"] * 10, 11)
    assert sum(len(reading.rows_of(part)) for part in parts) == 10


@pytest.mark.parametrize("view", COLUMNS)
def test_a_queue_that_does_not_exist_is_empty(
    dialect_server: DialectServer, queue_name: str, view: str
) -> None:
    reading = Reading(dialect_server, queue_name, view=view)
    assert reading.rows() == []
    reader = BatchReader(None, reading.options)  # type: ignore[arg-type]
    [part] = reader.partitions()  # Spark wants one all the same
    assert reading.rows_of(part) == []


@pytest.mark.parametrize("view", sorted(set(COLUMNS) - {"results"}))
def test_a_key_that_is_something_else(
    dialect_server: DialectServer, queue_name: str, view: str
) -> None:
    key = key_of(queue_name, NAMES.get(view, view))
    dialect_server.client().rpush(key, "x")
    with pytest.raises(StoreError) as raised:
        Reading(dialect_server, queue_name, view=view).parts()
    assert f"the key {key} holds a list, not a " in str(raised.value)
    assert repr(queue_name) in str(raised.value)


def test_from_the_latest_there_is_nothing_to_read(dialect_server: DialectServer) -> None:
    reading = Reading(dialect_server, "q", startingOffsets="latest")
    with pytest.raises(ConfigError, match=r"startingOffsets=latest is for spark\.readStream"):
        BatchReader(None, reading.options)  # type: ignore[arg-type]


# -- what filters leave to be read ---------------------------------------------------------------


def test_fewer_queues(dialect_server: DialectServer, queue_name: str) -> None:
    other = f"{queue_name}-other"
    fill(dialect_server, key_of(queue_name), [b"mine"])
    fill(dialect_server, key_of(other), [b"theirs"])
    for view in ("jobs", "results", "repeatables"):
        reading = Reading(dialect_server, f"{queue_name},{other}", view=view)
        assert reading.parts(Wanted(())) == []
    reading = Reading(dialect_server, f"{queue_name},{other}")
    assert [row[1] for row in reading.rows(Wanted((other,)))] == [[b"d", b"theirs"]]


def test_entries_that_were_asked_for(
    dialect_server: DialectServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PICKED", 4)
    ids = fill(dialect_server, key_of(queue_name), [b"x"] * 20)
    reading = Reading(dialect_server, queue_name, startingTimestamp="5")
    wanted = Wanted((queue_name,), ids=frozenset(Place(ms, 0) for ms in (1, 999, *range(5, 15))))
    parts = reading.parts(wanted)
    assert [len(part.ids) for part in parts if isinstance(part, Picked)] == [4, 4, 3]
    assert reading.ids(wanted) == ids[4:14]
    assert reading.parts(Wanted((queue_name,), ids=frozenset())) == []


@pytest.mark.parametrize("view", ["jobs", "pending"])
def test_a_stretch_of_time(dialect_server: DialectServer, queue_name: str, view: str) -> None:
    ids = fill(dialect_server, key_of(queue_name), [b"x"] * 50)
    client = dialect_server.client()
    client.xgroup_create(key_of(queue_name), "default", id="0")
    client.xreadgroup("default", "ann", {key_of(queue_name): ">"}, count=40)
    reading = Reading(dialect_server, queue_name, view=view, minPartitions=3)
    stretch = Range(Place(10, 0).before, Place(21, 0).before)
    assert reading.ids(Wanted((queue_name,), stretch)) == ids[9:20]
    for nothing in (Range(Place(70, 0), EVERYTHING.upto), Range(Place(9, 9), Place(9, 9))):
        assert reading.parts(Wanted((queue_name,), nothing)) == []
