"""commitMode=staged on real servers: nothing is seen before the manifest, then each row once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from chasquimq import wire
from chasquimq.errors import ConfigError, QueueFullError, StoreError
from chasquimq.spark.client import Client
from chasquimq.spark.write import run as runs
from chasquimq.spark.write.run import Run
from chasquimq.spark.write.staged import SCRIPTS, Stage
from tests.chaos.kit.wait import eventually
from tests.servers import DialectServer
from tests.spark_redis.staging import TEXTS, Shelf, Write


@pytest.fixture
def shelf(dialect_server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(dialect_server.client(), queue_name)


@pytest.fixture
def write(dialect_server: DialectServer, queue_name: str) -> Write:
    return Write(dialect_server.url, queue_name, chunk_rows=10)


def test_rows_come_in_when_all_tasks_have_ended(write: Write, shelf: Shelf) -> None:
    stages = [write.stage(part, range(part * 100, part * 100 + 25)) for part in range(3)]
    assert shelf.payloads() == []
    assert {stage.rows for stage in stages} == {25}
    write.commit(*stages)
    wanted = [*range(25), *range(100, 125), *range(200, 225)]
    assert shelf.payloads() == wanted  # partition by partition, each in its order
    assert shelf.left() == set()
    told = shelf.run(write.run)
    assert (told[b"state"], told[b"rows"], told[b"total"]) == (b"done", b"75", b"75")
    assert 0 < shelf.client.pttl(write.run.key) <= write.options.marker_ttl_ms


def test_a_queue_takes_them_as_it_takes_those_of_others(write: Write, shelf: Shelf) -> None:
    write.commit(write.stage(0, range(3)))
    rows = shelf.client.xrange(shelf.keys.stream)
    envelopes = [wire.unpack_envelope(fields[b"d"]) for _, fields in rows]
    assert [set(fields) for _, fields in rows] == [{b"d"}] * 3
    assert len({envelope.id for envelope in envelopes}) == 3
    assert {envelope.attempt for envelope in envelopes} == {0}


def test_of_each_partition_one_attempt_counts(write: Write, shelf: Shelf) -> None:
    write.stage(0, range(1000, 1035))  # failed later, or was too slow
    write.stage(0, range(2000, 2005), attempt=1)
    winner = write.stage(0, range(12), attempt=2)
    other = write.stage(1, [100, 101])
    write.commit(winner, other)
    assert shelf.payloads() == [*range(12), 100, 101]
    assert shelf.left() == set()


def test_attempts_of_one_number_do_not_meet(write: Write, shelf: Shelf) -> None:
    """A driver that runs the same run again counts its attempts from 0, too."""
    write.stage(0, range(1000, 1025))
    write.commit(write.stage(0, range(5)))
    assert shelf.payloads() == [0, 1, 2, 3, 4]


def test_empty_tasks_and_empty_writes_are_fine(
    write: Write, shelf: Shelf, dialect_server: DialectServer
) -> None:
    write.commit(write.stage(0, []), write.stage(1, [1]), write.stage(2, []))
    assert shelf.payloads() == [1]
    for number, tasks in enumerate((0, 2)):
        empty = Write(dialect_server.url, write.run.queue, f"empty-{number}")
        empty.commit(*(empty.stage(part, []) for part in range(tasks)))
        assert shelf.state(empty.run) == "done"
    assert shelf.payloads() == [1]
    assert shelf.left() == set()


def test_a_run_that_is_done_adds_nothing_when_it_runs_again(write: Write, shelf: Shelf) -> None:
    write.commit(write.stage(0, range(5)))
    again = write.stage(0, range(7), attempt=1)
    assert (again.state, again.rows) == ("done", 0)
    write.commit(again)
    assert shelf.payloads() == [0, 1, 2, 3, 4]
    assert shelf.left() == set()


def test_a_task_that_is_late_adds_nothing(write: Write, shelf: Shelf) -> None:
    """It began while the run was open, and stages on when the manifest is there, and later."""
    before, after = threading.Event(), threading.Event()
    told: list[Stage] = []

    def slow() -> Iterator[int]:
        yield from range(1000, 1020)
        before.set()
        assert after.wait(30)
        yield from range(2000, 2100)

    task = threading.Thread(
        daemon=True, target=lambda: told.append(write.stage(0, slow(), attempt=1))
    )
    task.start()
    assert before.wait(30)
    write.commit(write.stage(0, range(5)))
    after.set()
    task.join(30)
    assert told[0].state == "moving"
    write.commit(told[0])  # its driver, too, learns that the run has its rows
    assert shelf.payloads() == [0, 1, 2, 3, 4]
    assert shelf.left() == set()


def test_a_stage_that_goes_while_it_is_written_fails_its_task(write: Write, shelf: Shelf) -> None:
    def rows() -> Iterator[int]:
        yield from range(100)
        eventually(lambda: shelf.client.exists(write.run.stages))
        shelf.client.delete(*shelf.client.smembers(write.run.stages))  # type: ignore[misc]
        yield from range(100, 200)

    with pytest.raises(StoreError, match="aborted meanwhile, or expired"):
        write.stage(0, rows())


def test_what_is_open_expires_and_what_is_promised_does_not(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    write = Write(dialect_server.url, queue_name, marker_ttl_ms=60_000, max_stream_len=40)
    stage, loser = write.stage(0, range(50)), write.stage(0, range(50), attempt=1)
    run = write.run
    for key in (run.key, run.stages, stage.key, loser.key):
        assert 0 < shelf.client.pttl(key) <= 60_000
    full = Write(dialect_server.url, queue_name, max_stream_len=40, on_full="fail")
    with pytest.raises(QueueFullError):
        full.commit(stage)
    for key in (run.key, run.manifest, stage.key):
        assert shelf.client.pttl(key) == -1
    assert 0 < shelf.client.pttl(loser.key) <= 60_000
    # A task of a second driver, which asks whether it has something to do, does not change that.
    assert write.stage(1, range(3)).state == "moving"
    for key in (run.key, run.manifest, stage.key):
        assert shelf.client.pttl(key) == -1


def test_what_has_expired_is_not_taken_for_nothing(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    write = Write(dialect_server.url, queue_name)
    stages = [write.stage(part, range(5)) for part in range(2)]
    shelf.client.pexpire(stages[1].key, 1)
    eventually(lambda: not shelf.client.exists(stages[1].key))
    with pytest.raises(StoreError, match=r"partition 1 of run run has staged is gone.*markerTtlMs"):
        write.commit(*stages)
    assert (shelf.payloads(), shelf.state(write.run)) == ([], "open")
    shelf.client.delete(write.run.key)
    with pytest.raises(StoreError, match="aborted meanwhile, or expired"):
        write.commit(stages[0])
    assert shelf.payloads() == []


def test_a_task_that_said_nothing_is_no_empty_task(write: Write, shelf: Shelf) -> None:
    stage = write.stage(0, range(5))
    with pytest.raises(StoreError, match="has not said what it staged"):
        write.way.commit([stage, None])
    assert (shelf.payloads(), shelf.state(write.run)) == ([], "open")


def test_an_abort_deletes_all_that_was_staged(write: Write, shelf: Shelf) -> None:
    stages = [write.stage(part, range(25)) for part in range(3)]
    write.stage(2, range(5), attempt=1)
    write.way.abort([stages[0], None, None])
    assert (shelf.payloads(), shelf.left(), shelf.run(write.run)) == ([], set(), {})
    with pytest.raises(StoreError, match="aborted meanwhile"):
        write.commit(*stages)
    again = Write(write.options.where.url, write.run.queue)  # the same run, tried again
    again.commit(again.stage(0, range(4)))
    assert shelf.payloads() == [0, 1, 2, 3]


def test_a_task_that_begins_after_the_abort_stages_nothing(write: Write, shelf: Shelf) -> None:
    """Spark may start it while the driver gives up: nobody is left to drop what it would stage."""
    begun = threading.Event()
    late: list[str] = []

    def slow() -> Iterator[int]:
        """Of a task that has begun, and has not staged anything."""
        begun.set()
        eventually(lambda: late)
        yield from range(25)

    def straggle() -> None:
        with pytest.raises(StoreError, match="aborted meanwhile"):
            write.stage(1, slow())

    write.stage(0, range(25))
    straggler = threading.Thread(daemon=True, target=straggle)
    straggler.start()
    assert begun.wait(30)
    write.way.abort([None, None, None])
    for _ in range(2):
        with pytest.raises(StoreError, match="was aborted before this task began"):
            write.stage(2, range(25))
    late.append("too late")
    straggler.join(30)
    assert (shelf.left(), shelf.run(write.run), shelf.payloads()) == (set(), {}, [])
    [mark] = shelf.aborted()
    assert 0 < shelf.client.pttl(shelf.keys.tag + b"spark:" + mark) <= 3_600_000


def test_who_writes_an_aborted_run_again_is_not_taken_for_a_straggler(
    write: Write, shelf: Shelf, dialect_server: DialectServer
) -> None:
    """Nor can the first driver's tasks, which may still begin, harm the second's run."""
    write.stage(0, range(1000, 1025))
    write.way.abort([None])
    again = Write(dialect_server.url, write.run.queue)
    stages = [again.stage(part, range(part * 5, part * 5 + 5)) for part in range(2)]
    with pytest.raises(StoreError, match="was aborted before this task began"):
        write.stage(1, range(2000, 2025))
    again.commit(*stages)
    assert (shelf.payloads(), shelf.left()) == (list(range(10)), set())
    with pytest.raises(StoreError, match="was aborted before this task began"):
        write.stage(1, range(2000, 2025))


def test_an_abort_leaves_what_is_promised(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    """Spark aborts when a commit fails, be it after the manifest."""
    write = Write(dialect_server.url, queue_name, max_stream_len=40, chunk_rows=7, on_full="fail")
    stage = write.stage(0, range(60))
    with pytest.raises(QueueFullError):
        write.commit(stage)
    write.way.abort([stage])
    seen = shelf.payloads()
    assert seen == list(range(len(seen))) and 0 < len(seen) <= 40
    again = Write(dialect_server.url, queue_name)
    again.commit(again.stage(0, range(500, 560)))
    assert shelf.payloads() == list(range(60))


def test_a_full_queue_is_waited_for_and_then_said(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    write = Write(dialect_server.url, queue_name, max_stream_len=40, wait_timeout_ms=50)
    stage = write.stage(0, range(100))
    with pytest.raises(QueueFullError) as raised:
        write.commit(stage)
    text = str(raised.value)
    assert "CHASQUI_QUEUE_FULL" in text and "40 of the 100 rows of run run are in" in text
    assert f"chasqui spark recover {queue_name} run" in text
    patient = Write(dialect_server.url, queue_name, max_stream_len=40, wait_timeout_ms=60_000)
    driver = threading.Thread(daemon=True, target=lambda: patient.commit(patient.stage(0, [])))
    driver.start()
    taken = []
    while driver.is_alive():
        assert shelf.depth() <= 40
        taken += shelf.take(3)
        time.sleep(0.001)
    assert taken + shelf.payloads() == list(range(100))
    assert shelf.state(write.run) == "done"


def test_one_run_is_not_written_in_two_ways(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    with Client(Write(dialect_server.url, queue_name).options.where.address(), runs.SCRIPTS) as one:
        run = Run(queue_name, "run")
        runs.begin(one, run, "direct", 0, 60_000)
        write = Write(dialect_server.url, queue_name)
        with pytest.raises(ConfigError, match=r"begun with commitMode=direct.*another runId"):
            write.stage(0, range(5))
        runs.finish(one, run, 60_000)
        assert write.stage(0, range(5)).state == "done"  # it is in, however it was written
    assert shelf.payloads() == []


def test_calls_of_a_driver_that_was_thought_dead_are_harmless(write: Write, shelf: Shelf) -> None:
    """It moves and ends a run that is done, forgotten, and has begun anew in another driver."""
    stage, run = write.stage(0, range(5)), write.run
    with Client(write.options.where.address(), SCRIPTS) as client:
        moved = client.run("spark_move", [run.key, stage.key, shelf.keys.stream], [1_000, 0, 0])
        assert (moved[0], shelf.payloads()) == (0, [])
        with pytest.raises(StoreError, match="has begun anew"):
            runs.finish(client, run, 60_000)
        assert shelf.state(run) == "open"
        keys = [run.key, run.manifest, stage.key]
        for _ in range(2):  # sent again, it finds its own manifest
            assert client.run("spark_commit", keys, [1_000, 0, 60_000, 0, 5])[0] == 1
    write.commit(stage)
    assert shelf.payloads() == [0, 1, 2, 3, 4]


def test_rows_of_a_megabyte_are_moved_one_by_one(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    texts = [chr(97 + number) * 1_000_000 for number in range(12)]
    large = Write(dialect_server.url, queue_name, columns=TEXTS, max_payload_bytes=4_000_000)
    stage = large.stage(0, texts)
    ids = [entry_id for entry_id, _ in shelf.client.xrange(stage.key)]
    assert ids == [b"%d-1" % number for number in range(1, 13)]  # a chunk each
    large.commit(stage)
    assert shelf.payloads() == texts
