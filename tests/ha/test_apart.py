"""A server that we reach and its peers do not: it was the right one, and is so no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from chasquimq import Queue
from chasquimq.address import read_url
from chasquimq.server import Server
from tests.ha.bus import Bus
from tests.ha.crowd import Crowd
from tests.ha.kit import SERVICE, Cluster, client, cluster, until, watched
from tests.servers import Dialect, binary_for

WATCHER = "watcher"
WORD = "s3ntry-box"  # not a secret


@pytest.fixture
def bus() -> Iterator[Bus]:
    bus = Bus()
    yield bus
    bus.close()


@pytest.fixture
def nodes(dialect: Dialect, bus: Bus) -> Iterator[Cluster]:
    with cluster(binary_for(dialect), bus) as servers:
        yield servers


@pytest.mark.timeout(120)
async def test_a_node_cut_off_from_its_cluster_is_left(
    nodes: Cluster, bus: Bus, queue_name: str
) -> None:
    """It lives, takes itself for the owner and says that the cluster is down; the others have
    given its slots to its replica."""
    key = stream(queue_name)
    before = nodes.owner(key)
    url = f"redis+cluster://127.0.0.1:{before.port}"  # the address names nobody else
    crowd = Crowd(url, queue_name)
    async with crowd.at_work(all_of_them=False):
        await crowd.goes_on()
        heir = await asyncio.to_thread(left_behind, nodes, bus, before, key)
        for _ in range(20):
            assert read_url(url).of(key).resolve().port == heir.port
        await crowd.goes_on()
    assert _state(client(before.port)) == "fail"
    assert set(crowd.runs) <= set(crowd.accepted) | set(crowd.unsure)


@pytest.mark.timeout(120)
async def test_a_node_that_lives_alone_is_not_believed(
    nodes: Cluster, bus: Bus, queue_name: str
) -> None:
    """It has forgotten the others and serves what it had, since no slot needs another node's."""
    key = stream(queue_name)
    before = nodes.owner(key)
    heir = await asyncio.to_thread(left_behind, nodes, bus, before, key)
    alone = client(before.port)
    alone.config_set("cluster-require-full-coverage", "no")
    for node in set(nodes.nodes) - {before}:
        alone.execute_command("CLUSTER FORGET", client(node.port).execute_command("CLUSTER MYID"))
    await asyncio.to_thread(until, lambda: _state(alone) == "ok")
    assert alone.xlen(key) == 0  # it answers
    url = f"redis+cluster://127.0.0.1:{before.port},127.0.0.1:{heir.port}"
    for _ in range(20):
        assert read_url(url).of(key).resolve().port == heir.port
    assert before.port not in [one.endpoint.port for one in read_url(url).nodes()]
    async with Queue(queue_name, redis_url=url) as queue:
        await queue.add("a", 1)
    assert client(heir.port).xlen(key) == 1


@pytest.mark.timeout(120)
async def test_a_node_that_was_taken_out_is_passed_over(nodes: Cluster, queue_name: str) -> None:
    """It has no slots any more, and knows of nobody who has."""
    key = stream(queue_name)
    owner = nodes.owner(key)
    out = nodes.replica_of(nodes.other(key))
    client(out.port).execute_command("CLUSTER RESET SOFT")
    assert client(out.port).execute_command("CLUSTER SLOTS") == []
    url = f"redis+cluster://127.0.0.1:{out.port},127.0.0.1:{owner.port}"
    for _ in range(20):
        assert read_url(url).of(key).resolve().port == owner.port


def stream(queue: str) -> str:
    return f"{{chasqui:{queue}}}:stream"


def left_behind(nodes: Cluster, bus: Bus, before: Server, key: str) -> Server:
    """Its peers lose a node, and agree on its replica instead."""
    heir = nodes.replica_of(before)
    bus.cut_off(nodes.nodes.index(before))
    for node in set(nodes.nodes) - {before}:
        told = Cluster([node, *nodes.nodes])
        until(lambda told=told: told.owner(key, apart=before) is heir, 60.0)
    until(lambda: _state(client(before.port)) == "fail")
    return heir


def _state(node: redis.Redis) -> str:
    return str(node.execute_command("CLUSTER INFO")["cluster_state"])


@pytest.mark.timeout(120)
async def test_a_master_that_its_sentinels_gave_up_is_left(
    dialect: Dialect, tmp_path: Path, queue_name: str
) -> None:
    """It lives, and refuses writes because it has no replica (`min-replicas-to-write`); nobody can
    tell it that another is the master."""
    user = {"user": (WATCHER, "on", f">{WORD}", "~*", "&*", "+@all")}
    more = (f"sentinel auth-user {SERVICE} {WATCHER}", f"sentinel auth-pass {SERVICE} {WORD}")
    with watched(binary_for(dialect), tmp_path, config=user, more=more) as servers:
        old = client(servers.master.port)
        crowd = Crowd(servers.url, queue_name)
        async with crowd.at_work(all_of_them=False):
            await crowd.goes_on()
            old.config_set("min-replicas-to-write", 1)
            old.execute_command("ACL", "SETUSER", WATCHER, "-@all")
            await asyncio.to_thread(until, lambda: servers.named() == servers.replica.port, 60.0)
            await crowd.goes_on()
        assert old.info("replication")["role"] == "master"
        assert set(crowd.runs) <= set(crowd.accepted) | set(crowd.unsure)
