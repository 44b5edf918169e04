"""A master that was replaced and answers on, or answers nothing, is left as soon as the Sentinels
or two nodes of the cluster agree, and not only when a connection breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from chasquimq import Queue, Worker
from chasquimq.address import Credentials, read_url
from chasquimq.server import Server
from chasquimq.spark.client import Client
from tests.ha.bus import Bus
from tests.ha.crowd import Crowd
from tests.ha.kit import SERVICE, Cluster, Watched, client, cluster, until
from tests.ha.test_apart import left_behind, stream
from tests.servers import Dialect, binary_for

WORD = "w0rd-of-the-app"  # not a secret


def role(server: Server) -> bytes:
    told: list[bytes] = client(server.port).execute_command("ROLE")
    return told[0]


async def in_thread(what: object, patience_s: float = 60.0) -> None:
    await asyncio.to_thread(until, what, patience_s)


@pytest.mark.timeout(120)
async def test_a_planned_failover_is_followed_while_the_old_master_answers_on(
    sentinels: Watched, queue_name: str
) -> None:
    """The Sentinels tell the old master that it is a replica only some ten seconds later."""
    crowd = Crowd(sentinels.url, queue_name)
    stream = f"{{chasqui:{queue_name}}}:stream"
    async with crowd.at_work(all_of_them=False):
        await crowd.goes_on()
        one = sentinels.sentinels[0].redis
        await in_thread(lambda: one.sentinel_failover(SERVICE))
        await in_thread(lambda: sentinels.named() == sentinels.replica.port)
        new = client(sentinels.replica.port)
        before = new.xinfo_stream(stream)["entries-added"]
        await crowd.until(lambda: new.xinfo_stream(stream)["entries-added"] > before + 50)
        ran = sum(crowd.runs.values())
        await crowd.until(lambda: sum(crowd.runs.values()) > ran + 50)
        assert role(sentinels.master) == b"master", "it was left only when it was demoted"
        assert role(sentinels.replica) == b"master"
    assert set(crowd.runs) <= set(crowd.accepted) | set(crowd.unsure)


@pytest.mark.timeout(120)
async def test_a_silent_master_is_left_when_the_sentinels_agree(
    sentinels: Watched, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    crowd = Crowd(sentinels.url, queue_name)
    with caplog.at_level(logging.WARNING):
        async with crowd.at_work(all_of_them=False):
            await crowd.goes_on()
            sentinels.master.pause()
            try:
                await in_thread(lambda: sentinels.named() == sentinels.replica.port)
                await crowd.goes_on()
            finally:
                sentinels.master.resume()
            # The thawed master is no temptation, though it takes itself for a master.
            await crowd.goes_on()
    assert "name another master" in caplog.text
    assert set(crowd.runs) <= set(crowd.accepted) | set(crowd.unsure)


@pytest.mark.timeout(120)
async def test_health_says_that_the_sentinels_name_another_master(
    sentinels: Watched, queue_name: str
) -> None:
    """The new one does not let the worker in: it is not on the old one, and not well either."""

    async def handle(job: object) -> None: ...

    rules = ("app", "on", f">{WORD}", "~*", "&*", "+@all")
    client(sentinels.master.port).execute_command("ACL", "SETUSER", *rules)
    url = sentinels.url.replace("://", f"://app:{WORD}@")
    worker = Worker(queue_name, handle, redis_url=url)
    running = asyncio.create_task(worker.run())
    await in_thread(lambda: client(sentinels.master.port).exists(stream(queue_name)))
    one = sentinels.sentinels[0].redis
    await in_thread(lambda: one.sentinel_failover(SERVICE))
    async with asyncio.timeout(60):
        while not any("name another master" in each for each in worker.health().problems):
            await asyncio.sleep(0.05)
    assert not worker.health().healthy
    client(sentinels.replica.port).execute_command("ACL", "SETUSER", *rules)
    async with asyncio.timeout(60):
        while not worker.health().healthy:
            await asyncio.sleep(0.05)
    await worker.close()
    await running


@pytest.mark.timeout(120)
async def test_a_connection_of_spark_follows_too(sentinels: Watched) -> None:
    with Client(read_url(sentinels.url)) as spark:
        assert spark.ask("SET", "where", "old")
        one = sentinels.sentinels[0].redis
        await in_thread(lambda: one.sentinel_failover(SERVICE))
        await in_thread(lambda: sentinels.named() == sentinels.replica.port)
        new = client(sentinels.replica.port)
        await in_thread(lambda: spark.ask("SET", "where", "new") and new.get("where") == b"new")
        assert role(sentinels.master) == b"master", "it was left only when it was demoted"


@pytest.fixture
def bus() -> Iterator[Bus]:
    bus = Bus()
    yield bus
    bus.close()


@pytest.mark.timeout(120)
async def test_a_node_that_serves_on_alone_is_left_by_connections_that_are_open(
    dialect: Dialect, bus: Bus, queue_name: str
) -> None:
    """It was cut off from its peers while nobody asked it anything, and has forgotten them."""
    key = stream(queue_name)
    with cluster(binary_for(dialect), bus) as nodes:
        before = nodes.owner(key)
        async with Queue(queue_name, redis_url=nodes.url) as queue:
            await queue.add("a", 1)
            heir = await asyncio.to_thread(left_behind, nodes, bus, before, key)
            alone = client(before.port)
            alone.config_set("cluster-require-full-coverage", "no")
            for node in set(nodes.nodes) - {before}:
                name = client(node.port).execute_command("CLUSTER MYID")
                alone.execute_command("CLUSTER FORGET", name)
            await in_thread(lambda: alone.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
            added = client(heir.port).xlen(key)
            await queue.add("b", 2)
            assert client(heir.port).xlen(key) == added + 1
            assert alone.xlen(key) == 1  # it answers, and would have taken it


@pytest.mark.timeout(120)
async def test_a_silent_node_is_left_when_the_others_agree(
    nodes: Cluster, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Logins are asked for, as in a service whose passwords rotate."""

    async def provider(host: str | None) -> Credentials:
        return None, None

    crowd = Crowd(nodes.url, queue_name, provider)
    owner = nodes.owner(stream(queue_name))
    with caplog.at_level(logging.WARNING):
        async with crowd.at_work(all_of_them=False):
            await crowd.goes_on()
            owner.pause()
            try:
                key = stream(queue_name)
                await in_thread(lambda: nodes.owner(key, apart=owner) is not owner)
                await crowd.goes_on()
            finally:
                owner.resume()
            await crowd.goes_on()
    assert f"as the owner of {stream(queue_name)}" in caplog.text
    assert set(crowd.runs) <= set(crowd.accepted) | set(crowd.unsure)
