"""Spark on a cluster: reads, writes and acts of its tasks follow a queue whose slot moves, and rows
come in once. Without a JVM: what Spark calls is called here."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
import redis
from pyspark.sql.types import DataType, LongType, StringType

from chasquimq.spark.client import Client
from chasquimq.spark.schema import COLUMNS
from chasquimq.spark.secret import Where
from chasquimq.spark.write import recover
from chasquimq.wire import Keys
from tests.engine.desk import Desk
from tests.ha.kit import Cluster, Home, until
from tests.spark_redis.events import Events
from tests.spark_redis.follower import Follower
from tests.spark_redis.reading import Reading, fill_every_view
from tests.spark_redis.test_act import Grave
from tests.spark_redis.writing import Row, Shelf, Writing, batch

HOUR_MS = 3_600_000
COLUMNS_LATER = {"delay_ms": LongType(), "id": StringType()}
# Without ids of their own no row asks for a key of its id before it is written.
COLUMNS_DERIVED = {"delay_ms": LongType()}
EARLY = 5  # batches before the slot begins to move


@pytest.fixture
def home(ring: Cluster, queue_name: str) -> Home:
    return Home(ring, queue_name)


# -- writes ----------------------------------------------------------------------------------------


def rows_of(number: int) -> list[Row]:
    """Ten rows: every other one runs later, half of those under ids of their own."""
    return [
        {
            "payload": {"n": n, "text": ""},
            "delay_ms": HOUR_MS if n % 2 else 0,
            "id": f"own-{n}" if n % 4 == 1 else None,
            "key": f"key-{n}",
        }
        for n in range(number * 10, number * 10 + 10)
    ]


class Feed:
    """Batches of ten rows until the queue has moved meanwhile, and a few more."""

    def __init__(self, writing: Writing, move: Callable[[], None]) -> None:
        self._schema = writing.schema
        self._moving = threading.Thread(target=move)
        self._names = writing.schema.names
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        number, left = 0, EARLY
        while left:
            if number == EARLY:
                self._moving.start()
            left -= number > EARLY and not self._moving.is_alive()
            rows = rows_of(number)
            yield batch(self._schema, [{name: row[name] for name in self._names} for row in rows])
            number += 1
            self.rows = number * 10
        self._moving.join()


def everything(home: Home) -> Counter[int]:
    """All that came in, on the node that has the queue now."""
    shelf = Shelf(home.client(), home.queue)
    return Counter(job.payload["n"] for job in (*shelf.jobs(), *shelf.delayed()))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", ["direct", "direct-derived", "by-id", "at-once"])
def test_rows_that_come_while_their_slot_moves_come_in_once(home: Home, way: str) -> None:
    if way == "by-id":
        columns = {"delay_ms": LongType(), "key": StringType()}
        writing = Writing(home.url, home.queue, columns, idColumn="key")
    else:
        columns = COLUMNS_DERIVED if way == "direct-derived" else COLUMNS_LATER
        writing = Writing(home.url, home.queue, columns)
    here = home.client()

    def move() -> None:
        """Chunks come while all keys are still there, and new ones are refused: none may begin."""
        home.move(begun=lambda: until_scripts_ran(here))

    feed = Feed(writing, home.hand_over if way == "at-once" else move)
    writing.commit(writing.feed(iter(feed)))
    assert everything(home) == Counter(range(feed.rows))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "columns", [COLUMNS_LATER, COLUMNS_DERIVED], ids=["own-ids", "derived-ids"]
)
def test_staged_rows_come_in_once_though_the_slot_moves_twice(
    home: Home, columns: dict[str, DataType]
) -> None:
    """While tasks stage them, and while the driver brings them into a queue that is full."""
    writing = Writing(
        home.url, home.queue, columns, commitMode="staged", chunkRows=10, maxStreamLen=50
    )
    feed = Feed(writing, home.move)
    told = writing.way().write(0, 0, iter(feed))
    with Client(Where(url=home.url).address_of(home.queue), recover.SCRIPTS) as client:
        [found] = recover.unfinished(client, home.queue)
        assert (found.state, found.staged) == ("open", feed.rows)
    drained: list[int] = []
    here, committing = home.client(), threading.Thread(target=lambda: writing.way().commit([told]))

    def make_room() -> None:
        """All keys are still there, and new ones are refused: so a chunk must not begin."""
        drained.extend(Shelf(here, home.queue).drain(50))
        until_scripts_ran(here)

    committing.start()
    until(lambda: Shelf(here, home.queue).numbers()[45:])
    home.move(begun=make_room)
    shelf = Shelf(home.client(), home.queue)
    while committing.is_alive():
        drained.extend(shelf.drain(50))
        committing.join(0.05)
    assert shelf.run(writing.run)["state"] == "done" and shelf.left(writing.run) == []
    assert Counter(drained) + everything(home) == Counter(range(feed.rows))


def until_scripts_ran(client: redis.Redis) -> None:
    before = scripts_run(client)
    until(lambda: scripts_run(client) > before + 5)


def scripts_run(client: redis.Redis) -> int:
    calls: int = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    return calls


# -- reads -----------------------------------------------------------------------------------------


async def test_every_view_of_queues_on_several_nodes(ring: Cluster, queue_name: str) -> None:
    homes = [Home(ring, f"{queue_name}-{number}") for number in range(4)]
    assert len({ring.owner(home.key).port for home in homes}) > 1
    for home in homes:
        await fill_every_view(Desk(home, home.queue))  # type: ignore[arg-type]
    for view in COLUMNS:
        reading = Reading(homes[0], ",".join(home.queue for home in homes), view=view)  # type: ignore[arg-type]
        found = Counter(part.queue for part in reading.parts() for _ in reading.rows_of(part))
        assert set(found) == {home.queue for home in homes}
        assert len(set(found.values())) == 1


@pytest.mark.parametrize("at_once", [False, True], ids=["by-key", "at-once"])
@pytest.mark.parametrize("view", ["jobs", "results"])
def test_a_read_goes_on_where_the_slot_has_moved(home: Home, view: str, at_once: bool) -> None:
    """Results are found by a walk over all keys, which a node answers that has none of them."""
    keys, client, count = Keys(home.queue), home.client(), 2_500
    fill = client.pipeline(transaction=False)
    for number in range(count):
        if view == "jobs":
            fill.xadd(keys.stream, {"d": b"%d" % number})
        else:
            fill.set(keys.result(f"job-{number}"), b"%d" % number)
    fill.execute()
    reading = Reading(home, home.queue, view=view, fetchSize=100)  # type: ignore[arg-type]
    [part] = reading.parts()
    pages = reading.pages(part)
    rows = next(pages)
    assert len(rows) < count
    home.hand_over() if at_once else home.move()
    rows += [row for page in pages for row in page]
    assert len(rows) == len({row[0] for row in rows}) == count


def test_a_stream_of_events_goes_on_where_the_slots_have_moved(
    ring: Cluster, queue_name: str
) -> None:
    homes = [Home(ring, f"{queue_name}-{number}") for number in range(2)]
    added: list[tuple[str, str]] = []
    with Follower(ring.url, ",".join(one.queue for one in homes), maxOffsetsPerTrigger=30) as query:
        rows: list[tuple[str, str]] = []
        for turn in range(3):
            for home in homes:
                added += Events(home, home.queue).add(50)  # type: ignore[arg-type]
            rows += query.batch() or []
            homes[turn % 2].move()
            if turn == 1:
                query.crash()
        rows += query.all()
    assert sorted(rows) == sorted(added)


# -- acts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_dead_jobs_are_acted_on_once_while_the_slot_moves(home: Home, verb: str) -> None:
    grave, count = Grave(home, home.queue), 300  # type: ignore[arg-type]
    unique = b"86400"
    ids = grave.bury(count, unique)
    told: list[str] = []
    order = grave.order(verb)._replace(rate=300.0)
    acting = threading.Thread(target=lambda: told.extend(grave.act(order, ids)))
    home.move(begun=acting.start)
    acting.join()
    grave.redis = home.client()
    assert told == [{"replay": "replayed", "purge": "purged"}[verb]] * count
    assert sorted(grave.waiting) == (list(range(count)) if verb == "replay" else [])
    assert grave.redis.xlen(grave.keys.dlq) == 0
