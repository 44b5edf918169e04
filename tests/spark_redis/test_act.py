"""What a task does to dead jobs, without Spark: at once, after lost answers, in other runs."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from chasquimq import wire
from chasquimq.job import Envelope
from chasquimq.spark.act.choice import PAGES
from chasquimq.spark.act.task import NOTES_MS, SCRIPTS, Order, acting, notes_key
from chasquimq.spark.client import Client
from chasquimq.spark.secret import Where
from chasquimq.wire import Keys
from tests.servers import DialectServer

AT_ONCE = 4


class Grave:
    """A DLQ whose jobs have numbers for data."""

    def __init__(self, server: DialectServer, queue: str) -> None:
        self.url, self.keys, self.redis = server.url, Keys(queue), server.client()

    def bury(self, count: int, unique: bytes = b"") -> list[str]:
        return [self._bury(number, unique) for number in range(count)]

    def _bury(self, number: int, unique: bytes) -> str:
        body = wire.pack_envelope(Envelope(f"job-{number}", wire.encode(number), 7, 3))
        fields = wire.pack_dead(body, b"n", b"1-1", "unrecoverable", unique=unique)
        return self.redis.execute_command("XADD", self.keys.dlq, "*", *fields).decode()

    def fields(self, entry_id: str) -> list[bytes]:
        [(_, found)] = self.redis.xrange(self.keys.dlq, entry_id, entry_id)
        return [part for pair in found.items() for part in pair]

    @property
    def waiting(self) -> list[int]:
        rows = self.redis.xrange(self.keys.stream)
        return [wire.decode(wire.unpack_envelope(row[b"d"]).payload) for _, row in rows]

    def order(self, verb: Any = "replay") -> Order:
        return Order(verb, Where(url=self.url), uuid.uuid4().hex)

    def act(self, order: Order, entry_ids: list[str]) -> list[str]:
        """As a task whose one page has these."""
        page = {"bit": 0, "queue": self.keys.queue, "entry_ids": entry_ids}
        batches = iter([pa.RecordBatch.from_pylist([page], PAGES)])
        return [word for told in acting(order)(batches) for word in told["outcome"].to_pylist()]


@pytest.fixture
def grave(dialect_server: DialectServer, queue_name: str) -> Grave:
    return Grave(dialect_server, queue_name)


def test_a_call_whose_answer_was_lost_is_sent_again_and_answered_the_same(grave: Grave) -> None:
    [entry_id] = grave.bury(1)
    keys, order = grave.keys, grave.order()
    notes = notes_key(keys, order.run)
    revival = wire.revive(entry_id, grave.fields(entry_id))
    with Client(Where(url=grave.url).address(), SCRIPTS) as client:
        args = [NOTES_MS, 5, *revival.args(keys)]
        for _ in range(3):
            assert client.run("spark_replay", [keys.dlq, keys.stream, notes], args) == [1]
        other = notes_key(keys, "other")
        assert client.run("spark_replay", [keys.dlq, keys.stream, other], args) == [0]
    assert grave.waiting == [0]
    assert grave.redis.bitcount(notes) == 1 and 0 < grave.redis.pttl(notes) <= NOTES_MS


def test_a_purge_whose_answer_was_lost_is_answered_the_same(grave: Grave) -> None:
    first, second = grave.bury(2)
    notes = notes_key(grave.keys, "run")
    with Client(Where(url=grave.url).address(), SCRIPTS) as client:
        for _ in range(3):
            assert client.run(
                "spark_purge", [grave.keys.dlq, notes], [NOTES_MS, 0, first, 1, "5-5"]
            ) == [1, 0]
    assert [row.decode() for row, _ in grave.redis.xrange(grave.keys.dlq)] == [second]


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_attempts_that_run_at_once_do_each_job_once_and_all_tell_it(
    grave: Grave, verb: str
) -> None:
    """Spark may run a task twice at once, to be faster."""
    entry_ids = grave.bury(100)
    order = grave.order(verb)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = list(pool.map(lambda _: grave.act(order, entry_ids), range(AT_ONCE)))
    done = "replayed" if verb == "replay" else "purged"
    assert told == [[done] * 100] * AT_ONCE
    assert sorted(grave.waiting) == (list(range(100)) if verb == "replay" else [])
    assert grave.redis.xlen(grave.keys.dlq) == 0


def test_two_runs_at_once_share_the_jobs_and_no_job_is_told_twice(grave: Grave) -> None:
    entry_ids = grave.bury(100)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = list(pool.map(lambda _: grave.act(grave.order(), entry_ids), range(AT_ONCE)))
    assert {word for words in told for word in words} <= {"replayed", "gone"}
    assert all(sorted(words).count("replayed") == 1 for words in zip(*told, strict=True))
    assert sorted(grave.waiting) == list(range(100))


def test_of_two_dead_jobs_with_one_unique_id_one_comes_back(grave: Grave) -> None:
    first = grave.bury(1, b"60")
    second = grave.bury(1, b"60")
    assert grave.act(grave.order(), first + second) == ["replayed", "taken"]
    assert grave.waiting == [0] and grave.redis.xlen(grave.keys.dlq) == 1
    assert 0 < grave.redis.ttl(grave.keys.unique("job-0")) <= 60
