"""Doors that are given a cluster find the node of their queue, and follow it when it moves."""

from __future__ import annotations

import asyncio

import pytest

from chasquimq import Queue, QueueEvents, Worker
from chasquimq.address import Endpoint, read_url
from chasquimq.errors import ConfigError
from tests.ha.crowd import Crowd
from tests.ha.kit import Cluster, client, until
from tests.servers import DialectServer


def stream(queue: str) -> str:
    return f"{{chasqui:{queue}}}:stream"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("at_once", [False, True], ids=["by-key", "at-once"])
async def test_a_slot_moves_while_jobs_run(nodes: Cluster, queue_name: str, at_once: bool) -> None:
    """Nothing dies, so nothing may be lost, doubled or left in doubt."""
    key = stream(queue_name)
    before = nodes.owner(key)
    target = next(node for node in nodes.masters() if node is not before)
    crowd = Crowd(nodes.url, queue_name)
    async with crowd.at_work():
        await crowd.goes_on()
        delayed = await crowd.queue.add("count", "later", delay_ms=2_000)
        await asyncio.to_thread(nodes.hand_over if at_once else nodes.move, key, target)
        await crowd.goes_on()
        await crowd.until(lambda: crowd.runs["later"])
    assert delayed.id
    assert nodes.owner(key) is target
    assert crowd.unsure == []
    assert set(crowd.runs) == {*crowd.accepted, "later"}
    assert max(crowd.runs.values()) == 1
    assert client(target.port).xlen(key) == 0


@pytest.mark.timeout(120)
async def test_durable_adds_wait_while_a_slot_moves(nodes: Cluster, queue_name: str) -> None:
    """The node that has the stream still takes a job, and cannot write the mark that is waited for:
    that is no doubt, the other one will."""
    key = stream(queue_name)
    target = next(node for node in nodes.masters() if node is not nodes.owner(key))
    crowd = Crowd(nodes.url, queue_name, durability="replicated")
    async with crowd.at_work():
        await crowd.goes_on(20)
        await asyncio.to_thread(nodes.move, key, target)
        await crowd.goes_on(20)
    assert crowd.unsure == []
    assert set(crowd.runs) == set(crowd.accepted)
    assert max(crowd.runs.values()) == 1


@pytest.mark.timeout(120)
async def test_a_master_is_killed(nodes: Cluster, queue_name: str) -> None:
    key = stream(queue_name)
    crowd = Crowd(nodes.url, queue_name, durability="replicated", durability_timeout_ms=1_000)
    async with crowd.at_work():
        await crowd.goes_on()
        before = nodes.owner(key)
        before.kill()
        after = await asyncio.to_thread(until, lambda: _another(nodes, key, before), 60.0)
        # The node that took over has no replica, so what it accepts is in doubt: that is told.
        seen = len(crowd.unsure) + len(crowd.accepted)
        await crowd.until(lambda: len(crowd.unsure) + len(crowd.accepted) > seen + 10)
        before.start()
        await asyncio.to_thread(until, lambda: _has_replica(after.port))
        await crowd.goes_on()
    assert set(crowd.accepted) <= set(crowd.runs)


def _another(nodes: Cluster, key: str, gone: object) -> object:
    owner = nodes.owner(key)
    return owner if owner is not gone else None


def _has_replica(port: int | None) -> bool:
    return client(port).info("replication")["connected_slaves"] == 1


async def test_every_door_goes_through(nodes: Cluster, queue_name: str) -> None:
    """Queues of three names, so that they lie on different nodes."""
    names, seen = [f"{queue_name}-{number}" for number in range(6)], []
    assert len({nodes.owner(stream(name)).port for name in names}) > 1

    async def handle(job: object) -> None:
        seen.append(job)

    for name in names:
        events = QueueEvents(name, redis_url=nodes.url, last_event_id="0")
        async with Queue(name, redis_url=nodes.url) as queue:
            await queue.add_bulk([{"name": "a", "data": number} for number in range(10)])
            await Worker(name, handle, redis_url=nodes.url, burst=True).run()
        async for event in events:
            if event.name == "completed":
                break
        await events.close()
    assert len(seen) == 60


def test_nodes_without_a_name(nodes: Cluster, queue_name: str) -> None:
    """One that shall be called by a name and has none is found by its address; one that shall not
    be called by anything is where the node is that was asked."""
    key = stream(queue_name)
    address = read_url(nodes.url.replace("127.0.0.1", "localhost")).of(key)
    port = nodes.owner(key).port
    for kind, host in (("unknown-endpoint", "localhost"), ("hostname", "127.0.0.1")):
        for node in nodes.nodes:
            client(node.port).config_set("cluster-preferred-endpoint-type", kind)
        assert address.resolve() == Endpoint(host, port or 0)


async def test_a_server_that_is_no_cluster_is_told(dialect_server: DialectServer) -> None:
    url = dialect_server.url.replace("redis://", "redis+cluster://")
    with pytest.raises(ConfigError, match="is no cluster"):
        await Queue("any", redis_url=url).add("a", 1)
