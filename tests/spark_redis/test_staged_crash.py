"""Drivers and servers that die in the middle of a staged write: each row comes in once, or none."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from chasquimq import lua
from chasquimq.errors import QueueFullError
from chasquimq.spark.client import Client
from chasquimq.spark.write import recover
from tests.chaos.kit.proxy import Proxy
from tests.chaos.kit.wait import eventually
from tests.servers import DialectServer
from tests.spark_redis.staging import Shelf, Write

Finish = Callable[[Write], None]
ROWS = 60
LIMIT = 40  # of the queue, where a driver shall stop half-way


@pytest.fixture
def shelf(dialect_server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(dialect_server.client(), queue_name)


def run_again(write: Write) -> None:
    """As a second driver does: the same run, the same rows, in other partitions."""
    write.commit(*(write.stage(part, range(part, ROWS, 3)) for part in range(3)))


def recovered(write: Write) -> None:
    """As `chasqui spark recover --complete` does."""
    with Client(write.options.where.address(), recover.SCRIPTS) as client:
        [one] = recover.unfinished(client, write.run.queue)
        assert recover.carry_out(client, one, "complete", max_stream_len=1_000) == ROWS


by_whom = pytest.mark.parametrize("finish", [run_again, recovered], ids=["run-again", "recovered"])


@contextmanager
def held(server: DialectServer, script: str) -> Iterator[tuple[Proxy, Callable[[], bool]]]:
    """Who runs this script behind the proxy gets no further."""
    with Proxy(server.server.port) as proxy:
        proxy.hold(lua.SHA[script])
        yield proxy, lambda: proxy.held_connections > 0


def kill(driver: subprocess.Popen[bytes]) -> None:
    assert driver.poll() is None, driver.communicate()[1].decode()
    driver.kill()
    driver.wait()


@by_whom
def test_a_driver_that_is_killed_between_two_chunks(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, finish: Finish
) -> None:
    write = Write(dialect_server.url, queue_name, max_stream_len=LIMIT, chunk_rows=7)
    stages = [write.stage(part, range(part * 30, part * 30 + 30)) for part in range(2)]
    with write.driver(*stages) as driver:
        eventually(lambda: shelf.depth() + 7 > LIMIT)
        kill(driver)
    assert shelf.state(write.run) == "moving"
    seen = shelf.payloads()
    assert seen == list(range(len(seen))) and 0 < len(seen) < ROWS
    finish(Write(dialect_server.url, queue_name))
    assert shelf.payloads() == list(range(ROWS))
    assert (shelf.state(write.run), shelf.left()) == ("done", set())


def test_a_driver_that_is_killed_anywhere_in_the_move(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    write = Write(dialect_server.url, queue_name, chunk_rows=1)
    stages = [write.stage(part, range(part * 1000, part * 1000 + 1000)) for part in range(3)]
    for seen in (1, 700, 1900):
        with write.driver(*stages) as driver:
            eventually(lambda seen=seen: shelf.depth() >= seen, every=0)
            driver.kill()
            driver.wait()
    write.commit(*stages)
    assert shelf.payloads() == list(range(3000))
    assert (shelf.state(write.run), shelf.left()) == ("done", set())


@by_whom
def test_a_driver_that_is_killed_between_manifest_and_move(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, finish: Finish
) -> None:
    with held(dialect_server, "spark_move") as (proxy, is_held):
        write = Write(proxy.url, queue_name)
        stage = write.stage(0, range(ROWS))
        with write.driver(stage) as driver:
            eventually(is_held)
            kill(driver)
    assert (shelf.state(write.run), shelf.payloads()) == ("moving", [])
    finish(Write(dialect_server.url, queue_name))
    assert shelf.payloads() == list(range(ROWS))
    assert shelf.left() == set()


def test_a_driver_that_is_killed_before_the_manifest(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    with held(dialect_server, "spark_commit") as (proxy, is_held):
        write = Write(proxy.url, queue_name)
        stage = write.stage(0, range(500, 500 + ROWS))
        with write.driver(stage) as driver:
            eventually(is_held)
            kill(driver)
    assert (shelf.state(write.run), shelf.payloads()) == ("open", [])
    again = Write(dialect_server.url, queue_name)
    again.commit(again.stage(0, range(ROWS)))
    assert shelf.payloads() == list(range(ROWS))
    assert shelf.left() == set()


def test_a_driver_that_is_killed_before_it_said_done(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    with held(dialect_server, "spark_done") as (proxy, is_held):
        write = Write(proxy.url, queue_name)
        loser = write.stage(0, range(500, 510))
        with write.driver(write.stage(0, range(ROWS))) as driver:
            eventually(is_held)
            kill(driver)
    assert (shelf.state(write.run), shelf.payloads()) == ("moving", list(range(ROWS)))
    assert shelf.client.exists(loser.key)
    run_again(Write(dialect_server.url, queue_name))
    assert shelf.payloads() == list(range(ROWS))
    assert (shelf.state(write.run), shelf.left()) == ("done", set())


def test_a_driver_that_is_killed_before_it_cleared_away(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    with held(dialect_server, "spark_drop") as (proxy, is_held):
        write = Write(proxy.url, queue_name)
        loser = write.stage(0, range(500, 510))
        with write.driver(write.stage(0, range(ROWS))) as driver:
            eventually(is_held)
            kill(driver)
    assert (shelf.state(write.run), shelf.payloads()) == ("done", list(range(ROWS)))
    for key in (loser.key, write.run.stages, write.run.key):  # all that is left goes by itself
        assert shelf.client.pttl(key) > 0
    assert len(shelf.left()) == 2


@pytest.mark.parametrize("of_one", [True, False], ids=["one-manifest", "two-writes"])
def test_two_drivers_commit_at_once(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf, of_one: bool
) -> None:
    """The second began while the first seemed dead: of the same rows each comes in once, of other
    rows those of one driver do."""
    first, second = (Write(dialect_server.url, queue_name, chunk_rows=1) for _ in range(2))
    stages = [first.stage(part, range(part * 100, part * 100 + 100)) for part in range(2)]
    others = stages if of_one else [second.stage(0, range(1000, 1200))]
    start, errors = threading.Barrier(2), []

    def commit(write: Write, own: list[object]) -> None:
        start.wait()
        try:
            write.commit(*own)
        except Exception as error:
            errors.append(error)

    drivers = [
        threading.Thread(daemon=True, target=commit, args=pair)
        for pair in ((first, stages), (second, others))
    ]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(60)
    assert not errors
    wanted = [list(range(200)), list(range(1000, 1200))]
    assert sorted(shelf.payloads()) in (wanted[:1] if of_one else wanted)
    assert shelf.left() == set()


def test_answers_that_get_lost_change_nothing(
    dialect_server: DialectServer, queue_name: str, shelf: Shelf
) -> None:
    """What was sent and not answered is sent again, and the server has run it already."""
    with Proxy(dialect_server.server.port) as proxy:
        cut = proxy.cut(4, command="EVALSHA", every=True)
        write = Write(proxy.url, queue_name, chunk_rows=5)
        stages = [write.stage(part, range(part * 50, part * 50 + 50)) for part in range(2)]
        write.commit(*stages)
        assert cut.done >= 5
    assert shelf.payloads() == list(range(100))
    assert (shelf.state(write.run), shelf.left()) == ("done", set())


def test_a_server_that_is_killed_in_the_middle(own_server: DialectServer, queue_name: str) -> None:
    shelf = Shelf(own_server.client(), queue_name)
    write = Write(own_server.url, queue_name, max_stream_len=LIMIT, chunk_rows=4)
    stages = [write.stage(part, range(part * 100, part * 100 + 100)) for part in range(2)]
    driver = threading.Thread(daemon=True, target=lambda: write.commit(*stages))
    driver.start()
    taken = []
    for _ in range(2):
        eventually(lambda: shelf.depth() + 4 > LIMIT)
        own_server.server.kill()
        own_server.server.start()
        taken += shelf.take(30)
    while driver.is_alive():
        taken += shelf.take(5)
    assert taken + shelf.payloads() == list(range(200))
    assert (shelf.state(write.run), shelf.left()) == ("done", set())


def test_a_server_without_memory_is_waited_for(own_server: DialectServer, queue_name: str) -> None:
    shelf = Shelf(own_server.client(), queue_name)
    write = Write(own_server.url, queue_name, wait_timeout_ms=50, chunk_rows=20)
    stages = [write.stage(part, range(part * 30, part * 30 + 30)) for part in range(2)]
    shelf.client.config_set("maxmemory", 1)
    with pytest.raises(
        QueueFullError, match="CHASQUI_QUEUE_FULL: the server is out of memory; 0 of"
    ):
        write.commit(*stages)
    assert (shelf.payloads(), shelf.state(write.run)) == ([], "moving")
    shelf.client.config_set("maxmemory", 0)
    run_again(Write(own_server.url, queue_name))
    assert shelf.payloads() == list(range(ROWS))
