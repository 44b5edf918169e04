"""What staged rows may say: names, delays, ids; and batches of streams, which are done for ever."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DataType, LongType, StringType

from chasquimq import Queue, wire
from chasquimq.spark.client import Client
from chasquimq.spark.write import run as runs
from chasquimq.spark.write.run import run_of_batch
from tests.servers import DialectServer
from tests.spark_redis.staging import NUMBERS, Shelf, Write, payload

LATER: dict[str, DataType] = {
    **NUMBERS,
    "name": StringType(),
    "delay_ms": LongType(),
    "id": StringType(),
}
MINUTE = 60_000


@pytest.fixture
def shelf(dialect_server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(dialect_server.client(), queue_name)


def now_ms(shelf: Shelf) -> int:
    seconds, micros = shelf.client.time()
    return int(seconds) * 1000 + int(micros) // 1000


async def test_delays_count_from_the_move(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    write = Write(dialect_server.url, queue_name, columns=LATER)
    stage = write.stage(
        0,
        [
            (0, "mail", None, None),
            (1, None, MINUTE, None),
            (2, "mail", MINUTE * 2, "own"),
            (3, None, None, "also-own"),
        ],
    )
    before = now_ms(shelf)
    write.commit(stage)
    after = now_ms(shelf)
    entries = [fields for _, fields in shelf.client.xrange(shelf.keys.stream)]
    assert [(payload(one[b"d"]), one.get(b"n")) for one in entries] == [(0, b"mail"), (3, None)]
    members = shelf.client.zrange(shelf.keys.delayed, 0, -1, withscores=True)
    (first, due), (second, later) = members
    assert before + MINUTE <= due <= after + MINUTE
    assert before + MINUTE * 2 <= later <= after + MINUTE * 2
    assert [wire.split_member(one)[0] for one in (first, second)] == [b"", b"mail"]
    assert [payload(wire.split_member(one)[1]) for one in (first, second)] == [1, 2]
    derived = wire.unpack_envelope(wire.split_member(first)[1]).id
    async with Queue(queue_name, redis_url=dialect_server.url) as queue:
        assert await queue.cancel_delayed(derived)  # so it is found by its id
        assert await queue.cancel_delayed("own")
    assert shelf.client.zcard(shelf.keys.delayed) == 0


def test_a_delayed_id_that_is_taken_is_skipped(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    write = Write(dialect_server.url, queue_name, columns=LATER)
    write.commit(
        write.stage(0, [(1, None, MINUTE, "a"), (2, None, MINUTE, "a"), (3, "n", 0, None)])
    )
    told = shelf.run(write.run)
    assert (told[b"rows"], told[b"skipped"], told[b"moved"]) == (b"2", b"1", b"3")
    [member] = shelf.client.zrange(shelf.keys.delayed, 0, -1)
    assert payload(wire.split_member(member)[1]) == 1


def test_delayed_rows_need_no_room_in_the_stream(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    write = Write(dialect_server.url, queue_name, columns=LATER, max_stream_len=4, on_full="fail")
    rows = [(number, None, MINUTE, None) for number in range(20)]
    write.commit(write.stage(0, [*((99, None, None, None) for _ in range(4)), *rows]))
    assert (shelf.payloads(), shelf.client.zcard(shelf.keys.delayed)) == ([99] * 4, 20)


def test_a_batch_of_a_stream_is_done_for_ever(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    def batch(number: int) -> Write:
        run = run_of_batch(queue_name, "query", number)
        return Write(dialect_server.url, queue_name, run=run)

    for number in range(3):
        write = batch(number)
        write.commit(write.stage(0, [number]))
        assert shelf.client.hget(write.run.queries, "query") == b"%d" % number
        shelf.client.delete(write.run.key)  # as time does
    for number in (0, 2):
        again = batch(number)
        stage = again.stage(0, [100 + number])
        assert (stage.state, stage.rows) == ("done", 0)
        again.commit(stage)
    assert shelf.payloads() == [0, 1, 2]
    with Client(write.options.where.address(), runs.SCRIPTS) as client:
        runs.finish(client, batch(1).run, MINUTE)
    assert shelf.client.hget(write.run.queries, "query") == b"2"  # never back
    other = Write(dialect_server.url, queue_name, run=run_of_batch(queue_name, "other", 0))
    other.commit(other.stage(0, [7]))
    assert shelf.payloads() == [0, 1, 2, 7]
    assert shelf.client.pttl(write.run.queries) == -1
