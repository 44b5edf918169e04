"""Handlers on a cluster whose executors and drivers are killed: each job ends once, none is lost.

Both jobs that are held run when their processes are killed; one may run twice, the other once. So
of the first there is one more run, and the other is buried, whoever finds it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from chasquimq import Queue, wire
from chasquimq.spark.work import SparkWorker
from tests.chaos.kit.wait import eventually
from tests.pipelines.work_driver import handle
from tests.servers import DIALECTS, DialectServer, Servers
from tests.spark.test_cluster import PATIENCE_S, Cluster

LEASE_MS = 2_000
GOOD = 20
TWICE, ONCE = GOOD, GOOD + 1  # the numbers of those that are held
OPTIONS = {"tasks": 1, "concurrency": 2, "claim_min_idle_ms": LEASE_MS, "max_attempts": 5}


class Yard:
    """A queue with jobs, two of which are held, and what becomes of them."""

    def __init__(self, server: DialectServer, queue: str) -> None:
        self.queue, self.url = queue, server.url
        self.keys = wire.Keys(queue)
        self._client: Any = server.client()
        self._gate = f"gate:{queue}"
        asyncio.run(self._add())

    async def _add(self) -> None:
        async with Queue(self.queue, redis_url=self.url) as door:
            data = {"url": self.url, "queue": self.queue}
            jobs: list[Any] = [{"name": "good", "data": {**data, "n": n}} for n in range(GOOD)]
            for n, attempts in ((TWICE, 2), (ONCE, 1)):
                jobs.append({"name": "held", "data": {**data, "n": n}, "attempts": attempts})
            await door.add_bulk(jobs)

    def held(self) -> int:
        """The pid of whoever runs both of them, when all others are done and acked."""
        eventually(lambda: self._client.llen(self._gate) == 2, PATIENCE_S)
        eventually(lambda: self._client.xlen(self.keys.stream) == 2)
        pids = {json.loads(one)[2] for one in self._client.lrange(self._gate, 0, -1)}
        assert len(pids) == 1
        return int(pids.pop())

    def open(self) -> None:
        self._client.set(f"{self._gate}:open", 1)

    def check(self) -> None:
        """What Redis has and what handlers saw: nothing lost, nothing twice, budgets to the run."""
        runs = [json.loads(one)[:2] for one in self._client.lrange(f"{self._gate}:seen", 0, -1)]
        wanted = [[n, 0] for n in range(GOOD)] + [[TWICE, 0], [TWICE, 1], [ONCE, 0]]
        assert sorted(runs) == wanted
        assert self._client.xlen(self.keys.stream) == 0 == self._client.zcard(self.keys.delayed)
        dead = [fields for _, fields in self._client.xrange(self.keys.dlq)]
        slots = [msgspec.msgpack.decode(fields[b"d"]) for fields in dead]
        assert [msgspec.msgpack.decode(slot[1])["n"] for slot in slots] == [ONCE]
        assert dead[0][b"reason"] == b"retries_exhausted"


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["name"], row["attempt"], row["outcome"], row["reason"]) for row in rows)


LAST_ROWS = [("held", 1, "buried", "retries_exhausted"), ("held", 2, "completed", None)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), "tests.pipelines.work_driver") as cluster:
        yield cluster


def test_an_executor_that_is_killed_in_a_handler_loses_nothing(
    cluster: Cluster, server: DialectServer, queue_name: str
) -> None:
    yard = Yard(server, queue_name)
    cluster.order(url=yard.url, queue=queue_name, options=OPTIONS)
    pid = yard.held()
    cluster.family.look()
    os.kill(cluster.family.executor_of(pid), signal.SIGKILL)
    eventually(lambda: pid not in cluster.family.left(), PATIENCE_S)  # it dies with its executor
    yard.open()
    rows = json.loads(cluster.hear())
    assert told(rows) == LAST_ROWS, "those of the task that died are lost; events have them"
    yard.check()


def test_a_driver_that_is_killed_leaves_its_jobs_to_the_next_run(
    cluster: Cluster, spark: SparkSession, servers: Servers, queue_name: str
) -> None:
    """The last test of this cluster."""
    yard = Yard(servers.shared(DIALECTS[0]), queue_name)
    cluster.order(url=yard.url, queue=queue_name, options=OPTIONS)
    yard.held()
    cluster.kill()
    yard.open()
    again = SparkWorker(queue_name, handle, url=yard.url, **{**OPTIONS, "tasks": 2})
    rows = [row.asDict() for row in again.run(spark).collect()]
    assert told(rows) == LAST_ROWS
    yard.check()
