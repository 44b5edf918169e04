"""Users with few rights, behind Sentinels and in a cluster: what the page on failovers adds to
their lists is enough, and what is missing is told."""

from __future__ import annotations

import pytest

from chasquimq import Queue
from chasquimq.errors import AccessError
from chasquimq.server import Server
from tests.ha.kit import Cluster, Watched, client
from tests.security.users import WORD, rules
from tests.servers import Dialect

QUEUE = "mail"  # of the page's lists
USER = "producer"
ASKER = "asker"
VARIABLE = "ASKERS_WORD"
NAMES = "+sentinel|get-master-addr-by-name"


def allow(dialect: Dialect, servers: list[Server], *more: str) -> None:
    """The user of the page, and more, on each of them."""
    said = rules(USER, native=dialect.name == "redis-native")
    for server in servers:
        client(server.port).execute_command("ACL", "SETUSER", USER, *said, *more)


async def add(url: str) -> None:
    async with Queue(QUEUE, redis_url=url) as queue:
        await queue.add("a", 1)
        await queue.add("a", 1, delay_ms=3_600_000, job_id="mine")


@pytest.mark.timeout(120)
async def test_behind_sentinels(
    sentinels: Watched, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, WORD)
    url = sentinels.url.replace("://", f"://{USER}:{WORD}@")
    url += f"?sentinel_username={ASKER}&sentinel_password_env={VARIABLE}"
    allow(dialect, [sentinels.master, sentinels.replica], "+role")
    with pytest.raises(AccessError, match="refused the login"):
        await add(url)
    for rights in ((), (NAMES,), (NAMES, "+sentinel|master")):
        for each in sentinels.sentinels:
            each.redis.execute_command(
                "ACL", "SETUSER", ASKER, "reset", "on", f">{WORD}", "nocommands", *rights
            )
        if rights:
            await add(url)
        else:
            with pytest.raises(AccessError, match="does not let us ask SENTINEL"):
                await add(url)
    assert client(sentinels.master.port).acl_log() == []


@pytest.mark.timeout(120)
async def test_in_a_cluster(nodes: Cluster, dialect: Dialect) -> None:
    url = nodes.url.replace("://", f"://{USER}:{WORD}@")
    allow(dialect, nodes.nodes)
    with pytest.raises(AccessError, match="does not let us ask CLUSTER"):
        await add(url)
    allow(dialect, nodes.nodes, "+cluster|slots")
    await add(url)
    allow(dialect, nodes.nodes, "+cluster|slots", "+cluster|nodes")
    for node in nodes.nodes:
        client(node.port).execute_command("ACL", "LOG", "RESET")
    await add(url)
    assert [client(node.port).acl_log() for node in nodes.nodes] == [[]] * 6
