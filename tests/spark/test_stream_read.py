"""`spark.readStream`, from end to end: what reaches a lake is what is in Redis, each entry once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from chasquimq import Queue, Worker
from tests.chaos.kit.fleet import ROOT
from tests.servers import DialectServer
from tests.spark.following import PATIENCE_S, ids, lake, run
from tests.spark_redis.events import Events


@pytest.fixture
def events(server: DialectServer, queue_name: str) -> Events:
    return Events(server, queue_name)


def stored(*streams: Events) -> list[str]:
    """The entry ids that are in Redis."""
    return sorted(entry_id for events in streams for _, entry_id in events.rows())


def flat(batches: list[list[str]]) -> list[str]:
    return sorted(entry_id for batch in batches for entry_id in batch)


# -- a driver that is killed -------------------------------------------------------------------


class Driver:
    """A process of its own, with a JVM of its own."""

    def __init__(self, url: str, queue: str, home: Path, rows: int) -> None:
        command = [sys.executable, "-m", "tests.spark.following", url, queue, str(home), str(rows)]
        with (home / "stderr").open("wb") as errors:
            self._child = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def batch(self) -> int:
        """The one that was written; Spark does not know it yet."""
        assert self._child.stdout is not None
        return int(self._child.stdout.readline())

    def go_on(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()

    def kill(self) -> None:
        """With its JVM; what that started ends by itself."""
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def driver(server: DialectServer, queue_name: str, tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(server.url, queue_name, tmp_path, rows=20)
    try:
        yield driver
    finally:
        driver.kill()


@pytest.mark.timeout(300)
def test_a_killed_driver_loses_and_doubles_nothing(
    spark: SparkSession, events: Events, server: DialectServer, driver: Driver, tmp_path: Path
) -> None:
    events.add(50)
    assert driver.batch() == 0
    driver.go_on()
    assert driver.batch() == 1
    events.add(25)
    driver.kill()
    left = lines(tmp_path / "checkpoint" / "offsets"), lines(tmp_path / "checkpoint" / "commits")
    assert left == (["0", "1"], ["0"]), "in the middle of a batch"

    options = {"url": server.url, "queue": events.queue, "maxOffsetsPerTrigger": 30}
    _, batches = run(spark, tmp_path, options)
    assert [len(batch) for batch in batches] == [20, 20, 30, 5], "a batch run again is as it was"
    assert flat(ids(batches)) == stored(events)
    assert len(stored(events)) == 75


def lines(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.isdigit())


# -- batches -----------------------------------------------------------------------------------


def test_two_queues_in_limited_batches_and_their_lag(
    spark: SparkSession, server: DialectServer, queue_name: str, tmp_path: Path
) -> None:
    mine, others = (Events(server, queue_name + more) for more in ("", "-other"))
    mine.add(30)
    others.add(10)
    options = {
        "url": server.url,
        "queue": f"{mine.queue},{others.queue}",
        "maxOffsetsPerTrigger": 16,
        "minPartitions": 4,
    }
    query, batches = run(spark, tmp_path, options)
    assert [len(batch) for batch in batches] == [16, 16, 8]
    assert flat(ids(batches)) == stored(mine, others)
    shares = Counter(row["queue"] for row in batches[0])
    assert shares == {mine.queue: 12, others.queue: 4}

    lags = []
    for progress in query.recentProgress:
        source: Any = progress.sources[0]
        latest, end = json.loads(source.latestOffset), json.loads(source.endOffset)
        lags.append([latest[queue]["n"] - end[queue]["n"] for queue in (mine.queue, others.queue)])
    assert lags[:3] == [[18, 6], [6, 2], [0, 0]]
    assert len(stored(mine, others)) == 40, "nothing is taken away"


def test_trimmed_events_are_noticed(
    spark: SparkSession, server: DialectServer, events: Events, tmp_path: Path
) -> None:
    options = {"url": server.url, "queue": events.queue}
    events.add(10)
    run(spark, tmp_path, options)
    events.add(100)
    events.trim(40)
    with pytest.raises(StreamingQueryException, match="CHASQUI_DATA_LOSS: 60 events"):
        run(spark, tmp_path, options)
    _, batches = run(spark, tmp_path, options | {"failOnDataLoss": "false"})
    assert ids(batches)[1:] == [stored(events)]
    rows = events.add(10)
    events.remove(rows[3], rows[7])  # which only who reads them can notice
    with pytest.raises(StreamingQueryException, match="CHASQUI_DATA_LOSS: 2 events"):
        run(spark, tmp_path, options)


async def test_dead_jobs_and_a_replay_between_batches(
    spark: SparkSession, server: DialectServer, queue_name: str, tmp_path: Path
) -> None:
    url = server.url
    options = {"url": url, "queue": queue_name, "view": "dlq"}

    async def fail(job: Any) -> None:
        raise ValueError(job.data["n"])

    async def bury() -> None:
        await Worker(queue_name, fail, redis_url=url, max_attempts=1, burst=True).run()

    async with Queue(queue_name, redis_url=url) as queue:
        await queue.add_bulk([{"name": "mail", "data": {"n": n}} for n in (1, 2, 3)])
        await bury()
        run(spark, tmp_path, options)
        await queue.add_bulk([{"name": "mail", "data": {"n": n}} for n in (4, 5)])
        await bury()
        assert await queue.replay_dlq() == 5, "read or not"
        await queue.add("mail", {"n": 6})
        await bury()
    _, batches = run(spark, tmp_path, options)
    numbers = [sorted(json.loads(row["payload"])["n"] for row in batch) for batch in batches]
    assert numbers == [[1, 2, 3], [1, 2, 3, 4, 5, 6]], "4 and 5 once, as they died again"


def test_what_cannot_be_streamed_says_so(
    spark: SparkSession, server: DialectServer, queue_name: str, tmp_path: Path
) -> None:
    options = {"url": server.url, "queue": queue_name, "view": "jobs"}
    with pytest.raises(Exception, match="view jobs cannot be streamed, events and dlq can"):
        lake(spark, tmp_path, options).start().awaitTermination(PATIENCE_S)
