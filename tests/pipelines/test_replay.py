"""Replay and purge of dead jobs, through Spark: just those, each once, whatever tasks do."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from chasquimq import Queue, wire
from chasquimq.errors import AccessError, ConfigError
from chasquimq.spark.act import purge, replay
from chasquimq.spark.act.choice import Choice, choose
from chasquimq.spark.act.dead import carry_out
from chasquimq.spark.act.task import Act, Order, acting
from chasquimq.spark.secret import Where
from tests.pipelines.dying import Deaths
from tests.servers import DialectServer, Servers
from tests.spark.session import NATIVE, PORTABLE

Read = Callable[[], DataFrame]


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Servers) -> DialectServer:
    """Both kinds where it matters: tests/spark_redis/test_act.py runs what tasks do on all."""
    return servers.shared(getattr(request, "param", NATIVE))


ON_EACH = pytest.mark.parametrize(
    "server", [pytest.param(one, id=one.name) for one in (NATIVE, PORTABLE)], indirect=True
)


@pytest.fixture
def deaths(server: DialectServer, queue_name: str) -> Deaths:
    return Deaths(server, queue_name)


@pytest.fixture
def where(server: DialectServer) -> dict[str, str]:
    return {"url": server.url}


@pytest.fixture
def read(spark: SparkSession, deaths: Deaths) -> Read:
    def load() -> DataFrame:
        options = {"url": deaths.url, "queue": deaths.queue, "view": "dlq"}
        return spark.read.format("chasqui").options(**options).load()

    return load


def outcomes(told: DataFrame) -> Counter[str]:
    return Counter(row.outcome for row in told.collect())


# -- what comes back -------------------------------------------------------------------------------


@ON_EACH
def test_exactly_the_chosen_rows_come_back_as_they_were(
    deaths: Deaths, read: Read, where: dict[str, str]
) -> None:
    backoff = {"kind": "fixed", "delay_ms": 5}
    deaths.die(
        [
            {"name": "mail", "data": {"n": 1, "say": "no"}, "attempts": 1, "backoff": backoff},
            {"name": "", "data": {"n": 2, "say": "no"}},
            {"name": "mail", "data": {"n": 3, "say": "other", "as": "fatal"}},
        ]
    )
    buried = deaths.dead
    told = replay(read().where("error = 'no'"), where)
    rows = {row.entry_id: row for row in told.collect()}
    assert {buried[entry_id]["n"] for entry_id in rows} == {1, 2}
    assert {row.outcome for row in rows.values()} == {"replayed"}
    assert {row.queue for row in rows.values()} == {deaths.queue}
    back = {one.data["n"]: one for one in deaths.waiting}
    assert {row.id for row in rows.values()} == {one.envelope.id for one in back.values()}
    assert sorted(back) == [1, 2]
    assert (back[1].name, back[2].name) == ("mail", "")
    assert {one.envelope.attempt for one in back.values()} == {0}
    retry = back[1].envelope.retry
    assert retry is not None and retry.max_attempts == 1
    assert retry.backoff is not None and retry.backoff.delay_ms == 5
    assert [data["n"] for data in deaths.dead.values()] == [3]
    assert deaths.notes() == []


def test_looking_at_what_was_told_does_nothing_again(
    deaths: Deaths, read: Read, where: dict[str, str]
) -> None:
    deaths.numbered(5)
    told = replay(read(), where)
    assert deaths.numbers == [0, 1, 2, 3, 4], "it was to be done at once"
    assert outcomes(told) == {"replayed": 5}
    deaths.numbered(3)  # the five die again with them
    assert outcomes(told) == {"replayed": 5}
    assert told.count() == 5
    assert deaths.waiting == [] and len(deaths.dead) == 8


@ON_EACH
def test_a_dry_run_changes_nothing(deaths: Deaths, read: Read, where: dict[str, str]) -> None:
    deaths.numbered(4)
    broken = deaths.bury(wire.pack_dead(b"\xc1", b"", b"1-1", "decode_failed"))
    before = deaths.dead
    assert outcomes(replay(read(), where, dry_run=True)) == {"would replay": 4, "unreadable": 1}
    assert outcomes(purge(read(), where, dry_run=True)) == {"would purge": 5}
    assert deaths.dead == before and broken in before
    assert deaths.waiting == [] and deaths.notes() == []


def test_what_no_job_can_be_read_in_stays_and_what_is_gone_is_told(
    spark: SparkSession, deaths: Deaths, where: dict[str, str]
) -> None:
    deaths.numbered(2)
    first, second = deaths.dead
    broken = deaths.bury(wire.pack_dead(b"\xc1", b"", b"1-1", "decode_failed", job_id="b"))
    deaths.redis.xdel(deaths.keys.dlq, second)
    named = [(deaths.queue, one) for one in (first, second, broken, "5-5", first)]
    told = replay(spark.createDataFrame(named, "queue STRING, entry_id STRING"), where)
    rows = {row.entry_id: (row.id, row.outcome) for row in told.collect()}
    [back] = deaths.waiting
    assert rows == {
        first: (back.envelope.id, "replayed"),
        second: (None, "gone"),
        broken: ("b", "unreadable"),
        "5-5": (None, "gone"),
    }
    assert list(deaths.dead) == [broken]


@ON_EACH
def test_a_unique_id_that_lives_again_is_not_doubled(
    deaths: Deaths, read: Read, where: dict[str, str]
) -> None:
    unique: dict[str, Any] = {"unique": "until_done", "job_id": "one"}
    deaths.die([{"name": "n", "data": {"n": 1, "say": "no"}, **unique}])
    asyncio.run(add(deaths, {"n": 2}, **unique))
    assert outcomes(replay(read(), where, dry_run=True)) == {"taken": 1}
    assert outcomes(replay(read(), where)) == {"taken": 1}
    assert deaths.numbers == [2] and len(deaths.dead) == 1
    deaths.redis.delete(deaths.keys.stream, deaths.keys.unique("one"))
    assert outcomes(replay(read(), where)) == {"replayed": 1}
    assert deaths.redis.get(deaths.keys.unique("one")) is not None
    assert deaths.numbers == [1] and deaths.dead == {}


async def add(deaths: Deaths, data: Any, **options: Any) -> None:
    async with Queue(deaths.queue, redis_url=deaths.url) as queue:
        await queue.add("n", data, **options)


def test_rows_of_several_queues_each_go_back_to_their_own(
    spark: SparkSession, server: DialectServer, deaths: Deaths, where: dict[str, str]
) -> None:
    other = Deaths(server, f"{deaths.queue}-other")
    deaths.numbered(3)
    other.numbered(2)
    frame = (
        spark.read.format("chasqui")
        .options(**where, queue=f"{deaths.queue},{other.queue}", view="dlq")
        .load()
    )
    assert outcomes(replay(frame, where)) == {"replayed": 5}
    assert (deaths.numbers, other.numbers) == ([0, 1, 2], [0, 1])


def test_payloads_of_any_form_come_back_byte_by_byte(
    spark: SparkSession, deaths: Deaths, where: dict[str, str]
) -> None:
    """What the DataFrame makes of a payload does not matter: that is read in the DLQ."""
    data = {"n": 1, "say": "no", "raw": b"\x00\xff", "big": "x" * 900_000}
    deaths.die([{"name": "n", "data": {**data, "n": n}} for n in range(3)])
    before = deaths.dead
    options = {**where, "queue": deaths.queue, "view": "dlq", "payloadSchema": "n BIGINT"}
    frame = spark.read.format("chasqui").options(**options).load().where("payload.n < 2")
    assert outcomes(replay(frame, where)) == {"replayed": 2}
    assert [one.data for one in deaths.waiting] == [*before.values()][:2]


# -- what fails and is run again -------------------------------------------------------------------


def order_for(deaths: Deaths, verb: Any = "replay", **told: Any) -> Order:
    return Order(verb, Where(url=deaths.url), uuid.uuid4().hex, **told)


def failing(order: Order) -> Act:
    """The first attempt of each task fails when it has acted on a page, and told nobody."""
    whole = acting(order)

    def act(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        for told in whole(batches):
            if task.attemptNumber() == 0:
                raise RuntimeError("the first attempt fails")
            yield told

    return act


@ON_EACH
@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_a_task_that_is_run_again_doubles_and_loses_nothing(
    spark: SparkSession, deaths: Deaths, read: Read, verb: Any
) -> None:
    deaths.numbered(450)
    told: list[int] = []
    choice = choose(read().where("name = 'n'"))
    done = carry_out(spark, choice, order_for(deaths, verb), told.append, failing)
    assert done.totals() == {"replayed" if verb == "replay" else "purged": 450}
    assert done.noted == 450 and told[-1] == 450
    assert sorted(done.outcomes["entry_id"].to_pylist()) == sorted(
        choice.table["entry_id"].to_pylist()
    )
    assert deaths.dead == {} and deaths.notes() == []
    assert deaths.numbers == (list(range(450)) if verb == "replay" else [])


def test_a_frame_that_fails_and_is_read_again_doubles_nothing(
    deaths: Deaths, read: Read, where: dict[str, str]
) -> None:
    deaths.numbered(30)

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        yield from batches
        if task.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")

    frame = read().select("queue", "entry_id")
    told = replay(frame.mapInArrow(fail, frame.schema), where)
    assert outcomes(told) == {"replayed": 30}
    assert deaths.numbers == list(range(30))


@ON_EACH
def test_connections_that_break_half_way_double_nothing(
    deaths: Deaths, read: Read, where: dict[str, str]
) -> None:
    """A command whose answer was lost is sent again, and tells what it told the first time."""
    deaths.numbered(300)
    ended = threading.Event()

    def cut() -> None:
        while not ended.wait(0.02):
            if deaths.redis.xlen(deaths.keys.stream) in range(1, 300):
                deaths.redis.client_kill_filter(_type="normal", skipme=True)

    cutting = threading.Thread(target=cut, daemon=True)
    cutting.start()
    told = replay(read(), where, rate=900)
    ended.set()
    cutting.join()
    assert outcomes(told) == {"replayed": 300}
    assert deaths.numbers == list(range(300))


@ON_EACH
def test_a_race_with_the_queue_s_own_replay_doubles_and_loses_nothing(
    spark: SparkSession, deaths: Deaths, read: Read
) -> None:
    """Between two pages of ours, the Queue replays some of those that we were to do next."""
    deaths.numbered(450)
    url, dlq = deaths.url, deaths.keys.dlq

    def pausing(order: Order) -> Act:
        whole = acting(order)

        def act(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for told in whole(batches):
                yield told
                wait_until_fewer(url, dlq, 250)

        return act

    async def rival() -> int:
        async with Queue(deaths.queue, redis_url=deaths.url) as queue:
            await asyncio.to_thread(wait_until_fewer, url, dlq, 400)
            return await queue.replay_dlq(150)

    choice = choose(read())
    theirs: list[int] = []
    racing = threading.Thread(target=lambda: theirs.append(asyncio.run(rival())), daemon=True)
    racing.start()
    done = carry_out(spark, choice, order_for(deaths, rate=1_000), None, pausing)
    racing.join(60)
    assert theirs == [150]
    assert done.totals() == {"replayed": 300, "gone": 150} and done.noted == 300
    assert deaths.numbers == list(range(450)) and deaths.dead == {}


def wait_until_fewer(url: str, dlq: bytes, than: int) -> None:
    with redis.Redis.from_url(url) as client:
        deadline = time.monotonic() + 60
        while client.xlen(dlq) > than:
            assert time.monotonic() < deadline, "nobody replays"
            time.sleep(0.01)


def test_a_run_that_fails_says_how_far_it_had_come(
    spark: SparkSession, deaths: Deaths, read: Read
) -> None:
    deaths.numbered(20)

    def never(order: Order) -> Act:
        whole = acting(order)

        def act(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in whole(batches):
                raise RuntimeError("each attempt fails")
            yield from ()

        return act

    with pytest.raises(PySparkException) as caught:
        carry_out(spark, choose(read()), order_for(deaths), None, never)
    assert "20 jobs were replayed before this" in str(caught.value.__notes__)
    assert deaths.numbers == list(range(20))


# -- purge -----------------------------------------------------------------------------------------


@ON_EACH
def test_purge_deletes_just_those(deaths: Deaths, read: Read, where: dict[str, str]) -> None:
    deaths.numbered(6)
    told = purge(read().where("get_json_object(payload, '$.n') % 2 = 0"), where)
    assert outcomes(told) == {"purged": 3}
    assert sorted(data["n"] for data in deaths.dead.values()) == [1, 3, 5]
    assert deaths.waiting == [] and deaths.notes() == []
    assert outcomes(told) == {"purged": 3}


# -- what is refused -------------------------------------------------------------------------------


def test_what_makes_no_sense_is_refused_before_anything_moves(
    spark: SparkSession, deaths: Deaths, read: Read, where: dict[str, str]
) -> None:
    deaths.numbered(1)
    with pytest.raises(ConfigError, match=r"no column entry_id.*entry"):
        replay(read().withColumnRenamed("entry_id", "entry"), where)
    for wrong in ("abc", None, f"{2**64}-0"):
        frame = spark.createDataFrame([(deaths.queue, wrong)], "queue STRING, entry_id STRING")
        with pytest.raises(ConfigError, match=r"entry.id"):
            replay(frame, where)
    with pytest.raises(ConfigError, match="queue name"):
        replay(spark.createDataFrame([("a{b", "1-1")], "queue STRING, entry_id STRING"), where)
    with pytest.raises(ConfigError, match="rate"):
        replay(read(), where, rate=0)
    with pytest.raises(ConfigError, match="urlEnv"):
        replay(read(), {"urlenv": "redis://nowhere"})
    assert len(deaths.dead) == 1


def test_nothing_is_moved_by_whom_the_server_would_refuse_half_way(
    deaths: Deaths, read: Read, server: DialectServer, tmp_path: Path
) -> None:
    deaths.numbered(2)
    user, rules = f"clerk-{deaths.queue}", ("~*", "+@all", "-setbit", "-xdel")
    deaths.redis.execute_command("ACL", "SETUSER", user, "on", ">word", *rules)  # not a secret
    address = tmp_path / "address"
    address.write_text(server.url.replace("redis://", f"redis://{user}:word@"))  # not a secret
    try:
        for act in (replay, purge):
            with pytest.raises(AccessError, match=r"(?=.*\+xdel)(?=.*\+setbit)"):
                act(read(), {"secretFile": str(address)})
    finally:
        deaths.redis.acl_deluser(user)
    assert len(deaths.dead) == 2 and deaths.waiting == []


def test_ids_are_in_the_order_of_redis_and_each_comes_once(spark: SparkSession) -> None:
    ids = ["5-10", "5-9", "05-9", "12-0", "7"]
    frame = spark.createDataFrame([("q", one) for one in ids], "queue STRING, entry_id STRING")
    choice: Choice = choose(frame)
    assert choice.table["entry_id"].to_pylist() == ["5-9", "5-10", "7-0", "12-0"]
    assert choice.pages().to_pylist() == [
        {"bit": 0, "queue": "q", "entry_ids": ["5-9", "5-10", "7-0", "12-0"]}
    ]
