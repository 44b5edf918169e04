"""commitMode=direct: whatever becomes of tasks, each row comes in once, or the write fails."""

from __future__ import annotations

import pickle
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType

from chasquimq.errors import ConfigError, InputChangedError, StoreError
from chasquimq.spark.write.way import Written
from tests.servers import DialectServer
from tests.spark_redis.writing import Row, Shelf, Writing, batches, numbered


class Broken(Exception):
    """What befell a task."""


@pytest.fixture
def shelf(dialect_server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(dialect_server.client(), queue_name)


@pytest.fixture
def writing(dialect_server: DialectServer, queue_name: str) -> Writing:
    """Chunks of ten rows."""
    return Writing(dialect_server.url, queue_name)


def breaking(writing: Writing, rows: Sequence[Row], after: int) -> Iterator[pa.RecordBatch]:
    """Batches of three, and an end to them when so many rows were given."""
    given = 0
    for one in batches(writing.schema, rows, 3):
        if given >= after:
            raise Broken
        yield one
        given += one.num_rows
    raise Broken


def broken(writing: Writing, rows: Sequence[Row], after: int, partition: int = 0) -> None:
    with pytest.raises(Broken):
        writing.feed(breaking(writing, rows, after), partition)


# -- as it should be -------------------------------------------------------------------------------


def test_rows_come_in_once_and_in_order(writing: Writing, shelf: Shelf) -> None:
    rows = numbered(range(95))
    told = writing.task(rows)
    assert told == Written(0, 0, 95)
    assert [job.payload for job in shelf.jobs()] == [row["payload"] for row in rows]
    ids = [job.envelope.id for job in shelf.jobs()]
    assert ids == sorted({*ids})
    assert shelf.run(writing.run)["state"] == "open"
    writing.commit(told)
    assert shelf.numbers() == list(range(95))


def test_the_run_says_what_came_of_it(writing: Writing, shelf: Shelf) -> None:
    told = [writing.task(numbered(range(part * 20, part * 20 + 20)), part) for part in range(3)]
    assert len(shelf.left(writing.run)) == 3
    before = int(shelf.client.time()[0]) * 1000
    writing.commit(*told)
    run = shelf.run(writing.run)
    assert {*run} == {"state", "mode", "rows", "skipped", "created_ms", "finished_ms"}
    assert (run["state"], run["rows"], run["skipped"]) == ("done", "60", "0")
    assert int(run["created_ms"]) <= int(run["finished_ms"])
    assert int(run["finished_ms"]) >= before
    assert shelf.left(writing.run) == []  # markers of partitions are of no use any more
    ttl = shelf.client.pttl(writing.run.key)
    assert 0 < ttl <= writing.options.marker_ttl_ms


def test_names_and_ids_are_those_of_the_rows(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    columns = {"name": StringType(), "id": StringType(), "max_attempts": LongType()}
    writing = Writing(dialect_server.url, queue_name, columns)
    rows = numbered([0], name="mail", id="a", max_attempts=2)
    rows += numbered([1], name=None, id=None, max_attempts=None)
    writing.task(rows)
    first, second = shelf.jobs()
    assert (first.name, first.envelope.id, first.envelope.attempt) == ("mail", "a", 0)
    assert first.envelope.retry is not None
    assert first.envelope.retry.max_attempts == 2
    assert (second.name, len(second.envelope.id), second.envelope.retry) == ("", 26, None)
    created = int(shelf.run(writing.run)["created_ms"])
    assert {first.envelope.created_at_ms, second.envelope.created_at_ms} == {created}


def test_partitions_without_rows_and_writes_without_partitions(
    writing: Writing, shelf: Shelf
) -> None:
    writing.commit(writing.task([]), writing.task(numbered(range(3)), 1))
    assert shelf.numbers() == [0, 1, 2]
    empty = Writing(writing.options.where.url or "", writing.run.queue)
    empty.commit()
    assert shelf.run(empty.run)["state"] == "done"


def test_the_stream_is_set_up_as_a_queue_would(
    writing: Writing, shelf: Shelf, dialect_server: DialectServer
) -> None:
    writing.task(numbered(range(3)))
    info = shelf.client.xinfo_stream(shelf.keys.stream)
    if "idmp-maxsize" in info:
        assert (info["idmp-maxsize"], info["idmp-duration"]) == (10_000, 900)
    else:
        assert dialect_server.name == "valkey"


# -- attempts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 3, 9, 12, 30, 60, 93, 95])
def test_a_second_attempt_adds_what_is_missing(writing: Writing, shelf: Shelf, after: int) -> None:
    rows = numbered(range(95))
    broken(writing, rows, after)
    writing.commit(writing.task(rows, attempt=1))
    assert shelf.numbers() == list(range(95))
    assert shelf.run(writing.run)["rows"] == "95"


def test_many_attempts_of_many_partitions(writing: Writing, shelf: Shelf) -> None:
    parts = [numbered(range(part * 100, part * 100 + 73)) for part in range(4)]
    dice = random.Random(7)
    for _ in range(5):
        for part, rows in enumerate(parts):
            broken(writing, rows, dice.randrange(73), part)
    writing.commit(*[writing.task(rows, part) for part, rows in enumerate(parts)])
    wanted = [row["payload"]["n"] for rows in parts for row in rows]
    assert sorted(shelf.numbers()) == wanted
    for part in range(4):  # each partition keeps its order
        of_part = [number for number in shelf.numbers() if number // 100 == part]
        assert of_part == sorted(of_part)


def test_attempts_that_race_add_each_row_once(writing: Writing, shelf: Shelf) -> None:
    rows = numbered(range(400))
    ready = threading.Barrier(3)

    def stumbling(seed: int) -> Iterator[pa.RecordBatch]:
        dice = random.Random(seed)
        ready.wait(20)
        for one in batches(writing.schema, rows, 7):
            time.sleep(dice.choice((0, 0, 0.002)))
            yield one

    with ThreadPoolExecutor(3) as pool:
        told = list(pool.map(lambda seed: writing.feed(stumbling(seed), 0, seed), range(3)))
    assert {one.rows for one in told} == {400}
    assert shelf.numbers() == list(range(400))
    writing.commit(told[0])
    assert shelf.run(writing.run)["rows"] == "400"


def test_an_attempt_that_goes_on_after_the_commit_adds_nothing(
    writing: Writing, shelf: Shelf
) -> None:
    rows = numbered(range(60))

    def late() -> Iterator[pa.RecordBatch]:
        yield from batches(writing.schema, rows[:30])
        writing.commit(writing.task(rows, attempt=1))
        yield from batches(writing.schema, numbered(range(1_000, 1_100)))

    writing.feed(late())
    assert shelf.numbers() == list(range(60))
    assert writing.task(numbered(range(9)), 5) == Written(5, 0, None)
    assert shelf.numbers() == list(range(60))


# -- other rows the second time ----------------------------------------------------------------


def test_other_rows_in_a_second_attempt_are_noticed(writing: Writing, shelf: Shelf) -> None:
    broken(writing, numbered(range(95)), 60)
    came_in = shelf.numbers()
    with pytest.raises(InputChangedError, match="CHASQUI_NONDETERMINISTIC_INPUT: partition 0"):
        writing.task(numbered(reversed(range(95))), attempt=1)
    assert shelf.numbers() == came_in


def test_two_rows_that_changed_places_are_noticed(writing: Writing, shelf: Shelf) -> None:
    rows = numbered(range(40))
    writing.task(rows)
    rows[3], rows[4] = rows[4], rows[3]
    with pytest.raises(InputChangedError, match="differs from chunk 0 on"):
        writing.task(rows, attempt=1)
    assert shelf.numbers() == list(range(40))


def test_fewer_rows_are_noticed(writing: Writing, shelf: Shelf) -> None:
    writing.task(numbered(range(40)))
    with pytest.raises(InputChangedError, match="from chunk 2 on"):
        writing.task(numbered(range(20)), attempt=1)
    with pytest.raises(InputChangedError, match="from chunk 1 on"):
        writing.task(numbered(range(15)), attempt=1)
    with pytest.raises(InputChangedError, match="from chunk 0 on"):
        writing.task([], attempt=1)
    assert shelf.numbers() == list(range(40))


def test_a_chunk_that_another_attempt_filled_otherwise_meanwhile_is_noticed(
    writing: Writing, shelf: Shelf
) -> None:
    """Neither had seen the other's when it began."""

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from batches(writing.schema, numbered(range(20)))
        writing.task(numbered([*range(20), *range(500, 520)]), attempt=1)
        yield from batches(writing.schema, numbered(range(20, 40)))

    with pytest.raises(InputChangedError, match="from chunk 2 on"):
        writing.feed(overtaken())
    assert shelf.numbers() == [*range(20), *range(500, 520)]


def test_more_rows_of_an_attempt_that_lost_are_noticed_by_the_commit(
    writing: Writing, shelf: Shelf
) -> None:
    """A whole chunk more: nothing that it has in common with the winner differs."""
    told = writing.task(numbered(range(20)))
    writing.task(numbered(range(30)), attempt=1)
    with pytest.raises(StoreError, match="brought 20 rows, and Redis has counted 30"):
        writing.commit(told)
    assert shelf.run(writing.run)["state"] == "open"


# -- the same run again ----------------------------------------------------------------------------


def test_a_run_that_is_done_is_not_done_again(writing: Writing, shelf: Shelf) -> None:
    writing.commit(writing.task(numbered(range(25))))
    before = shelf.run(writing.run)
    again = writing.again()
    told = [again.task(numbered(range(25))), again.task(numbered(range(70, 75)), 1)]
    assert [one.rows for one in told] == [None, None]
    again.commit(*told)
    assert shelf.numbers() == list(range(25))
    assert shelf.run(writing.run) == before


def test_a_run_that_was_aborted_goes_on(
    writing: Writing, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    rows = numbered(range(80))
    broken(writing, rows, 50)
    came_in = len(shelf.numbers())
    assert 0 < came_in < 80
    writing.way().abort([None])
    assert f"{came_in} rows came in, and stay; write again with runId={writing.run.run_id}" in (
        caplog.text
    )
    again = writing.again()
    again.commit(again.task(rows))
    assert shelf.numbers() == list(range(80))


def test_a_run_id_with_other_partitions_is_noticed(writing: Writing) -> None:
    writing.task(numbered(range(10)), 0)
    writing.task(numbered(range(10, 20)), 1)
    again = writing.again()
    told = again.task(numbered(range(10)), 0)
    with pytest.raises(StoreError, match="an earlier write under this runId had other partitions"):
        again.commit(told)


@pytest.mark.parametrize(
    "other",
    [{"chunkRows": 20}, {"chunkRows": 7}, {"chunkBytes": 300}, {"rowsPerSecond": 1e6}],
    ids=str,
)
def test_what_is_in_is_known_in_whatever_chunks_it_came(
    writing: Writing, shelf: Shelf, other: dict[str, float]
) -> None:
    rows = numbered(range(95))
    broken(writing, rows, 60)
    assert 0 < len(shelf.numbers()) < 95
    again = writing.again(**other)
    again.commit(again.task(rows))
    assert shelf.numbers() == list(range(95))


@pytest.mark.parametrize("given", [0, 3, 12, 57, 94])
def test_an_attempt_whose_rows_broke_off_takes_that_for_their_end(
    writing: Writing, shelf: Shelf, given: int
) -> None:
    """Spark tells a task nothing of a failure in front of it: its rows just end. What it then
    brings in is a chunk that the next attempt would not have made."""
    rows = numbered(range(95))
    writing.task(rows[:given])
    assert shelf.numbers() == list(range(given))
    writing.commit(writing.task(rows, attempt=1))
    assert shelf.numbers() == list(range(95))


def test_such_a_chunk_with_other_rows_is_noticed(writing: Writing, shelf: Shelf) -> None:
    rows = numbered(range(95))
    writing.task(rows[:57])
    rows[55], rows[56] = rows[56], rows[55]
    with pytest.raises(InputChangedError, match="differs from chunk 5 on"):
        writing.task(rows, attempt=1)
    assert shelf.numbers() == list(range(57))


def test_a_run_id_of_another_way_is_refused(writing: Writing, shelf: Shelf) -> None:
    broken(writing, numbered(range(30)), 21)
    came_in = shelf.numbers()
    other = Writing(
        writing.options.where.url or "",
        writing.run.queue,
        {"key": StringType()},
        writing.run.run_id,
        idColumn="key",
    )
    with pytest.raises(ConfigError, match="was begun with commitMode=direct"):
        other.task(numbered(range(30), key="x"))
    assert shelf.numbers() == came_in


def test_abort_says_so_when_it_cannot_ask(
    writing: Writing, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chasquimq.spark.write.close.ABORT_S", 0.0)
    nowhere = Writing("redis://127.0.0.1:1", "mail")
    nowhere.way().abort([])
    assert "and so did asking how far it got" in caplog.text


def test_totals_are_told(writing: Writing, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    told = writing.task(numbered(range(12)))
    writing.commit(told)
    assert f"queue {writing.run.queue} got 12 rows, 0 were skipped" in caplog.text
    writing.again().commit(writing.again().task(numbered(range(12))))
    assert "was done before: nothing was added" in caplog.text


# -- beside that ----------------------------------------------------------------------------------


def test_chunks_are_bounded_by_bytes_too(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    writing = Writing(dialect_server.url, queue_name, chunkRows=1_000, chunkBytes=1_000)
    rows = numbered(range(50))
    for row in rows:
        row["payload"]["text"] = "x" * 300
    told = writing.task(rows)
    marker = shelf.client.strlen(writing.run.marker(0))
    assert int(marker) // 16 == 25
    writing.commit(told)
    assert shelf.numbers() == list(range(50))


def test_what_is_pickled_holds_no_connection(writing: Writing, shelf: Shelf) -> None:
    """The way travels from the driver to every task."""
    way = pickle.loads(pickle.dumps(writing.way()))
    way.write(0, 0, batches(writing.schema, numbered(range(5))))
    assert shelf.numbers() == list(range(5))
