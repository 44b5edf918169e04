"""Servers that are full, out of memory, cut off, restarted or not ours to write to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType, StringType

from chasquimq import Job, Worker
from chasquimq.errors import AccessError, QueueFullError, StoreError
from tests.servers import DialectServer
from tests.spark_redis.writing import Row, Shelf, Writing, batches, numbered
from tests.sync.counter import eventually

BY_ID: tuple[dict[str, DataType], dict[str, str]] = ({"key": LongType()}, {"idColumn": "key"})
WAYS = [pytest.param(({}, {}), id="direct"), pytest.param(BY_ID, id="id")]
Given = tuple[dict[str, DataType], dict[str, str]]


@pytest.fixture
def shelf(dialect_server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(dialect_server.client(), queue_name)


@pytest.fixture(params=WAYS)
def given(request: pytest.FixtureRequest) -> Given:
    """Both ways in which tasks write into the queue themselves."""
    way: Given = request.param
    return way


def start(url: str, queue: str, given: Given, **options: Any) -> Writing:
    columns, more = given
    return Writing(url, queue, columns, **{**more, **options})


def rows_of(writing: Writing, numbers: range) -> list[Row]:
    rows = numbered(numbers)
    for number, row in zip(numbers, rows, strict=True):
        row |= {"key": number} if "key" in writing.schema.names else {}
    return rows


def in_order(writing: Writing, numbers: list[int]) -> list[int]:
    """As they came where chunks follow each other; with ids one may overtake another that waits."""
    return sorted(numbers) if writing.options.id_column else numbers


def when(
    writing: Writing, rows: Sequence[Row], at: int, act: Callable[[], object]
) -> Iterator[pa.RecordBatch]:
    """Batches of ten, and something that happens before the one that begins with row `at`."""
    for first, one in zip(range(0, len(rows), 10), batches(writing.schema, rows), strict=True):
        if first == at:
            act()
        yield one


class Drain:
    """Takes jobs out, and watches how many there are."""

    def __init__(self, server: DialectServer, queue: str, until: int) -> None:
        self.taken: list[int] = []
        self.most = 0
        self._until = until
        self._shelf = Shelf(server.client(socket_timeout=20), queue)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Drain:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)

    def _run(self) -> None:
        deadline = time.monotonic() + 60
        while len(self.taken) < self._until and time.monotonic() < deadline:
            self.most = max(self.most, int(self._shelf.client.xlen(self._shelf.keys.stream)))
            self.taken += self._shelf.drain(4)
            time.sleep(0.002)


# -- a full queue ----------------------------------------------------------------------------------


def test_a_full_queue_is_waited_for_and_its_limit_is_exact(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, given: Given
) -> None:
    writing = start(dialect_server.url, queue_name, given, maxStreamLen=40)
    with Drain(dialect_server, queue_name, 300) as drain:
        told = writing.task(rows_of(writing, range(300)))
    assert in_order(writing, drain.taken) == list(range(300))
    assert drain.most <= 40
    writing.commit(told)
    assert shelf.run(writing.run)["rows"] == "300"


def test_tasks_that_wait_together_get_in_together(
    dialect_server: DialectServer, queue_name: str, given: Given
) -> None:
    writing = start(dialect_server.url, queue_name, given, maxStreamLen=40)
    tasks = [
        threading.Thread(
            target=writing.task,
            args=(rows_of(writing, range(part * 1_000, part * 1_000 + 150)), part),
        )
        for part in range(3)
    ]
    with Drain(dialect_server, queue_name, 450) as drain:
        for task in tasks:
            task.start()
        for task in tasks:
            task.join(60)
    assert drain.most <= 40
    wanted = [part * 1_000 + number for part in range(3) for number in range(150)]
    assert sorted(drain.taken) == wanted


async def test_a_worker_makes_room(
    dialect_server: DialectServer, queue_name: str, given: Given
) -> None:
    writing = start(dialect_server.url, queue_name, given, maxStreamLen=20)
    done: list[int] = []

    async def handle(job: Job) -> None:
        done.append(job.data["n"])

    worker = Worker(queue_name, handle, redis_url=dialect_server.url, concurrency=3, max_jobs=200)
    running = asyncio.create_task(worker.run())
    told = await asyncio.to_thread(writing.task, rows_of(writing, range(200)))
    writing.commit(told)
    await asyncio.wait_for(running, 60)
    assert sorted(done) == list(range(200))


def test_a_queue_that_stays_full_fails_the_task_and_the_next_goes_on(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, given: Given
) -> None:
    writing = start(dialect_server.url, queue_name, given, maxStreamLen=40, waitTimeoutMs=150)
    rows = rows_of(writing, range(100))
    with pytest.raises(
        QueueFullError,
        match=r"CHASQUI_QUEUE_FULL: queue .* holds 40 jobs of at most 40, and had no room for 150",
    ):
        writing.task(rows)
    assert shelf.numbers() == list(range(40))
    with pytest.raises(QueueFullError, match="CHASQUI_QUEUE_FULL"):
        writing.task(rows, attempt=1)
    assert shelf.numbers() == list(range(40))
    with Drain(dialect_server, queue_name, 100) as drain:
        writing.commit(writing.again(waitTimeoutMs=20_000).task(rows, attempt=2))
    assert in_order(writing, drain.taken) == list(range(100))


def test_on_full_fail_does_not_wait(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, given: Given
) -> None:
    writing = start(dialect_server.url, queue_name, given, maxStreamLen=40, onFull="fail")
    with pytest.raises(QueueFullError, match=r"no room for 10 more, of partition 7.*onFull=wait"):
        writing.task(rows_of(writing, range(100)), 7)
    assert shelf.numbers() == list(range(40))


def test_delayed_rows_need_no_room(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    writing = Writing(
        dialect_server.url, queue_name, {"delay_ms": LongType()}, maxStreamLen=8, onFull="fail"
    )
    rows = [numbered([n], delay_ms=None if n % 10 == 0 else 60_000)[0] for n in range(80)]
    writing.task(rows)
    assert shelf.numbers() == list(range(0, 80, 10))
    assert len(shelf.delayed()) == 72
    with pytest.raises(QueueFullError):
        writing.task(numbered([100], delay_ms=0), 1)
    assert len(shelf.jobs()) == 8


def test_room_is_waited_for_by_those_who_need_it(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    """Of a chunk one row goes into the stream: room for one is enough."""
    writing = Writing(dialect_server.url, queue_name, {"delay_ms": LongType()}, maxStreamLen=40)
    writing.task(numbered(range(40), delay_ms=None))
    rows = [numbered([n], delay_ms=60_000 if n % 10 else None)[0] for n in range(100, 120)]
    task = threading.Thread(target=writing.task, args=(rows, 1))
    task.start()
    for _ in range(2):  # there is never room for two
        shelf.drain(1)
        eventually(lambda: len(shelf.jobs()) == 40)
    task.join(60)
    assert shelf.numbers() == [*range(2, 40), 100, 110]


def test_who_waits_is_not_forgotten(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    writing = Writing(dialect_server.url, queue_name, maxStreamLen=40)
    task = threading.Thread(target=writing.task, args=(numbered(range(60)),))
    task.start()
    eventually(lambda: len(shelf.jobs()) == 40)
    for key in (writing.run.key, writing.run.marker(0)):
        shelf.client.pexpire(key, 60_000)
        eventually(lambda key=key: shelf.client.pttl(key) > 60_000)
    assert shelf.drain(40) == list(range(40))
    task.join(60)
    assert shelf.numbers() == list(range(40, 60))


def test_a_limit_below_a_chunk_makes_smaller_chunks(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, given: Given
) -> None:
    writing = start(dialect_server.url, queue_name, given, maxStreamLen=3, chunkRows=250)
    with Drain(dialect_server, queue_name, 20) as drain:
        writing.task(rows_of(writing, range(20)))
    assert in_order(writing, drain.taken) == list(range(20))
    assert drain.most <= 3


def test_what_was_there_before_is_never_trimmed(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, given: Given
) -> None:
    for number in range(50):
        shelf.client.xadd(shelf.keys.stream, {"d": b"%d" % number})
    writing = start(dialect_server.url, queue_name, given, maxStreamLen=40, onFull="fail")
    with pytest.raises(QueueFullError, match="holds 50 jobs of at most 40"):
        writing.task(rows_of(writing, range(5)))
    assert shelf.client.xlen(shelf.keys.stream) == 50


# -- a server that fails ---------------------------------------------------------------------------


def test_a_server_out_of_memory_has_whole_chunks_and_the_next_attempt_the_rest(
    own_server: DialectServer, given: Given
) -> None:
    writing = start(own_server.url, "mail", given)
    shelf = Shelf(own_server.client(), "mail")
    rows = rows_of(writing, range(400))
    for row in rows:
        row["payload"]["text"] = "x" * 5_000
    used = int(shelf.client.info("memory")["used_memory"])
    shelf.client.config_set("maxmemory", used + 900_000)
    with pytest.raises(QueueFullError, match="CHASQUI_QUEUE_FULL: the server is out of memory"):
        writing.task(rows)
    came_in = shelf.numbers()
    assert 0 < len(came_in) < 400
    assert in_order(writing, came_in) == [
        number for number in range(400) if number // 10 * 10 in came_in
    ]
    shelf.client.config_set("maxmemory", 0)
    writing.commit(writing.task(rows, attempt=1))
    assert in_order(writing, shelf.numbers()) == list(range(400))
    assert shelf.run(writing.run)["rows"] == "400"


def kill_connections(server: DialectServer) -> None:
    server.client().client_kill_filter(_type="normal", skipme=True)


def forget_scripts(server: DialectServer) -> None:
    server.client().script_flush()


def kill_server(server: DialectServer) -> None:
    server.server.kill()
    server.server.start()


# One crash, not two: a Redis killed while it writes the effects of a script keeps some of them in
# its append-only file, without their end, and runs them with what follows when it loads that again.
@pytest.mark.parametrize(
    ("act", "at"),
    [(kill_connections, (7, 8, 40)), (forget_scripts, (7, 8, 40)), (kill_server, (30,))],
)
def test_what_breaks_midway_is_mended_by_the_task_itself(
    own_server: DialectServer,
    given: Given,
    act: Callable[[DialectServer], None],
    at: tuple[int, ...],
) -> None:
    writing = start(own_server.url, "mail", given)
    rows = rows_of(writing, range(600))

    def troubled() -> Iterator[pa.RecordBatch]:
        for number, one in enumerate(batches(writing.schema, rows)):
            if number in at:
                act(own_server)
            yield one

    told = writing.feed(troubled())
    assert told.rows == 600
    writing.commit(told)
    shelf = Shelf(own_server.client(socket_timeout=20), "mail")
    assert shelf.numbers() == list(range(600))
    assert shelf.run(writing.run)["rows"] == "600"


def test_a_server_that_comes_back_empty_fails_the_task(own_server: DialectServer) -> None:
    writing = Writing(own_server.url, "mail")
    rows = numbered(range(300))
    client = own_server.client()
    with pytest.raises(StoreError, match="lost its data"):
        writing.feed(when(writing, rows, 200, client.flushall))
    writing.commit(writing.task(rows, attempt=1))
    assert Shelf(client, "mail").numbers() == list(range(300))


# -- a server that is not to be written to -----------------------------------------------------


def test_a_server_that_evicts_keys_is_refused(own_server: DialectServer, given: Given) -> None:
    client = own_server.client()
    client.config_set("maxmemory-policy", "allkeys-lru")
    writing = start(own_server.url, "mail", given)
    with pytest.raises(StoreError, match="evicts any key"):
        writing.task(rows_of(writing, range(5)))
    assert client.dbsize() == 0


@pytest.mark.parametrize(
    "missing", ["append", "hincrby", "pexpire", "xadd", "zadd", "set", "exists"]
)
def test_rights_that_are_missing_are_told_before_a_row_is_written(
    own_server: DialectServer, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = own_server.client()
    client.execute_command(
        *("ACL", "SETUSER", "spark", "on", ">pass", "~{chasqui:*", "+@all", f"-{missing}")
    )
    url = own_server.url.replace("redis://", "redis://spark:pass@")  # not a secret
    monkeypatch.setenv("REDIS_OF_SPARK", url)
    columns = {"delay_ms": LongType(), "id": StringType()}
    writing = Writing("$REDIS_OF_SPARK", "mail", columns)
    rows = numbered(range(3), delay_ms=None, id=None) + numbered([3], delay_ms=60_000, id="a")
    with pytest.raises(AccessError, match=rf"Missing in its ACL rules: \+{missing} on ~"):
        writing.task(rows)
    shelf = Shelf(client, "mail")
    assert shelf.jobs() == shelf.delayed() == []
    client.execute_command("ACL", "SETUSER", "spark", f"+{missing}")
    writing.commit(writing.task(rows, attempt=1))
    assert (len(shelf.jobs()), len(shelf.delayed())) == (3, 1)


def test_rights_for_delayed_rows_are_needed_by_delayed_rows_alone(
    own_server: DialectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = own_server.client()
    client.execute_command(
        *("ACL", "SETUSER", "spark", "on", ">pass", "~{chasqui:*", "+@all", "-zadd", "-set")
    )
    url = own_server.url.replace("redis://", "redis://spark:pass@")  # not a secret
    monkeypatch.setenv("REDIS_OF_SPARK", url)
    writing = Writing("$REDIS_OF_SPARK", "mail")
    writing.commit(writing.task(numbered(range(3))))
    assert Shelf(client, "mail").numbers() == [0, 1, 2]
