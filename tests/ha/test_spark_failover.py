"""A master of a cluster is lost while Spark writes, and what it had told of last is lost with it:
tasks notice or go on, and what is written again comes in once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType

from chasquimq.errors import DataLossError, StoreError
from chasquimq.server import Server
from tests.ha.kit import Cluster, Home, client, until
from tests.spark_redis.events import Events
from tests.spark_redis.follower import Follower
from tests.spark_redis.writing import Shelf, Writing, batch, numbered

KEPT, BATCHES = 20, 60  # a replica has so many, and there are so many in all
AT_THE_KILL = 40
ATTEMPTS = 4  # as Spark has


class Accident:
    """Once all writers have come so far: their node's replica hears no more of it. Once they have
    gone on for a while: the node is killed, and the replica takes over."""

    def __init__(self, nodes: Cluster, owner: Server, writers: int) -> None:
        self.owner = owner
        self.replica = next(one for one in nodes.nodes if _follows(one, owner))
        self._steps = {
            KEPT: threading.Barrier(writers, self._cut_off),
            AT_THE_KILL: threading.Barrier(writers, self._kill),
        }

    def reached(self, number: int) -> None:
        if number in self._steps:
            self._steps[number].wait(30)

    def _cut_off(self) -> None:
        here = client(self.owner.port)
        until(lambda: here.wait(1, 1_000))
        self.replica.pause()
        here.client_kill_filter(_type="replica")

    def _kill(self) -> None:
        self.owner.kill()
        self.replica.resume()


def _follows(node: Server, owner: Server) -> bool:
    told = client(node.port).info("replication")
    return told["role"] == "slave" and told["master_port"] == owner.port


class Task:
    """A write of one partition, run again as Spark does, and what went wrong before it was in."""

    def __init__(self, home: Home, **options: Any) -> None:
        self.home = home
        columns = {"key": StringType()} if "idColumn" in options else {}
        self.writing = Writing(home.url, home.queue, columns, **options)
        self.failures: list[str] = []

    def write(self, reached: Callable[[int], None]) -> None:
        for attempt in range(ATTEMPTS):
            try:
                told = self.writing.way().write(0, attempt, self.batches(reached))
                self.writing.way().commit([told])
                return
            except StoreError as error:
                self.failures.append(str(error))
                reached = lambda _: None  # noqa: E731
        raise AssertionError(self.failures)

    def batches(self, reached: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
        for number in range(BATCHES):
            reached(number)
            numbers = range(number * 10, number * 10 + 10)
            rows = numbered(numbers)
            if "key" in self.writing.schema.names:
                rows = [{**row, "key": f"key-{n}"} for n, row in zip(numbers, rows, strict=True)]
            yield batch(self.writing.schema, rows)

    def found(self) -> Counter[int]:
        return Counter(Shelf(self.home.client(), self.home.queue).numbers())


@pytest.mark.timeout(180)
def test_rows_come_in_once_though_their_node_is_lost_with_what_it_had_last(
    nodes: Cluster, queue_name: str
) -> None:
    homes = [Home(nodes, f"{queue_name}-{number}") for number in range(40)]
    owner = nodes.owner(homes[0].key)
    mine = iter([home for home in homes if nodes.owner(home.key) is owner])
    direct = Task(next(mine))
    staged = Task(next(mine), commitMode="staged")
    by_id = Task(next(mine), idColumn="key")
    events = next(mine)
    with Follower(nodes.url, events.queue) as query:
        source = Events(events, events.queue)  # type: ignore[arg-type]
        source.add(20)
        assert len(query.batch() or []) == 20
        accident = Accident(nodes, owner, 3)

        def read_more(number: int) -> None:
            accident.reached(number)
            if number == KEPT + 1:  # which the replica does not hear of
                source.add(5)
                assert len(query.batch() or []) == 5

        writers = [
            threading.Thread(target=direct.write, args=(read_more,)),
            threading.Thread(target=staged.write, args=(accident.reached,)),
            threading.Thread(target=by_id.write, args=(accident.reached,)),
        ]
        for writer in writers:
            writer.start()
        until(lambda: not accident.owner.is_running, 60)
        for writer in writers:
            writer.join()
        everything = Counter(range(BATCHES * 10))
        for task in (direct, staged, by_id):
            assert task.found() == everything
        assert "knew of those in front of it" in direct.failures[0]
        assert "aborted meanwhile" in staged.failures[0]
        assert "knew of those in front of it" in by_id.failures[0]
        with pytest.raises(DataLossError):
            query.batch()


@pytest.mark.timeout(180)
def test_a_commit_moves_again_what_was_lost_after_it_was_moved(
    nodes: Cluster, queue_name: str
) -> None:
    home = Home(nodes, queue_name)
    task = Task(home, commitMode="staged", rowsPerSecond=400)
    every = [*task.batches(lambda _: None)]
    parts = (every[: BATCHES // 2], every[BATCHES // 2 :])
    told = [task.writing.way().write(n, 0, iter(part)) for n, part in enumerate(parts)]
    accident = Accident(nodes, nodes.owner(home.key), 1)
    here, failures = home.client(), []

    def commit() -> None:
        try:
            task.writing.way().commit(told)
        except StoreError as error:
            failures.append(str(error))

    committing = threading.Thread(target=commit)
    committing.start()
    until(lambda: here.xlen(home.key) >= 150)
    accident.reached(KEPT)
    until(lambda: here.xlen(home.key) >= BATCHES * 5 + 50)  # the first part is in, as it seems
    accident.reached(AT_THE_KILL)
    committing.join()
    assert failures == []
    assert task.found() == Counter(range(BATCHES * 10))
