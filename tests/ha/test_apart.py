"""A server that we reach and its peers do not: it was the right one, and is so no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.ha.crowd import Crowd
from tests.ha.kit import SERVICE, Cluster, client, cluster, until, watched
from tests.servers import DIALECTS, Dialect, binary_for

WATCHER = "watcher"
WORD = "s3ntry-box"  # not a secret


@pytest.fixture
def redis_nodes() -> Iterator[Cluster]:
    """Redis: a node of Valkey that is made to forget the others makes all of them forget."""
    with cluster(binary_for(DIALECTS[0])) as servers:
        yield servers


@pytest.mark.timeout(120)
async def test_a_node_cut_off_from_its_cluster_is_left(
    redis_nodes: Cluster, queue_name: str
) -> None:
    """It lives, takes itself for the owner and says that the cluster is down; the others have
    given its slots to its replica."""
    nodes, key = redis_nodes, f"{{chasqui:{queue_name}}}:stream"
    crowd = Crowd(nodes.url, queue_name)
    async with crowd.at_work(all_of_them=False):
        await crowd.goes_on()
        before = nodes.owner(key)
        old, heir = client(before.port), nodes.replica_of(before)
        for node in set(nodes.nodes) - {before}:
            name = client(node.port).execute_command("CLUSTER MYID")
            old.execute_command("CLUSTER FORGET", name)
        await asyncio.to_thread(until, lambda: _state(old) == "fail")
        client(heir.port).execute_command("CLUSTER FAILOVER TAKEOVER")
        await asyncio.to_thread(until, lambda: nodes.owner(key, apart=before) is not before, 60.0)
        await crowd.goes_on()
    assert _state(old) == "fail"
    assert set(crowd.runs) <= set(crowd.accepted) | set(crowd.unsure)


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
