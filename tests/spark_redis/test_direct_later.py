"""Rows that are to run later: in Redis they look as if Queue.add had brought them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from pyspark.sql.types import LongType, StringType, TimestampType

from chasquimq import Job, Queue, Worker, wire
from chasquimq.job import BackoffSpec
from chasquimq.wire import Keys
from tests.servers import DialectServer
from tests.spark_redis.writing import Found, Shelf, Writing, numbered, schema_of

COLUMNS = {"name": StringType(), "id": StringType(), "delay_ms": LongType()}
HOUR_MS = 3_600_000


@pytest.fixture
def shelf(dialect_server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(dialect_server.client(), queue_name)


@pytest.fixture
def writing(dialect_server: DialectServer, queue_name: str) -> Writing:
    return Writing(dialect_server.url, queue_name, COLUMNS)


def events(client: redis.Redis, queue: str) -> list[dict[str, str]]:
    rows: Any = client.xrange(Keys(queue).events)
    return [{key.decode(): value.decode() for key, value in fields.items()} for _, fields in rows]


def now_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds * 1000 + micros // 1000)


def index_of(client: redis.Redis, queue: str, job_id: str) -> tuple[bytes, int]:
    key = Keys(queue).didx(job_id)
    return client.get(key), client.ttl(key)


# -- as a queue does it ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mail", "", "ñandú-名前"])
@pytest.mark.parametrize("job_id", [None, "order-7", "o" * 300])
async def test_it_lies_there_as_if_a_queue_had_added_it(
    dialect_server: DialectServer, queue_name: str, name: str, job_id: str | None
) -> None:
    client, other = dialect_server.client(), f"{queue_name}-other"
    async with Queue(other, redis_url=dialect_server.url) as queue:
        data = {"n": 1, "text": "row 1"}
        job = await queue.add(name, data, delay_ms=HOUR_MS, job_id=job_id)
    writing = Writing(dialect_server.url, queue_name, COLUMNS)
    writing.task(numbered([1], name=name, id=job_id, delay_ms=HOUR_MS))

    [theirs], [ours] = Shelf(client, other).delayed(), Shelf(client, queue_name).delayed()
    assert (ours.name, ours.payload) == (theirs.name, theirs.payload) == (name, data)
    assert abs(_wait(ours) - HOUR_MS) < 60_000
    our_id = job_id or ours.envelope.id
    (our_index, our_ttl), (their_index, their_ttl) = (
        index_of(client, queue_name, our_id),
        index_of(client, other, job.id),
    )
    assert abs(our_ttl - their_ttl) <= 60
    [our_member], [their_member] = (
        client.zrange(Keys(one).delayed, 0, -1) for one in (queue_name, other)
    )
    if job_id is not None:
        assert (our_index, their_index) == (our_member, their_member)
        ours_dlid, theirs_dlid = (client.get(Keys(q).dlid(job_id)) for q in (queue_name, other))
        assert ours_dlid == theirs_dlid == b"1"
        ttls = [int(client.ttl(Keys(q).dlid(job_id))) for q in (queue_name, other)]
        assert abs(ttls[0] - ttls[1]) <= 60
    else:
        front = our_member[: wire.before_id(our_member, our_id.encode())]
        assert our_index == b"%d " % (ours.due_ms or 0) + front
        assert their_index.partition(b" ")[2] == front
    [said], [told] = events(client, queue_name), events(client, other)
    assert said.keys() == told.keys()
    assert (said["e"], said["id"], said.get("n", "")) == ("delayed", our_id, name)
    assert abs(int(said["delay_ms"]) - HOUR_MS) < 60_000


def _wait(job: Found) -> int:
    return (job.due_ms or 0) - job.envelope.created_at_ms


async def test_a_queue_finds_moves_and_cancels_what_spark_wrote(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, writing: Writing
) -> None:
    rows = numbered(range(30), name="mail", id=None, delay_ms=HOUR_MS)
    rows += [numbered([n], name="mail", id=f"own-{n}", delay_ms=HOUR_MS)[0] for n in range(30, 60)]
    writing.commit(writing.task(rows))
    ids = {job.payload["n"]: job.envelope.id for job in shelf.delayed()}
    assert sorted(ids) == list(range(60))
    async with Queue(queue_name, redis_url=dialect_server.url) as queue:
        for number in (0, 29, 30, 59):
            assert await queue.reschedule(ids[number], delay_ms=2 * HOUR_MS)
            assert await queue.cancel_delayed(ids[number])
            assert not await queue.cancel_delayed(ids[number])
    left = sorted(job.payload["n"] for job in shelf.delayed())
    assert left == [number for number in range(60) if number not in (0, 29, 30, 59)]


def test_an_id_that_is_scheduled_already_is_skipped_and_counted(
    shelf: Shelf, writing: Writing
) -> None:
    """Queue.add does so, too: the second would hide the first from whoever wants to cancel it."""
    rows = numbered([1, 2, 3], name="", id="a", delay_ms=HOUR_MS)
    rows += numbered([4], name="", id="b", delay_ms=HOUR_MS)
    rows += numbered([5], name="", id="a", delay_ms=0)  # at once, any number may have it
    told = writing.task(rows)
    assert sorted(job.payload["n"] for job in shelf.delayed()) == [1, 4]
    assert shelf.numbers() == [5]
    writing.commit(told)
    run = shelf.run(writing.run)
    assert (run["rows"], run["skipped"]) == ("3", "2")


def test_a_time_that_has_passed_is_at_once(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    writing = Writing(dialect_server.url, queue_name, {"run_at": TimestampType()})
    now = datetime.now(UTC)
    moments = [None, now - timedelta(days=1), now + timedelta(days=1), now]
    writing.task([numbered([n], run_at=moment)[0] for n, moment in enumerate(moments)])
    assert shelf.numbers() == [0, 1, 3]
    [later] = shelf.delayed()
    assert later.payload["n"] == 2
    assert later.due_ms == int((now + timedelta(days=1)).timestamp() * 1000)


def test_a_delay_counts_from_when_it_came_in_by_redis_clock(shelf: Shelf, writing: Writing) -> None:
    before = now_ms(shelf.client)
    writing.task(numbered([1], name="", id=None, delay_ms=5_000_000))
    [job] = shelf.delayed()
    assert before + 5_000_000 <= (job.due_ms or 0) <= now_ms(shelf.client) + 5_000_000


def test_attempts_schedule_each_row_once(shelf: Shelf, writing: Writing) -> None:
    """The time of the first one counts."""
    rows = numbered(range(40), name="x", id=None, delay_ms=HOUR_MS)
    writing.task(rows)
    first = shelf.delayed()
    writing.task(rows, attempt=1)
    assert shelf.delayed() == first
    assert len(events(shelf.client, writing.run.queue)) == 40


def test_events_may_be_left_out(dialect_server: DialectServer, queue_name: str) -> None:
    writing = Writing(dialect_server.url, queue_name, COLUMNS, eventsMaxStreamLen=0)
    writing.task(numbered(range(5), name="x", id=None, delay_ms=HOUR_MS))
    client = dialect_server.client()
    assert events(client, queue_name) == []
    many = Writing(dialect_server.url, queue_name, COLUMNS, eventsMaxStreamLen=100, chunkRows=250)
    many.task(numbered(range(1_000), name="x", id=None, delay_ms=HOUR_MS))
    assert 100 <= len(events(client, queue_name)) < 400  # trimmed by whole nodes


def test_what_befalls_an_event_befalls_it_alone(shelf: Shelf, writing: Writing) -> None:
    shelf.client.set(shelf.keys.events, "no stream")
    writing.commit(writing.task(numbered(range(5), name="", id=None, delay_ms=HOUR_MS)))
    assert len(shelf.delayed()) == 5


def test_the_promoter_is_woken_by_a_new_first(
    dialect_server: DialectServer, shelf: Shelf, writing: Writing
) -> None:
    listener = dialect_server.client(socket_timeout=20).pubsub(ignore_subscribe_messages=True)
    with listener:
        listener.subscribe(shelf.keys.wake)
        while listener.get_message(timeout=20) is not None:
            pass  # the subscription's own answer

        def told() -> int:
            count = 0
            shelf.client.publish(shelf.keys.wake, "end")
            while (message := listener.get_message(timeout=20)) is None or message[
                "data"
            ] != b"end":
                count += message is not None
            return count

        writing.task(numbered(range(20), name="", id=None, delay_ms=2 * HOUR_MS))
        assert told() in (1, 2)  # the second chunk's are due at the same ms, or later
        writing.task(numbered([1], name="", id=None, delay_ms=3 * HOUR_MS), 1)
        assert told() == 0
        writing.task(numbered([1], name="", id=None, delay_ms=HOUR_MS), 2)
        assert told() == 1


# -- by a worker -----------------------------------------------------------------------------------


async def test_a_worker_runs_them_at_their_time_by_their_own_rules(
    dialect_server: DialectServer, queue_name: str
) -> None:
    columns = {
        "name": StringType(),
        "delay_ms": LongType(),
        "max_attempts": LongType(),
        "backoff": schema_of(kind=StringType(), delay_ms=LongType()),
    }
    writing = Writing(dialect_server.url, queue_name, columns)
    fast = {"kind": "fixed", "delay_ms": 1}
    rows = numbered([0], name="fails", delay_ms=None, max_attempts=3, backoff=fast)
    rows += numbered([1], name="fails", delay_ms=300, max_attempts=1, backoff=None)
    rows += numbered([2], name="works", delay_ms=200, max_attempts=None, backoff=None)
    writing.commit(writing.task(rows))
    [first] = Shelf(dialect_server.client(), queue_name).jobs()
    assert first.envelope.retry is not None
    assert first.envelope.retry.backoff == BackoffSpec("fixed", 1)
    runs: list[tuple[int, str, int]] = []

    async def handle(job: Job) -> None:
        runs.append((job.data["n"], job.name, job.attempt))
        if job.name == "fails":
            raise ValueError("as it should")

    worker = Worker(queue_name, handle, redis_url=dialect_server.url, max_jobs=5)
    await asyncio.wait_for(worker.run(), 60)
    assert sorted(runs) == [
        *((0, "fails", attempt) for attempt in range(3)),
        (1, "fails", 0),
        (2, "works", 0),
    ]
    async with Queue(queue_name, redis_url=dialect_server.url) as queue:
        dead = await queue.peek_dlq()
        assert sorted((entry["attempt"], entry["reason"]) for entry in dead) == [
            (1, "retries_exhausted"),
            (3, "retries_exhausted"),
        ]
